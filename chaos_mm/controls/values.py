"""Whether the arguments of an activity of ours are what its signature takes; the same words at every stage."""

import importlib
import inspect
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from chaoslib import substitute
from chaoslib.exceptions import InvalidActivity

from chaos_mm.controls.declared import GIVEN_BY_TOOLKIT, holds_variable

__all__ = ["wrong_values"]


def wrong_values(
    one: Mapping[str, Any],
    configuration: Mapping[str, Any],
    secrets: Mapping[str, Any],
    unknown_yet: Collection[str] = (),
) -> Iterator[str]:
    """One sentence for each variable without a value, and one for the first argument out of bounds.

    ``unknown_yet``: variables whose value is not known at this stage; what holds one of them is not judged.
    """
    provider = one["provider"]
    what = one.get("name", provider.get("func"))
    arguments = substitute(dict(provider.get("arguments") or {}), configuration, secrets)
    for name, value in arguments.items():
        if holds_variable(value) and not any("${" + known + "}" in value for known in unknown_yet):
            yield f"{what}: {name}={value!r}: that variable has no value"
    function = getattr(importlib.import_module(provider["module"]), str(provider.get("func")), None)
    if function is None:
        yield f"{provider['module']} has no {provider.get('func')!r}"
        return
    signature = inspect.signature(function)
    spare = {name: None for name in GIVEN_BY_TOOLKIT if name in signature.parameters}
    try:
        signature.bind(**{**arguments, **spare})
    except (InvalidActivity, TypeError) as error:
        yield f"{what}: {error}"
