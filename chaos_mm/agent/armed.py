"""One live lease as a process of the engine sees it: who is struck, how often, and what is counted."""

import contextlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from chaos_mm.agent.board import Board, LeaseColumn
from chaos_mm.agent.layout import Column, LeaseWord, lease_at
from chaos_mm.agent.ledger import Ledger
from chaos_mm.agent.meant import meant
from chaos_mm.agent.who import OWN_PREFIX
from chaos_mm.core.blast_radius import BlastRadius, RequestInfo
from chaos_mm.core.engine import NOT_NOW, Raise
from chaos_mm.core.fault import Fault, Outcome, Seam
from chaos_mm.core.rng import Rng

if TYPE_CHECKING:
    from chaos_mm.agent.runtime import Runtime

__all__ = ["Armed"]

logger = logging.getLogger("chaos_mm.agent")
_REMEMBERED: Final = 4096  # requests a lease; finished ones are forgotten earlier
_WAIT_SECONDS: Final = 0.01
_ONCE: Final = frozenset((Seam.KV,))
"""Seams where one strike harms the whole request: elsewhere a fault is asked again at each layer, step or picture."""


@dataclass
class _Known:
    """What this lease knows of a request: whether rate picked it, and what became of it."""

    hit: bool
    claimed: bool = False
    struck: int = 0
    failed: bool = False


