"""How long after the release was every objective met again, and stayed met?"""

from collections.abc import Mapping, Sequence

from chaos_mm.sli.indicators import INDICATORS, Look, Selection, conclude, conflict, looks, own_selection
from chaos_mm.sli.measurement import Measurement, measured, no_data
from chaos_mm.sli.objectives import Judgement, Objective
from chaos_mm.sli.records import Record
from chaos_mm.sli.windows import sliding


def selection(filters: Mapping[str, str]) -> Selection:
    """The records that an objective's filters choose."""
    return Selection(filters.get("audience", ""), filters.get("modality", ""), filters.get("kind", ""))


def recovery_seconds(
    records: Sequence[Record],
    objectives: Sequence[Objective],
    *,
    released_at: float,
    until: float,
    step_seconds: float = 0.25,
) -> Measurement:
    """Seconds from release to the first moment from which every objective holds in each of its windows up to ``until``.

    Windows begin at that moment, so a service that is back at once recovers in 0 s. Without a whole window after the
    release, or when an objective is still broken in the last one, there is no recovery to report: no data, with the
    objective's own reason. Objectives that records cannot answer are left out.
    """
    chosen = [one for one in objectives if one.sli in INDICATORS]
    if not chosen:
        return no_data("no objective that records can answer", "s", 0, max(0.0, until - released_at))
    about = {one.name: _about(one, records, released_at, until) for one in chosen}
    worst, samples = 0.0, len({record.id for found in about.values() for record in found})
    for objective in chosen:
        if until - released_at < objective.window_seconds:
            lasted = max(0.0, until - released_at)
            reason = f"{lasted:.0f} s after the release are less than one window of {objective.name}"
            return no_data(f"{reason}, {objective.window_seconds:g} s", "s", samples, lasted)
        back, last = _met_from(objective, about[objective.name], released_at, until, step_seconds)
        if back is None:
            return no_data(f"not recovered: {last.reason}", "s", samples, until - released_at)
        worst = max(worst, back - released_at)
    return measured(worst, "s", samples, until - released_at)


def _about(objective: Objective, records: Sequence[Record], start: float, end: float) -> list[Record]:
    """The records that the objective is about: chosen once, not once a window."""
    wanted = own_selection(objective.sli, selection(objective.filters))
    return [record for record in records if start <= record.scheduled_at < end and wanted.meets(record)]


def _met_from(
    objective: Objective, records: Sequence[Record], start: float, end: float, step_seconds: float
) -> tuple[float | None, Judgement]:
    """(start of the unbroken run of met windows that reaches the end, judgement of the last window)."""
    wanted, limit = selection(objective.filters), objective.filters.get("threshold_seconds")
    strange = conflict(objective.sli, wanted)
    if strange:
        return None, Judgement(False, f"{objective.name}: no data: {strange}")
    chosen = looks(objective.sli, records, wanted, None if limit is None else float(limit))
    back: float | None = None
    last = Judgement(False, f"{objective.name}: no window")
    before: Sequence[Look] | None = None
    for begin, inside in sliding(chosen, start, end, objective.window_seconds, step_seconds):
        if before is None or inside != before:  # an SLI of the same records is the same
            last = objective.judge(conclude(objective.sli, inside, objective.window_seconds).to_json())
        before = inside
        back = (begin if back is None else back) if last.met else None
    return back, last
