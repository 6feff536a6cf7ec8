"""The toolkit's journal: what it says of a run, and the verdict written into it in the toolkit's own terms.

The newest toolkit's ``--output agent`` classifies a run by its journal alone, so the journal must say there what we say
here: a healed deviation is a state of ``steady_states.during``; what is not conclusive is ``interrupted`` with a reason
under ``interruption``, the key that its own controls use.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from chaos_mm.controls.facts import Reason
from chaos_mm.controls.judge import Judged
from chaos_mm.controls.names import OBJECTIVES_DIR, given
from chaos_mm.controls.rules import ACTIONS, injected_fault
from chaos_mm.core.errors import ChaosMMError

__all__ = ["reasons", "tell", "write"]

_UNDO = frozenset({"release", "release_all", "stop_load"})
_CONCLUSIVE = ("passed", "dry", "deviated")


def reasons(journal: Mapping[str, Any], configuration: Mapping[str, Any] | None = None) -> Iterator[Reason]:
    """What the toolkit found, in our words. ``configuration`` says where the objectives of its tolerances are."""
    states = journal.get("steady_states") or {}
    yield from _of_gate(states.get("before"), configuration)
    for state in [*(states.get("during") or []), states.get("after")]:
        yield from _of_state(state, configuration)
    for entry in journal.get("run") or []:
        yield from _of_activity(entry)
        if journal.get("status") not in ("interrupted", "aborted"):
            yield from _of_cut_short(entry)
    for entry in journal.get("rollbacks") or []:
        if entry.get("status") == "failed":
            yield Reason("error", f"the rollback {_name(entry)!r} failed: {_why(entry)}")
    if journal.get("status") == "aborted":
        yield Reason("error", "the toolkit aborted the method after an unexpected error")


def tell(journal: dict[str, Any], judged: Judged, block: Mapping[str, Any], signal: str, guard: str) -> None:
    """Write the verdict in: ``block`` under ``verdict``, and what the toolkit's own readers go by.

    ``signal``: name of the first signal that others sent. ``guard``: the objective whose guard stopped the run.
    """
    journal["verdict"] = dict(block)
    if {"deviated", "halted"} & set(judged.words):
        _deviate(journal, judged)
    if judged.word == "not_steady" and _gate_says_so(journal):
        journal["status"] = "failed"  # its readers then find the gate that was not met, or the probe without a value
    elif judged.word == "no_data" and _probe_says_so(journal):
        journal["status"] = "failed"
    elif judged.word not in _CONCLUSIVE:
        journal["status"] = "interrupted"
        journal["interruption"] = _interruption(judged, signal, guard)


def write(path: Path, journal: Mapping[str, Any]) -> None:
    """After a crash, when the toolkit writes none: strict JSON, whole or not at all. Raises OSError."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(journal, allow_nan=False, indent=2), encoding="utf-8")
    part.replace(path)


def _of_gate(state: Any, configuration: Mapping[str, Any] | None) -> Iterator[Reason]:
    for entry, why in _unmet(state, configuration):
        if entry.get("status") != "succeeded":
            yield Reason("not_steady", f"the gate {_name(entry)!r} gave no value: {_why(entry)}")
        else:
            yield Reason("not_steady", f"the gate {_name(entry)!r} was not met: {why}")


def _of_state(state: Any, configuration: Mapping[str, Any] | None) -> Iterator[Reason]:
    for entry, why in _unmet(state, configuration):
        if entry.get("status") != "succeeded":
            yield Reason("no_data", f"the probe {_name(entry)!r} gave no value: {_why(entry)}")
        elif _unmeasured(entry) or "no data: " in why:
            yield Reason("no_data", f"the probe {_name(entry)!r} measured nothing: {why}")
        else:
            yield Reason("deviated", f"the steady state was not met: {_name(entry)!r}: {why}")


def _unmet(state: Any, configuration: Mapping[str, Any] | None) -> Iterator[tuple[Mapping[str, Any], str]]:
    if not isinstance(state, Mapping) or state.get("steady_state_met") is not False:
        return
    for entry in state.get("probes") or []:
        if entry.get("tolerance_met") is False:
            yield entry, _judged(entry, configuration) or _shown(entry.get("output"))


