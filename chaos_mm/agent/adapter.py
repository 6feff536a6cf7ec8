"""What an engine's adapter tells the control process about its engine; the seams themselves talk to a ``Runtime``."""

from collections.abc import Mapping
from typing import Any, Protocol

from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.fault import Effect, Fault, Seam
from chaos_mm.core.lease import Lease

__all__ = ["Adapter", "NotYet"]


class NotYet(ChaosMMError):
    """An undo that cannot be done at this moment (a cache that is in use): it is tried again until it is."""

    kind = "not_yet"


class Adapter(Protocol):
    """One engine, as the control process knows it. Inherit from it: what you do not define has the answer given here.

    All but ``prove``, ``after_release`` and the facts for ``GET /agent`` are called under the lease book's lock and
    answer at once.
    """

    name: str
    """Such as ``transformers`` or ``vllm``."""
    version: str
    facts: Mapping[str, Any]
    """Strict JSON: ``backend``, ``runner``, ``model``, ``device`` and so on."""
    seams: frozenset[Seam]
    """Seams that this engine has, in whichever process."""
    batch_wide: frozenset[Seam] = frozenset()
    """Seams where a delay or an exception hits whoever is in the batch, selected or not."""
    loads: int = 0
    """How many models it has served so far: what was proven of one says nothing of the next."""
    fatal: Mapping[Effect, str] = {}
    """Effects that this engine does not survive, each with what must be done: ``restart needed: …``."""

    passed: frozenset[Seam] = frozenset((Seam.KV, Seam.ATTENTION, Seam.EMBEDDING))
    """Seams that a request passes: proven only when ``runtime.fired`` was called there while ``prove`` ran."""

    def refusal(self, fault: Fault) -> str:
        """Why this engine cannot run the fault, whose seam it may not even have; empty when it can."""
        return ""

    def check(self, fault: Fault, params: Mapping[str, Any]) -> None:
        """What this engine alone can tell of parameters. Raises InvalidParams naming what it does not have."""

    def seam_reason(self, seam: Seam) -> str:
        """Why this engine does not have a seam, by name, for ``GET /agent``; empty: no such seam exists there."""
        return ""

    def selectable(self, fault: Fault) -> bool:
        """Whether a selector can pick the requests it hurts, in an engine where its seam is batch-wide or not."""
        return fault.seam not in self.batch_wide

    def undo_note(self, fault: Fault) -> str:
        """How its harm is undone here, in words: ``bytes, element by element, then blocks evicted``."""
        return ""

    def prove(self, seam: Seam) -> str:
        """Send the agent's own canary through the seam; empty when that worked, else why not.

        May take seconds; called in a thread of its own. Meanwhile the page is armed without any lease, so that the
        engine's processes call ``fired``; for seams in ``passed`` it must have been called, whatever this says.
        """
        return ""

    def undo_now(self) -> None:
        """Some process has not undone a lease yet that has ended: have it done where the engine takes no step.

        May take seconds; called in a thread of its own, twice a second until nothing is waited for. Raises whatever
        keeps it from being done now.
        """
        return None

    def after_release(self, lease: Lease) -> Mapping[str, float]:
        """After every process has put its bytes back: evict what was derived from the damage, flush, check by body.

        May take seconds; called in a thread of its own. ``lease.engine`` holds what workers noted. The figures stand in
        the lease's undo. Raises NotYet to be called again (for a minute), ChaosMMError with the reason when the clean
        state cannot be proven.
        """
        return {}

    def memory(self) -> Mapping[str, Any]:
        """``device``, ``used_bytes``, ``free_bytes`` and so on for ``GET /agent``; what is not known is left out."""
        return {}

    def kv(self) -> Mapping[str, Any]:
        """``usage_ratio``, ``hit_ratio``, ``blocks_total``, ``blocks_free``; what is not known is left out."""
        return {}
