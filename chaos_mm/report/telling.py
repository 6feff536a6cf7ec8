"""What a run came to in a few sentences, for people who were not there."""

from collections.abc import Iterator, Sequence

from chaos_mm.report.folder import RunReport
from chaos_mm.report.parts import PHASES, Achieved, Hits, Lease, Objective, Window
from chaos_mm.report.wording import achieved, bound, clipped, duration, plain, value, window

__all__ = [
    "by_weight",
    "dosed",
    "expectation",
    "hit",
    "lead",
    "spent",
    "telling_objective",
    "tone",
    "trail",
    "worst_windows",
]

TONES = {
    "passed": "good",
    "dry": "quiet",
    "deviated": "bad",
    "halted": "bad",
    "not_steady": "open",
    "not_applied": "open",
    "not_exercised": "open",
    "no_data": "open",
    "interrupted": "broken",
    "error": "broken",
    "not_restored": "broken",
}


def tone(word: str) -> str:
    """good, bad (the service failed), open (nothing was shown), broken (the run failed) or quiet."""
    return TONES[word]


def hit(hits: Hits) -> str:
    """ "57 of 60", with what failed."""
    return f"{hits.applied} of {hits.matched}" + (f", {hits.errored} failed" if hits.errored else "")


def dosed(run: RunReport) -> str:
    """The run's fault and its first parameters, as runs of one experiment are told apart: "image_noise (sigma 0.6)"."""
    params = [(clipped(name, 30), told) for lease in run.leases[:1] for name, told in list(lease.params.items())[:4]]
    doses = ", ".join(f"{name} {clipped(plain(told), 20)}" for name, told in params)
    return clipped(f"{run.fault} ({doses})" if doses else run.fault, 90)


def lead(run: RunReport) -> list[str]:
    """Sentences: what was done to whom, how the most telling objective fared, and how soon all was well again."""
    told = [_done(lease) for lease in run.leases[:3]] or ["No fault was injected."]
    objective = telling_objective(run.objectives)
    if objective is not None and (run.leases or _measured(objective)):
        told.append(_fared(objective))
    return [*told, *_recovery(run)]


def _done(lease: Lease) -> str:
    doses = ", ".join(f"{clipped(name, 40)} {clipped(plain(dose), 40)}" for name, dose in lease.params.items())
    what = f"{lease.fault or lease.name} ({doses})" if doses else lease.fault or lease.name
    failed = f", {lease.hits.errored} failed" if lease.hits.errored else ""
    hits = f"{lease.hits.applied} of {lease.hits.matched} selected requests{failed}"
    return f"{what} changed {hits}{_strength(lease.achieved)}."


def _strength(found: Sequence[Achieved]) -> str:
    """The first of what was achieved; what is told in decibels, as damage usually is, before the rest."""
    for one in sorted(found, key=lambda one: not one.name.endswith("_db")):
        if one.mean is not None and one.count:
            name, unit = achieved(one)
            return f", with a mean {name} of {one.mean:.3g}{' ' + unit if unit else ''}"
    return ""


def _fared(objective: Objective) -> str:
    phase = telling_phase(objective)
    if not phase:
        return f"Of {objective.name} no window is known."
    answer = objective.phases[phase]
    if not answer.measured:
        return f"{objective.name} had no data in the {phase} phase: it must be {bound(objective, answer.unit)}."
    shown = value(answer.value, answer.unit, objective.threshold)
    verb = "was met" if answer.met else "was not met"
    return (
        f"{objective.name} {verb}: {shown} in the worst window of {phase}, {bound(objective, answer.unit)} is needed."
    )


def _measured(objective: Objective) -> bool:
    phase = telling_phase(objective)
    return bool(phase) and objective.phases[phase].measured


def telling_objective(objectives: Sequence[Objective]) -> Objective | None:
    """The named objective that tells most: one not met before one met, then the least margin under fault."""
    named = [one for one in objectives if one.named and one.phases]
    return min(named, key=_margin, default=None)


def by_weight(objectives: Sequence[Objective]) -> list[Objective]:
    """As a reader wants them: judged before watched, and the most telling first; those without a window last."""
    return sorted(
        objectives, key=lambda one: (not one.named, not one.phases, _margin(one) if one.phases else (True, 0))
    )


def telling_phase(objective: Objective) -> str:
    """The first phase in which it was not met, else the fault phase; "" when nothing is known."""
    unmet = [phase for phase in PHASES if phase in objective.phases and not objective.phases[phase].met]
    found = unmet or [phase for phase in ("fault", "recovery", "baseline") if phase in objective.phases]
    return found[0] if found else ""


def _margin(objective: Objective) -> tuple[bool, float]:
    """Sorts first what was not met, then what came nearest to that under fault (or in the first phase there is)."""
    answers = list(objective.phases.values())
    return all(answer.met for answer in answers), -spent(objective, objective.phases.get("fault", answers[0]))


def spent(objective: Objective, answer: Window) -> float:
    """The share of what the objective allows that a window used up: 1 is the very bound, 0 is as good as can be."""
    if not answer.measured or objective.threshold is None:
        return 0.0
    value, threshold = answer.value, objective.threshold
    if objective.comparison in ("lte", "lt"):
        used, allowed = value, threshold
    elif answer.unit == "ratio":
        used, allowed = 1 - value, 1 - threshold
    else:
        used, allowed = threshold, value
    return used / allowed if allowed > 0 else float(used > allowed)


def _recovery(run: RunReport) -> Iterator[str]:
    found = run.recovery
    if found is None or not run.leases:
        return
    if not found.measured:
        yield f"How soon all was well again could not be told: {found.reason or 'no data'}."
    elif found.value == 0:
        yield "Every objective was met from the moment of release."
    else:
        yield f"Every objective was met again {duration(found.value)} after release."


def trail(objective: Objective) -> list[tuple[str, str, str]]:
    """(phase, value of the worst window, "not met" or "") for the phases that are known, in order."""
    return [
        (phase, window(answer, objective.threshold), "" if answer.met or not answer.measured else "not met")
        for phase in PHASES
        if (answer := objective.phases.get(phase)) is not None
    ]


def worst_windows(objectives: Sequence[Objective]) -> dict[str, dict[str, Window]]:
    """Per phase, the worst window of each objective by name."""
    return {
        phase: {one.name: one.phases[phase] for one in objectives if phase in one.phases}
        for phase in PHASES
        if any(phase in one.phases for one in objectives)
    }


def expectation(run: RunReport) -> tuple[str, bool]:
    """The word that was expected ("" when none was), and whether it came."""
    return run.expect, run.expect == run.word
