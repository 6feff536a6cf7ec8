"""What happened in a run, as far as its verdict needs to know: plain data, collected elsewhere, judged by ``judge``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Facts", "Hits", "Reason", "Residue", "Window"]


class Reason(NamedTuple):
    """One thing that was true: a word of ``chaos_mm.report.words`` and why, in a sentence that stands alone."""

    word: str
    reason: str


@dataclass(frozen=True)
class Hits:
    """One lease at its end. ``rate``: the share of matching requests it was to hit; ``achieved``: means by name.

    ``undo``: why its undo is not proven, "" where it is or none was needed. ``fatal``: why the engine must be restarted
    after it; ``replaced``: the point itself saw another process serve in the place of the one that it ended.
    ``failed``: why the fault did not come to be. ``limit``: the most requests it was to hit, 0 for no such limit.
    ``gone``: it lived in the process that it hurt, and the point there is another process since; with it went whatever
    was not undone.
    """

    lease: str
    fault: str
    matched: int = 0
    applied: int = 0
    rate: float = 1.0
    mode: str = "inject"
    ended_by: str = "release"
    achieved: Mapping[str, float] = field(default_factory=dict)
    undo: str = ""
    fatal: str = ""
    replaced: bool = False
    failed: str = ""
    limit: int = 0
    gone: bool = False

    @property
    def struck_down(self) -> bool:
        """Whether it may have ended the engine: a point that lives inside goes with it and tells no more."""
        return bool(self.fatal) and self.mode == "inject" and (self.applied > 0 or self.ended_by == "process")


@dataclass(frozen=True)
class Window:
    """The worst window of one objective in one phase that was begun.

    ``measured``: whether any window could be judged; ``windows`` of which ``without_data`` could not.
    """

    objective: str
    phase: str
    measured: bool
    met: bool
    windows: int = 1
    without_data: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Residue:
    """What is left: ``live`` leases of this run, those being undone among them, and those of which nobody can say that
    they are gone.
    """

    live: int = 0
    unproven: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Facts:
    """Everything that decides a verdict.

    ``noted``: what already has a word: refusals, signals, guards, failed injections, a crash, the toolkit's results.
    ``refused``: it was not allowed to begin. ``begun``: it did begin. ``dry``: "actions" or "activities" of a dry run.
    ``planned``: names of the leases that the file injects. ``cut``: the phase in which it was stopped, "" when none.
    ``harmless``: nothing in its method could hurt anybody. ``judged_by_toolkit``: it has a hypothesis with probes.
    ``guarded``: worst windows of guards that the file does not name and that may not be broken for a moment.
    ``target_gone``: it answered at the start, not at the end. ``target_answers``: as it did at the start; None where
    nothing answered then. ``target_replaced``: another process serves than at the start; None where nobody can tell.
    """

    noted: tuple[Reason, ...] = ()
    refused: bool = False
    begun: bool = True
    dry: str = ""
    planned: tuple[str, ...] = ()
    harmless: bool = False
    hits: tuple[Hits, ...] = ()
    min_achieved: Mapping[str, float] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()
    cut: str = ""
    judged_by_toolkit: bool = False
    residue: Residue = Residue()
    guarded: tuple[Window, ...] = ()
    target_gone: bool = False
    target_answers: bool | None = None
    target_replaced: bool | None = None
