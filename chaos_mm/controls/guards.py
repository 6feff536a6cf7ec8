"""When to stop a run for the sake of others: objectives with ``guard: true``, looked at about once a second. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chaos_mm.controls.strict import is_number
from chaos_mm.core.fault import Fault

if TYPE_CHECKING:
    from chaos_mm.sli.objectives import Objective

__all__ = ["Guards", "broken", "is_whole", "lifted"]

_ALMOST, _HAIR = 0.999, 1e-6
_ABOVE = ("lte", "lt")  # met at or below the threshold: a count of bad things
_LEAKS, _CANARIES = "leak_count", "canary"


class Guards:
    """Knows since when each guard has been broken on end."""

    def __init__(self, objectives: "Sequence[Objective]") -> None:
        self._objectives = [one for one in objectives if one.guard]
        self._since: dict[str, float] = {}

    def look(self, now: float, answers: Mapping[str, Mapping[str, Any]]) -> tuple[str, str] | None:
        """(objective, why) of the first guard that has been broken for its hold time, None while all hold.

        ``answers`` by the objective's name. An answer that tells nothing neither breaks nor mends.
        """
        for one in self._objectives:
            state = broken(one, answers.get(one.name, {}))
            if state is None:
                continue
            if not state:
                self._since.pop(one.name, None)
                continue
            held = now - self._since.setdefault(one.name, now)
            if held >= one.hold_seconds:
                return one.name, f"{state}{_audience(one)}, for {held:.1f} s on end"
        return None


def lifted(objective: "Objective", faults: Iterable[Fault]) -> bool:
    """Whether the objective guards nothing in a run that injects these faults: it forbids canaries to get one another's
    answers, and a fault that carries one canary's content to another mixes them up on purpose. What others get is
    guarded in every run.
    """
    own = objective.sli == _LEAKS and objective.filters.get("audience") == _CANARIES
    return own and any(fault.carries_content for fault in faults)


def is_whole(objective: "Objective", answer: Mapping[str, Any]) -> bool:
    """Whether the answer's window has the objective's full length."""
    seconds = answer.get("window_seconds")
    return is_number(seconds) and float(seconds or 0.0) >= _ALMOST * objective.window_seconds


def broken(objective: "Objective", answer: Mapping[str, Any]) -> str | None:
    """Why the objective is broken, "" when it is met, None when the answer cannot tell yet.

    A window that is not whole yet counts as broken only when it can no longer be met in its full length: a share whose
    misses so far are more than a whole window may hold, a count that is over its bound already.
    """
    if answer.get("measured") is not True or not is_number(answer.get("value")):
        return None
    if is_whole(objective, answer):
        enough = int(answer.get("samples") or 0) >= objective.min_samples
        judged = objective.judge(answer)
        return None if not enough else "" if judged.met else judged.reason
    return _lost(objective, answer) or None


def _audience(objective: "Objective") -> str:
    """Whom the objective is about, where it says so: a leak is something else among canaries than among others."""
    audience = objective.filters.get("audience")
    return f" (of the audience {audience!r})" if audience else ""


def _lost(objective: "Objective", answer: Mapping[str, Any]) -> str:
    value, samples = float(answer["value"]), int(answer.get("samples") or 0)
    seconds = float(answer.get("window_seconds") or 0.0)
    if answer.get("unit") == "requests" and objective.comparison in _ABOVE:
        over = value > objective.threshold or (objective.comparison == "lt" and value == objective.threshold)
        return f"{objective.name}: {objective.sli} is {value:g} already" if over else ""
    if answer.get("unit") != "ratio" or objective.comparison in _ABOVE or seconds <= 0:
        return ""
    expected = samples * objective.window_seconds / seconds
    misses, allowed = (1.0 - value) * samples, (1.0 - objective.threshold) * expected
    if misses <= allowed + _HAIR:
        return ""
    return f"{objective.name}: {misses:.0f} misses in {seconds:.0f} s, a whole window may hold {allowed:.1f}"
