"""From facts to a verdict: pure, and in one place. Every rule says all that it finds true; the first word decides."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chaos_mm.controls.facts import Facts, Hits, Reason, Window
from chaos_mm.report.words import EXIT_CODES, WORDS, first

__all__ = ["REPLACED", "Judged", "expected_hits", "judge", "undone_by_replacement"]

_MOST_WITHOUT_DATA = 0.1  # one missed sample is not "no data", a tenth of the windows is
_EARLY_ENDS = {
    "ttl": "reached its time to live",
    "keepalive": "lost its keepalive",
    "process": "went with its point, which was replaced,",
}
REPLACED = "by replacement: the process that held it is gone, and another one serves"
_UNHEARD = "its point went before a hit of it was heard of; nothing shows that it was this fault that ended the engine"
_STILL_TRUE_WHEN_DRY = frozenset({"not_restored", "error", "interrupted"})


@dataclass(frozen=True)
class Judged:
    """The verdict: its word, every word that was true (worst first), why, and the exit status of ``chaos run``."""

    word: str
    words: tuple[str, ...]
    reasons: tuple[Reason, ...]

    @property
    def exit_code(self) -> int:
        """0 to 5."""
        return EXIT_CODES[self.word]

    @property
    def why(self) -> str:
        """The first reason of the word."""
        return next(reason for word, reason in self.reasons if word == self.word)

    def to_json(self) -> dict[str, Any]:
        """``{"verdict", "words", "reasons": [{"word", "reason"}], "exit_code"}``."""
        reasons = [reason._asdict() for reason in self.reasons]
        return {"verdict": self.word, "words": list(self.words), "reasons": reasons, "exit_code": self.exit_code}


def judge(facts: Facts) -> Judged:
    """The verdict over the facts."""
    found = [*facts.noted, *_left_behind(facts)]
    if facts.dry and not facts.refused:
        found = [one for one in found if one.word in _STILL_TRUE_WHEN_DRY]
        found.append(Reason("dry", f"a dry run (--dry {facts.dry}): nothing was injected, nothing was judged"))
    elif not facts.refused:
        found += _of_a_run(facts)
    found = list(dict.fromkeys(found)) or [Reason("passed", _passed(facts))]
    true = {one.word for one in found}
    ordered = sorted(found, key=lambda one: WORDS.index(one.word))
    return Judged(first(true), tuple(word for word in WORDS if word in true), tuple(ordered))


def expected_hits(hits: Hits) -> int:
    """The least requests that a lease must have changed to have tested anything: half of what it was to hit.

    It was to hit a share of the matching requests, its rate, and no more than its limit: who was matched beside those,
    in one batch, was to be spared. What ends the engine hits once: who was matched beside that one goes down with it.
    """
    if hits.fatal:
        return 1
    meant = hits.rate * hits.matched
    return max(1, math.ceil(0.5 * (min(meant, hits.limit) if hits.limit else meant)))


def undone_by_replacement(hits: Hits, facts: Facts) -> bool:
    """Whether what was never proven to be undone is gone with the process that held it: another one serves by now.

    That holds of what lived in the process alone, and where the two can be told apart.
    """
    return bool(hits.undo) and hits.gone and not _not_replaced(hits, facts)


def _of_a_run(facts: Facts) -> Iterator[Reason]:
    if not facts.begun:
        yield Reason("error", "the control chaos_mm.controls.verdict was armed, but never began: is its scope set?")
        return
    if facts.harmless:
        yield Reason("not_applied", "the file injects nothing, so nothing was tested")
    yield from _not_injected(facts)
    for hits in facts.hits:
        yield from _of_lease(hits, died=hits.struck_down and not _not_replaced(hits, facts))
    yield from _too_little(facts)
    for window in facts.windows:
        yield from _of_window(window, facts.cut)
    for window in facts.guarded:
        yield from _broken(window)
    if _recovery_unseen(facts):
        yield Reason("no_data", "no recovery was measured: release the fault in the method, not in the rollbacks alone")
    if not (facts.windows or facts.judged_by_toolkit):
        yield Reason("no_data", "nothing was measured: the file names no objective and has no steady-state hypothesis")


def _left_behind(facts: Facts) -> Iterator[Reason]:
    residue = facts.residue
    if residue.live:
        yield Reason("not_restored", f"{residue.live} of this run's leases still live: {residue.reason}")
    for text in residue.unproven:
        yield Reason("not_restored", f"nobody can vouch that the fault is gone: {text}")
    if facts.target_gone:
        yield Reason("not_restored", "the target did not come back: it answered at the start and does not at the end")
    for hits in facts.hits:
        if hits.undo and not undone_by_replacement(hits, facts):
            since = f"; its process was replaced since, but {_not_replaced(hits, facts)}" if hits.gone else ""
            yield Reason("not_restored", f"the undo of {hits.fault} ({hits.lease!r}) is not proven: {hits.undo}{since}")
        if hits.struck_down and (why := _not_replaced(hits, facts)):
            yield Reason("not_restored", f"restart needed after {hits.fault} ({hits.lease!r}): {why}")


def _not_replaced(hits: Hits, facts: Facts) -> str:
    """Why nobody can say that another process serves where this fault ended one; "" when one does."""
    if facts.target_answers is None:
        return "nothing answered at the target's address at the start, so nobody can vouch for a replacement"
    if not facts.target_answers:
        return "the target does not answer"
    if facts.target_replaced or hits.replaced:
        return ""
    if facts.target_replaced is None:
        return "whether another process serves cannot be told: its /metrics has no process_start_time_seconds"
    return "the process that served at the start still serves"


def _not_injected(facts: Facts) -> Iterator[Reason]:
    injected = {hits.lease for hits in facts.hits}
    if any(one.word == "not_applied" for one in facts.noted):
        return
    for lease in facts.planned:
        if lease not in injected:
            yield Reason("not_applied", f"{lease!r} was never injected")


def _of_lease(hits: Hits, *, died: bool = False) -> Iterator[Reason]:
    """``died``: its engine may have gone down by it, as was said beforehand, and another one serves."""
    went = died and hits.ended_by == "process"
    if hits.ended_by in _EARLY_ENDS and not went:
        yield Reason("error", f"the lease {hits.lease!r} {_EARLY_ENDS[hits.ended_by]} before its release")
    elif hits.ended_by == "stop":
        yield Reason("interrupted", f"the lease {hits.lease!r} was ended by 'chaos-mm stop'")
    least = expected_hits(hits)
    if hits.mode == "observe":
        yield Reason("not_exercised", f"{hits.fault} was injected with mode: observe, which harms nothing")
    elif hits.applied < least:
        text = f"{hits.fault} hit {hits.applied} of {hits.matched} matching requests; at least {least} count as a test"
        why = hits.failed or (_UNHEARD if went else "")
        yield Reason("not_exercised", f"{text}: {why}" if why else text)


def _too_little(facts: Facts) -> Iterator[Reason]:
    for name, least in facts.min_achieved.items():
        told = [hits for hits in facts.hits if name in hits.achieved]
        if facts.hits and not told:
            yield Reason("not_exercised", f"no fault says what it achieved in {name}; at least {least:g} is wanted")
        for hits in told:
            mean = hits.achieved[name]
            if not mean >= least:
                yield Reason("not_exercised", f"{hits.fault} achieved {name} {mean:.4g}; at least {least:g} is wanted")


def _of_window(window: Window, cut: str) -> Iterator[Reason]:
    baseline = window.phase == "baseline"
    yield from _broken(window)
    lacking = not window.measured or window.without_data > _MOST_WITHOUT_DATA * window.windows
    if lacking and window.phase != cut:  # a phase that was cut short owes no data
        yield Reason("not_steady" if baseline else "no_data", _lacking(window))


def _broken(window: Window) -> Iterator[Reason]:
    if window.measured and not window.met:
        yield Reason("not_steady" if window.phase == "baseline" else "deviated", f"{window.phase}: {window.reason}")


def _recovery_unseen(facts: Facts) -> bool:
    """Whether a fault hit, and nobody looked whether the service came back, though the run went to its end."""
    phases = {window.phase for window in facts.windows}
    return bool(facts.hits) and "fault" in phases and "recovery" not in phases and not facts.cut


def _lacking(window: Window) -> str:
    if not window.measured:
        return f"{window.phase}: {window.reason or f'{window.objective}: no data'}"
    share = f"{window.without_data} of {window.windows} windows have no data"
    return f"{window.phase}: {window.objective}: {share}; at most a tenth may"


def _passed(facts: Facts) -> str:
    phases = {window.phase for window in facts.windows}
    objectives = {window.objective for window in facts.windows}
    hit = [f"{hits.fault} hit {hits.applied} of {hits.matched} matching requests" for hits in facts.hits]
    replaced = [
        f"the undo of {one.fault} is proven {REPLACED}" for one in facts.hits if undone_by_replacement(one, facts)
    ]
    them = "1 objective was" if len(objectives) == 1 else f"{len(objectives)} objectives were"
    where = "1 phase" if len(phases) == 1 else f"{len(phases)} phases"
    met = [f"{them} met in every window of {where}"] if phases else []
    steady = ["the steady state was met"] if facts.judged_by_toolkit and not met else []
    return "; ".join([*hit, *met, *steady, *replaced, "nothing is left behind"])
