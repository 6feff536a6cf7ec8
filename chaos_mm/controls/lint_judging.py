"""Rules about what is judged and by what: objectives, tolerances, values, lengths, secrets."""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from chaos_mm.controls.lint_rules import Finding, finding
from chaos_mm.controls.names import OBJECTIVES_DIR, given
from chaos_mm.controls.placed import PROBES, TOLERANCES, Document, Placed, variables
from chaos_mm.controls.values import wrong_values
from chaos_mm.core.errors import ChaosMMError

__all__ = ["check_judging"]

_PHASES = ("baseline_seconds", "fault_seconds", "recovery_seconds")
_NUMERIC = ("at_least", "at_most", "between")
_OBJECTIVE = '{"module": "chaos_mm.tolerances", "func": "within_objective", "arguments": {"objective": "…"}}'
_SECRET_NAME = re.compile(r"(token|secret|passw(or)?d|api_?key|credentials?|authorization)$", re.IGNORECASE)
_SECRET_TEXT = re.compile(
    r"://[^/\s:@${}]*:[^/\s@${}]+@|\b(Bearer|Basic) [A-Za-z0-9+/=._~-]{8,}|\bsk-[A-Za-z0-9_-]{16,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bAKIA[A-Z0-9]{16}\b|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_TAKEN = "chaos-mm faults show NAME and chaos discover say what is taken"
_UNSET = "give it a value under configuration, or correct its name"


def check_judging(document: Document) -> Iterator[Finding]:
    """Every broken rule about what is judged."""
    yield from _objectives(document)
    yield from _lengths(document)
    for one in document.placed:
        yield from _tolerance(one)
        yield from _timeout(one)
        if one.ours:
            for sentence in wrong_values(one.body, document.configuration, {}, document.open):
                yield finding("value", one, sentence, _UNSET if "has no value" in sentence else _TAKEN)
    yield from _secrets(document.experiment)


def _objectives(document: Document) -> Iterator[Finding]:
    named = [(one, name) for one in document.ours for name in _named(document, one)]
    if document.injections and not named:
        wrong = "no objective is named, so the run can only end as no_data"
        yield finding(
            "nothing-judged", "steady-state-hypothesis", wrong, "a probe sli with an objective and within_objective"
        )
    known = _known(document) if named else {}
    if isinstance(known, str):
        yield finding("objective-unknown", "configuration.objectives_dir", known, "a folder of objectives")
        return
    for one, name in named:
        if name not in known and not variables(name):
            near = difflib.get_close_matches(name, known, 1) or sorted(known)
            yield finding("objective-unknown", one, f"there is no objective {name!r}", f"{', '.join(near)}")
    yield from _judged_by(document)


def _named(document: Document, one: Placed) -> list[str]:
    texts = [str(document.value(one.arguments.get(key) or "")) for key in ("objective", "objectives")]
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def _known(document: Document) -> Mapping[str, object] | str:
    from chaos_mm.sli import objectives

    try:
        return objectives.load(given(OBJECTIVES_DIR, document.configuration))
    except ChaosMMError as error:
        return str(error)


def _judged_by(document: Document) -> Iterator[Finding]:
    probes = document.within("hypothesis")
    for probe in probes:
        judge = probe.body.get("tolerance")
        if isinstance(judge, Mapping) and probe.func in ("sli", "recovery_seconds"):
            yield from _judge_of(document, probe, Placed("tolerance", f"{probe.path}.tolerance", judge))
    asking = [probe for probe in probes if probe.func == "sli"]
    if asking and not any(p.arguments.get("whole_phase") or p.arguments.get("phase_seconds") for p in asking):
        wrong = "no probe waits for the phase, so baseline and recovery last a moment"
        yield finding("phase-not-awaited", asking[0], wrong, '"whole_phase": true on the first probe')


def _judge_of(document: Document, probe: Placed, judge: Placed) -> Iterator[Finding]:
    asked, by = (document.value(one.arguments.get("objective")) for one in (probe, judge))
    if judge.func == "within_objective" and asked and by != asked:
        yield finding("objective-mismatch", judge, f"{asked!r} is judged by {by!r}", f'"objective": "{asked}"')
    if judge.func in _NUMERIC or judge.body.get("type") in ("range", "jsonpath"):
        wrong = "a number stands in the experiment; worst windows are judged by objectives only"
        yield finding("literal-threshold", judge, wrong, _OBJECTIVE)


def _tolerance(one: Placed) -> Iterator[Finding]:
    tolerance = one.body.get("tolerance")
    if one.part != "hypothesis":
        if tolerance is not None:
            yield finding(
                "tolerance-ignored", one, "the toolkit does not judge it here", "move the probe to the hypothesis"
            )
    elif isinstance(tolerance, float):
        instead = '{"type": "range", "range": [low, high]}, or an objective'
        yield finding("tolerance-float", one, f"the tolerance is {tolerance!r}", instead)
    elif tolerance is not None:
        yield from _shape(one, tolerance)


def _shape(one: Placed, tolerance: Any) -> Iterator[Finding]:
    wrong = _cannot_be(one, tolerance)
    if wrong:
        yield finding(
            "tolerance-shape", one, wrong, _OBJECTIVE if one.ours else "a tolerance for what the probe answers"
        )
    foreign = one.provider.get("type") == "python" and not one.ours
    if foreign and isinstance(tolerance, Mapping) and tolerance.get("type") == "range" and tolerance.get("target"):
        wrong = "an answer that is no object crashes the run"
        yield finding("tolerance-target", one, wrong, "a tolerance of type probe, or a range without target")


def _cannot_be(one: Placed, tolerance: Any) -> str:
    """Why a tolerance can never be met, or crashes the run; "" when neither."""
    answers_object = one.provider.get("module") == PROBES or one.provider.get("type") in ("http", "process")
    if isinstance(tolerance, Mapping):
        kind = tolerance.get("type")
        if kind == "probe":
            return _judge(tolerance)
        aimless = answers_object and kind in ("range", "regex") and not tolerance.get("target")
        return f"a {kind} without target crashes on an object, which this probe answers" if aimless else ""
    if one.provider.get("module") != PROBES:
        return ""
    crash = isinstance(tolerance, list) and len(tolerance) == 2
    return f"{'a pair crashes on' if crash else 'this is never equal to'} an object, which this probe answers"


def _judge(tolerance: Mapping[str, Any]) -> str:
    provider = tolerance.get("provider") or {}
    if provider.get("module") == PROBES:
        return f"{provider.get('func')} is a probe; judging is done by {TOLERANCES}"
    if not isinstance(provider.get("arguments"), Mapping):
        return "without 'arguments' the toolkit crashes when it puts the value there"
    return ""


def _lengths(document: Document) -> Iterator[Finding]:
    waits = [*_waits(document)]
    used = {name for _, value in waits for name in variables(value)} | set(_PHASES)
    for key, value in (document.experiment.get("configuration") or {}).items():
        if key in used:
            yield from _length(str(key), value)
    for key, text in document.unconverted.items():
        variable = document.experiment["configuration"][key]["key"]
        wrong = f"{text}: the toolkit crashes on it"
        yield finding("environment", f"configuration.{key}", wrong, f"unset {variable}, or set it to a number")
    for one, value in waits:
        if document.injections and isinstance(value, (int, float)) and value > 0:
            wrong = f"{value:g} s stand in the file"
            yield finding("phase-literal", one, wrong, "${fault_seconds}, with that key in the configuration")


def _waits(document: Document) -> Iterator[tuple[Placed, Any]]:
    for one in document.placed:
        yield one, (one.body.get("pauses") or {}).get("before")
        if one.is_action("hold"):
            yield one, one.arguments.get("seconds", 10.0)


def _length(key: str, value: Any) -> Iterator[Finding]:
    path, instead = f"configuration.{key}", '{"type": "env", "key": "…", "default": 20, "env_var_type": "float"}'
    if isinstance(value, Mapping):
        if value.get("type") == "env" and value.get("env_var_type") != "float":
            wrong = f"env_var_type is {value.get('env_var_type')!r}: what comes from the environment would be no number"
            yield finding("phase-type", path, wrong, instead)
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        yield finding("phase-type", path, "it is no number", instead)


def _timeout(one: Placed) -> Iterator[Finding]:
    if one.provider.get("type") == "python" and ("timeout" in one.provider or "timeout" in one.body):
        yield finding("timeout-ignored", one, "the toolkit ignores timeout on a Python activity", "leave it out")


def _secrets(experiment: Mapping[str, Any]) -> Iterator[Finding]:
    instead = '{"type": "env", "key": "NAME_OF_A_VARIABLE"} under secrets'
    for path, key, value in _texts("", "", experiment):
        if value and not variables(value) and (_named_secret(path, key) or _SECRET_TEXT.search(value)):
            yield finding("secret-literal", path, "a secret stands in the file", instead)


def _named_secret(path: str, key: str) -> bool:
    # A default is the value itself, with the name one level up.
    name = path.removesuffix(".default") if key == "default" else key
    group = path.startswith("secrets.") and key not in ("type", "key", "path")
    return group or _SECRET_NAME.search(name) is not None


def _texts(path: str, key: str, value: Any) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(f"{path}.{name}" if path else str(name), str(name), inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _texts(f"{path}[{number}]", "", inner)
    elif isinstance(value, str):
        yield path, key, value