class Armed:
    """A lease in this process. ``params`` are bound; ``state`` is the fault's own, kept for the whole lease.

    Use ``matches``, ``chosen`` and ``strike`` at a seam, in this order; from any thread.
    """

    def __init__(self, runtime: "Runtime", slot: int, spec: Mapping[str, Any], fault: Fault) -> None:
        """``spec`` as the board holds it."""
        self.serial: int = spec["serial"]
        self.name: str = spec["name"]
        self.slot, self.fault, self.seam = slot, fault, fault.seam
        self.params: dict[str, Any] = dict(spec["params"])
        self.seed: int = spec["seed"]
        self.owner: str = spec["owner"]
        self.radius = BlastRadius.from_json(spec["radius"])
        self.observe = spec["mode"] == "observe"
        self.noop = fault.is_noop(self.params)
        self.repeats = fault.seam not in _ONCE
        self.state: dict[str, Any] = {}
        self.ledger = Ledger(self.serial)
        self.failure = ""
        self.later = False
        """Set by a hold that hurts nobody by standing there (allocations shall fail): ``hit`` or ``count`` tell."""
        self._whole = _Known(True)
        self._runtime = runtime
        self._board: Board = runtime.page
        self._column: LeaseColumn = runtime.column(slot)
        self._words, self._at = runtime.page.words, lease_at(slot)
        self.generation: int = self._words[self._at + LeaseWord.GENERATION]
        """Of the board, from which on the lease is there: what was decided before it knows nothing of the lease."""
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.RLock()
        self._inside = 0
        self._over = False
        self._failed = False
        self._column.clear()
        self._column.put_state(self.serial, Column.LIVE)

    @property
    def live(self) -> bool:
        """Whether it may still harm: by its own deadline, whoever else is alive."""
        words, at = self._words, self._at
        if self._over or words[at] <= time.monotonic_ns():  # the deadline stands first in its slot
            return False
        serial: int = words[at + LeaseWord.SERIAL]
        return serial == self.serial

    def matches(self, request: RequestInfo) -> bool:
        """Whether the selector meets the request; counts ``matched`` the first time it does.

        A canary is known by its mac alone, wherever the engine wraps its id; ``request.canary`` is not believed.
        """
        who = self._runtime.identify(request.id)
        if not (self.radius.selector.live or who.canary) or request.id.startswith(OWN_PREFIX):
            return False
        if any(value not in request.modalities for _, value in self.radius.selector.terms):
            return False
        if who.id not in self._known:
            self._meet(who.id)
        return True

    def chosen(self, request: RequestInfo) -> bool:
        """Whether the fault shall act on this matched request now: mode, dose, rate, limit, not done yet."""
        if self.observe or self.noop or not self.live or not self.matches(request):
            return False
        known = self._known.get(self._runtime.identify(request.id).id)
        if known is None or not known.hit or known.failed or (known.struck and not self.repeats):
            return False
        return known.claimed or not self.radius.limit or self._claims() < self.radius.limit

    def strike(self, value: Any, request_id: str, part: str, site: str) -> Any:
        """Run the fault on what the seam holds, guarded; what the seam shall go on with.

        ``part`` names the occasion (layer, step), so that draws depend on nothing else; ``site`` is what evidence
        counts. The fault's ``Raise`` leaves as its error, marked as meant; anything else that it raises counts as
        ``errored``, what it had written is put back, and ``value`` returns as it was.
        """
        who = self._runtime.identify(request_id)
        with self._entered(who.id) as known:
            if known is None:
                return value
            made = self._apply(value, who.id, part, known)
            if made is NOT_NOW:
                return value
            if isinstance(made, Raise):
                self._struck(known, who.shown, site, made.achieved)
                self._runtime.flush(self)  # the process may not live long after this
                raise meant(made.error)
            made, figures = made if isinstance(made, Outcome) else (made, {})
            self._struck(known, who.shown, site, figures)
            return value if made is None else made

    def write(
        self,
        view: Any,
        new: Any,
        *,
        locate: Callable[[], Any] | None = None,
        on_restore: Callable[[int, int], None] | None = None,
        invalidate: Callable[[], int] | None = None,
    ) -> int:
        """``runtime.undo.write`` for this lease: what a ``KvPart.write`` calls."""
        saved = self._runtime.undo.write(
            view, new, lease=self.key, locate=locate, on_restore=on_restore, invalidate=invalidate
        )
        self.book(Column.SAVED, saved)
        return saved

    def count(self, request_id: str, site: str, figures: Mapping[str, float] | None = None) -> None:
        """Count a strike that the adapter made itself, for holds that pick requests (a masked key, a preemption)."""
        who = self._runtime.identify(request_id)
        with self._lock:
            known = self._known.get(who.id) or self._meet(who.id)
            self._claim(known)
            self.mark(Column.STRUCK)
            self._struck(known, who.shown, site, figures or {})

    def broke(self, request_id: str, error: Exception) -> None:
        """What a fault left to be done later failed: ``errored`` counts, and the request is left alone from now on."""
        who = self._runtime.identify(request_id)
        self._broke(self._known.get(who.id) or self._meet(who.id), error)

    def note(self, key: str, value: Any) -> None:
        """Tell the control process something small (strict JSON, up to about 400 characters): appended to
        ``lease.engine[key]``, which ``Adapter.after_release`` may read.
        """
        self.ledger.note("note", {key: value})

    def wait(self, seconds: float) -> float:
        """Sleep so long, at most until the lease ends; how long it truly was."""
        began = time.monotonic()
        until = began + seconds
        while (left := until - time.monotonic()) > 0 and self.live:
            time.sleep(min(left, _WAIT_SECONDS))
        return time.monotonic() - began

    def rng(self, request_id: str, part: str) -> Rng:
        """The stream of this lease for one part of one request (plain id), as ``strike`` gives it to the fault."""
        return Rng.derive(self.seed, request_id, part, f"{self.fault.name} {self.name}")

    @property
    def key(self) -> Hashable:
        """What ``runtime.undo`` knows the lease by."""
        return self.serial

    def forget(self, request: str) -> None:
        """A request (plain id) has finished."""
        self._known.pop(request, None)

    def close(self) -> bool:
        """Never strike again; False while a strike is still at work."""
        with self._lock:
            self._over = True
            return self._inside == 0

    def book(self, word: int, count: int = 1) -> None:
        """Add to a counter of the lease."""
        with self._lock:
            if count and self._column.serial == self.serial:  # else a new control process has given the slot away
                self._column.add(word, count)

    def fail(self, reason: str) -> None:
        """Its undo is not proven; the first reason stays."""
        self.failure = self.failure or reason

    def refused(self, reason: str) -> None:
        """Its seam cannot give it what it acts on: it counts as ``errored`` and is not tried again."""
        if not self._failed:
            self._failed = True
            self.book(Column.ERRORED)
            self.ledger.note("error", reason[:200])
            logger.error("%s cannot begin: %s", self.fault.name, reason.partition(":")[0])

    @property
    def hopeless(self) -> bool:
        """Whether ``refused`` was said."""
        return self._failed

    def mark(self, state: int) -> None:
        """Tell the control process how far it is."""
        if self._column.serial == self.serial:
            self._column.put_state(self.serial, state)

    @property
    def struck(self) -> bool:
        """Whether it has done, or tried to do, anything here."""
        return self._column.serial == self.serial and self._column.state != Column.LIVE

    def struck_hold(self, figures: Mapping[str, float], site: str) -> None:
        """A hold has begun. One that picks no requests is one match and one application, unless it hurts later."""
        if not (self.fault.selectable or self.later):
            self.hit(site, figures)
            return
        with self._lock:
            self.ledger.strike("", "" if self.later else site, figures)

    def hit(self, site: str, figures: Mapping[str, float]) -> None:
        """A hold that picks no requests does harm: one match and one application, however often it does."""
        with self._lock:
            if not self._whole.struck:
                self._column.add(Column.MATCHED)
            self._struck(self._whole, "", site, figures)

    def _meet(self, request: str) -> _Known:
        with self._lock:
            known = self._known.get(request)
            if known is not None:
                return known
            known = self._known[request] = _Known(self.radius.hits(self.seed, self.name, request))
            self._column.add(Column.MATCHED)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
            return known

    @contextlib.contextmanager
    def _entered(self, request: str) -> Iterator[_Known | None]:
        """Hold the undo off while a strike is at work; None where there must be none."""
        with self._lock:
            known = self._known.get(request) or self._meet(request)
            free = self.live and not (self.observe or self.noop or known.failed) and self._claim(known)
            if free:
                self._inside += 1
                if self._column.state == Column.LIVE:
                    self.mark(Column.STRUCK)  # before anything changes, or a crash would leave no trace
        try:
            yield known if free else None
        finally:
            if free:
                with self._lock:
                    self._inside -= 1
                    self._unclaim(known)

    def _claim(self, known: _Known) -> bool:
        """Count the request against the limit that all workers share."""
        if known.claimed or not self.radius.limit:
            return True
        with self._board.locked() as got:
            if not got or self._claims() >= self.radius.limit:
                return False
            self._column.add(Column.CLAIMED)
            known.claimed = True
            return True

    def _unclaim(self, known: _Known) -> None:
        if known.claimed and not known.struck:
            known.claimed = False
            self._column.add(Column.CLAIMED, -1)

    def _claims(self) -> int:
        columns = (worker.column(self.slot) for worker in self._board.workers())
        return sum(column.get(Column.CLAIMED) for column in columns if column.serial == self.serial)

    def _apply(self, value: Any, request: str, part: str, known: _Known) -> Any:
        """The fault's answer, or NOT_NOW where it failed."""
        written = self._runtime.undo.written(self.key)
        try:
            return self.fault.apply(value, self.rng(request, part), **self.params)
        except Exception as error:  # whatever a fault raises must not become the engine's own error
            self._broke(known, error)
            undone = self._runtime.undo.restore(self.key, since=written)
            if undone.reason:
                self.fail(undone.reason)
            return NOT_NOW

    def _broke(self, known: _Known, error: Exception) -> None:
        if not known.failed:
            known.failed = True
            self.book(Column.ERRORED)
        self.ledger.note("error", f"{type(error).__name__}: {error}"[:200])
        logger.error("%s failed: %s", self.fault.name, type(error).__name__)

    def _struck(self, known: _Known, shown: str, site: str, figures: Mapping[str, float]) -> None:
        with self._lock:
            now = time.monotonic_ns()
            if not known.struck:
                if not self._column.get(Column.FIRST_NS):
                    self._column.set(Column.FIRST_NS, now)
                self._column.add(Column.APPLIED)
            known.struck += 1
            self._column.set(Column.LAST_NS, now)
            self.ledger.strike(shown, site, figures)