def _judged(entry: Mapping[str, Any], configuration: Mapping[str, Any] | None) -> str:
    """What the objective of the tolerance says of the answer, such as that it comes from too few requests."""
    from chaos_mm.sli import objectives

    tolerance = (entry.get("activity") or {}).get("tolerance")
    provider = tolerance.get("provider") if isinstance(tolerance, Mapping) else None
    arguments = provider.get("arguments") if isinstance(provider, Mapping) else None
    if not isinstance(arguments, Mapping) or _unmeasured(entry):
        return ""
    try:
        found = objectives.load(given(OBJECTIVES_DIR, configuration)).get(str(arguments.get("objective")))
    except ChaosMMError:
        return ""
    judgement = found.judge(entry.get("output")) if found is not None else None
    if found is None or judgement is None or judgement.met:
        return ""
    return judgement.reason.removeprefix(f"{found.name}: " if found.name == _name(entry) else "")


def _of_activity(entry: Mapping[str, Any]) -> Iterator[Reason]:
    if entry.get("status") != "failed":
        return
    activity = entry.get("activity") or {}
    provider = activity.get("provider") or {}
    if activity.get("type") == "probe":
        yield Reason("no_data", f"the probe {_name(entry)!r} gave no value: {_why(entry)}")
    elif provider.get("module") == ACTIONS and provider.get("func") in _UNDO:
        yield Reason("error", f"the action {_name(entry)!r} failed: {_why(entry)}")
    elif not injected_fault(activity):  # of ours it was noted where it happened, with its word
        yield Reason("not_applied", f"the action {_name(entry)!r} failed: {_why(entry)}")


def _of_cut_short(entry: Mapping[str, Any]) -> Iterator[Reason]:
    """One in the background that ended by an exit, which the engine does not look at: it has no status."""
    if "status" not in entry and not entry.get("dry"):
        probe = (entry.get("activity") or {}).get("type") == "probe"
        yield Reason("no_data" if probe else "not_applied", f"{_name(entry)!r} was cut short: nobody knows what it did")


def _deviate(journal: dict[str, Any], judged: Judged) -> None:
    why = next(one.reason for one in judged.reasons if one.word in ("halted", "deviated"))
    provider = {"type": "python", "module": "chaos_mm.controls.verdict"}
    activity = {"name": "verdict", "type": "probe", "provider": provider}
    probe = {"activity": activity, "status": "succeeded", "tolerance_met": False, "output": why}
    states = journal.setdefault("steady_states", {})
    states["during"] = [*(states.get("during") or []), {"steady_state_met": False, "probes": [probe]}]
    journal["deviated"] = True


def _interruption(judged: Judged, signal: str, guard: str) -> dict[str, str]:
    if judged.word == "interrupted" and signal:
        return {"kind": "signal", "name": signal, "reason": f"received {signal}"}
    if judged.word == "halted":
        return {"kind": "safeguard", "name": guard, "reason": judged.why}
    return {"kind": "control", "name": "verdict", "reason": f"{judged.word}: {judged.why}"}


def _gate_says_so(journal: Mapping[str, Any]) -> bool:
    before = (journal.get("steady_states") or {}).get("before")
    return isinstance(before, Mapping) and before.get("steady_state_met") is False


def _probe_says_so(journal: Mapping[str, Any]) -> bool:
    after = (journal.get("steady_states") or {}).get("after")
    probes = after.get("probes") if isinstance(after, Mapping) else None
    return any(entry.get("status") != "succeeded" for entry in probes or [])


def _unmeasured(entry: Mapping[str, Any]) -> bool:
    output = entry.get("output")
    return isinstance(output, Mapping) and output.get("measured") is False


def _name(entry: Mapping[str, Any]) -> str:
    return str((entry.get("activity") or {}).get("name") or "unnamed")


def _shown(output: Any) -> str:
    if isinstance(output, Mapping) and {"measured", "value"} <= set(output):
        text = f"{output['value']} {output.get('unit') or ''}".strip() if output["measured"] else output.get("reason")
        return str(text)[:200]
    return f"it gave {output!r}"[:200]


def _why(entry: Mapping[str, Any]) -> str:
    lines = [line for part in entry.get("exception") or [] for line in str(part).strip().splitlines()]
    text = lines[-1] if lines else "no reason was given"
    return text.rpartition("chaoslib.exceptions.ActivityFailed: ")[2][:300]
