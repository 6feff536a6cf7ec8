"""Activities that know their bounds: a signature whose ``bind`` refuses bad values, so ``chaos validate`` does.

``chaoslib`` validates an activity by ``inspect.signature(function).bind(**arguments)`` and reports what that raises;
``inspect.signature`` hands back ``__signature__`` as it is, subclass included. A test pins that it still does.

Annotations here and in the activity modules are real objects (no ``from __future__ import annotations``) and of the
kinds that discovery can show.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Dict  # noqa: UP035 - discovery of chaoslib 1.44 shows typing.Dict as "mapping", dict[...] not

from chaoslib.exceptions import InvalidActivity
from chaoslib.types import Configuration, Secrets

from chaos_mm.controls.outcome import ACTION_SECONDS, Unable, fail, outcome
from chaos_mm.core.blast_radius import Selector
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.fault import Fault, Point
from chaos_mm.core.params import Param, ParamSpec, bind

__all__ = ["FRAME", "Answer", "CheckedSignature", "activity", "inject_signature", "split_arguments"]

Answer = Dict[str, Any]  # noqa: UP006 - see above
Check = Callable[[Mapping[str, Any]], object]
Deadline = Callable[[Mapping[str, Any]], float]

GIVEN_BY_TOOLKIT = ("configuration", "secrets")
_DAY = 86400.0


def _spec(name: str, default: Any, doc: str, **bounds: Any) -> ParamSpec:
    return ParamSpec(name, type(default), default, doc, **bounds)


FRAME: Mapping[str, ParamSpec] = {
    spec.name: spec
    for spec in (
        _spec("lease", "", "name of the lease; empty: the fault's name"),
        _spec("point", "", "injection point; empty: the first reachable one", choices=("", *(p.value for p in Point))),
        _spec("reason", "", "why, for whoever finds the lease; empty: the experiment's title"),
        _spec("rate", 1.0, "share of the matching requests that is hit", ge=0, le=1),
        _spec("selector", "canary", "which requests: canary, live, or header:, model:, path:, modality: terms"),
        _spec("limit", 0, "most requests to hit; 0: no limit", ge=0, le=10**9),
        _spec("ttl_seconds", 300.0, "hard end of the lease", ge=1, le=_DAY, unit="s"),
        _spec("keepalive_seconds", 10.0, "the lease ends when its run is silent for so long", ge=5, le=600, unit="s"),
        _spec("seed", 0, "seed of the fault's randomness", ge=0, le=2**63 - 1),
        _spec("mode", "inject", "observe matches and counts and harms nothing", choices=("inject", "observe")),
        _spec("severity", 0, "preset of the fault; 0: none", ge=0, le=5),
    )
}
"""Parameters that every inject action takes beside its fault's own."""


class CheckedSignature(inspect.Signature):
    """A signature that also judges values. Values that still hold a variable (``${…}``) are left for later."""

    __slots__ = ("_check",)
    _check: Check

    @classmethod
    def of(cls, signature: inspect.Signature, check: Check) -> "CheckedSignature":
        """The same parameters and return type, judged by ``check``, which raises InvalidParams."""
        made = cls(list(signature.parameters.values()), return_annotation=signature.return_annotation)
        made._check = check
        return made

    def bind(self, /, *args: Any, **kwargs: Any) -> inspect.BoundArguments:
        """As ``inspect.Signature.bind``. Raises InvalidActivity for a value out of bounds."""
        bound = super().bind(*args, **kwargs)
        given = {k: v for k, v in bound.arguments.items() if k not in GIVEN_BY_TOOLKIT and not holds_variable(v)}
        try:
            self._check(given)
        except InvalidParams as error:
            raise InvalidActivity(str(error)) from None
        return bound


def holds_variable(value: Any) -> bool:
    """Whether the text still has a ``${…}`` to be substituted."""
    return isinstance(value, str) and "${" in value


def split_arguments(fault: Fault, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the fault's own parameters, the frame's), unchecked; an unknown name counts as the fault's."""
    frame = {k: v for k, v in arguments.items() if k in FRAME}
    return {k: v for k, v in arguments.items() if k not in FRAME}, frame


def bind_injection(fault: Fault, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(parameters, frame), complete, typed and within bounds. Raises InvalidParams."""
    params, frame = split_arguments(fault, arguments)
    bound = bind(f"inject_{fault.name}", FRAME, frame)
    try:
        Selector.parse(bound["selector"])
        _check_point(fault, bound["point"])
    except ValueError as error:
        raise InvalidParams(f"inject_{fault.name}: {error}") from None
    return fault.bind(params, bound["severity"] or None), bound


def _check_point(fault: Fault, point: str) -> None:
    if point and point not in [p.value for p in fault.points]:
        allowed = ", ".join(repr(p.value) for p in fault.points)
        raise ValueError(f"point={point!r} is not allowed; it must be one of '', {allowed}")


def inject_signature(fault: Fault) -> CheckedSignature:
    """Of ``inject_<fault>``: the fault's parameters, the frame's, then configuration and secrets."""
    specs = [*fault.params.values(), *FRAME.values()]
    parameters = [_parameter(spec.name, spec.type, spec.default) for spec in specs]
    parameters += [_parameter("configuration", Configuration, None), _parameter("secrets", Secrets, None)]
    plain = inspect.Signature(parameters, return_annotation=Answer)
    return CheckedSignature.of(plain, functools.partial(bind_injection, fault))


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def activity(
    deadline: Deadline = lambda _: ACTION_SECONDS, unable: Unable = fail, **bounds: Param
) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Declare an action or probe: its scalar arguments are checked and converted, its answer made strict JSON.

    ``deadline``: from its arguments, seconds after which it has ended; what it waits for on purpose is in them.
    ``unable``: what an error becomes, from one sentence; ``fail`` for actions.
    """

    def declare(function: Callable[..., Answer]) -> Callable[..., Answer]:
        signature = inspect.signature(function)
        specs = _specs(signature, bounds)
        check = functools.partial(bind, function.__name__, specs)

        @functools.wraps(function)
        def run(**arguments: Any) -> Answer:
            given = {k: v for k, v in arguments.items() if k in GIVEN_BY_TOOLKIT}
            try:
                bound = check({k: v for k, v in arguments.items() if k not in GIVEN_BY_TOOLKIT})
            except InvalidParams as error:
                raise InvalidActivity(str(error)) from None
            complete = {**bound, **given}
            return outcome(function.__name__, lambda: function(**complete), unable, lambda: deadline(complete))

        run.__dict__["__signature__"] = CheckedSignature.of(signature, check)
        return run

    return declare


def _specs(signature: inspect.Signature, bounds: Mapping[str, Param]) -> dict[str, ParamSpec]:
    specs = {}
    for name, parameter in signature.parameters.items():
        if name not in GIVEN_BY_TOOLKIT:
            limit = bounds.get(name, Param(name))
            specs[name] = ParamSpec(
                name, parameter.annotation, parameter.default, limit.doc, limit.ge, limit.le, limit.unit
            )
    return specs
