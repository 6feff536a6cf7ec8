"""One service under supervision: started, awaited, brought back when it dies, given up when it dies too often."""

from collections import deque
from collections.abc import Callable
from pathlib import Path

from chaos_mm.demo.child import Child, Spec
from chaos_mm.demo.state import ServiceState

__all__ = ["Service", "ServiceFailed"]

_DEATHS_ALLOWED = 5
_DEATHS_WINDOW_SECONDS = 60.0
_LAST_LINES = 6


class ServiceFailed(Exception):
    """A service cannot be had; the text says which, how it ended and what it wrote last."""


class Service:
    """The state machine of one Spec. ``step`` looks once and never waits.

    ``clock`` is monotonic seconds; ``start`` makes a Child (a seam for tests).
    """

    def __init__(
        self, spec: Spec, logs: Path, clock: Callable[[], float], start: Callable[[Spec, Path], Child] = Child
    ) -> None:
        self.spec = spec
        self.shown = ServiceState(spec.name, spec.url, state="waiting")
        self._log = logs / f"{spec.name}.log"
        self._clock, self._start = clock, start
        self._child: Child | None = None
        self._spare: Child | None = None
        self._promoted = False
        self._since = 0.0
        self._deaths: deque[float] = deque(maxlen=_DEATHS_ALLOWED)

    @property
    def up(self) -> bool:
        """Serving, and its spare ready to take over (once it has one: the next comes a look later)."""
        return self.shown.state == "up" and (self._spare is None or self._spare.standing_by)

    def step(self, others_up: set[str]) -> None:
        """Look at the processes and do the next thing. Raises ServiceFailed."""
        if self._child is None:
            if others_up.issuperset(self.spec.after):
                self._begin()
            return
        self._watch_spare()
        how = self._child.ended()
        if how:
            self._child_died(how)
        elif self.shown.state != "up":
            self._start_first_spare()
            self._await_ready()

    def terminate(self) -> None:
        """Ask every process of it to end."""
        for child in self._children():
            child.terminate()

    def end(self, within_seconds: float) -> None:
        """See every process of it gone."""
        for child in self._children():
            child.end(within_seconds)
        self._child = self._spare = None

    def _children(self) -> list[Child]:
        return [child for child in (self._child, self._spare) if child is not None]

    def _begin(self) -> None:
        self._child = self._start(self.spec, self._log)
        self._waiting("starting")

    def _start_first_spare(self) -> None:
        # A look later than the first process: two that begin in one tick of the kernel's clock have the same start
        # time, by which a run tells that another process took over.
        if self.spec.spare and self._spare is None and self.shown.state == "starting":
            self._spare = self._start(self.spec, self._log)

    def _waiting(self, state: str) -> None:
        assert self._child is not None
        self.shown.state, self.shown.pid = state, self._child.pid
        self._promoted, self._since = False, self._clock()

    def _await_ready(self) -> None:
        assert self._child is not None
        if self.spec.spare and self._child.standing_by and not self._promoted:
            self._child.promote()
            self._promoted = True
        if self._child.ready is not None:
            self.shown.state = "up"
            if self.shown.restarts:
                self.shown.down_seconds = round(self._clock() - self._since, 3)
        elif self._clock() - self._since > self.spec.ready_within_seconds:
            raise ServiceFailed(self._words(f"was not ready within {self.spec.ready_within_seconds:g} s"))

    def _child_died(self, how: str) -> None:
        assert self._child is not None
        self.shown.last_exit = how
        if self.shown.state == "starting":
            raise ServiceFailed(self._words(f"ended while it started ({how})"))
        self._count_death(how)
        self._child.end(0)
        self._child, spare = self._spare or self._start(self.spec, self._log), self._spare
        # The next spare is started only once this one serves: it must not take the processor from it.
        self._spare = None
        self.shown.restarts += 1
        self._waiting("restarting")
        if spare is not None:
            self._await_ready()

    def _watch_spare(self) -> None:
        if not self.spec.spare or self.shown.state != "up":
            return
        how = self._spare.ended() if self._spare is not None else ""
        if how:
            assert self._spare is not None
            self._spare.end(0)
            self._count_death(f"spare: {how}")
        if how or self._spare is None:
            self._spare = self._start(self.spec, self._log)

    def _count_death(self, how: str) -> None:
        now = self._clock()
        self._deaths.append(now)
        if len(self._deaths) == _DEATHS_ALLOWED and now - self._deaths[0] < _DEATHS_WINDOW_SECONDS:
            raise ServiceFailed(self._words(f"died {_DEATHS_ALLOWED} times in a minute (last: {how})"))

    def _words(self, what: str) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
        tail = "".join(f"\n  | {line}" for line in lines)
        return f"{self.spec.name} {what}; its log {self._log} ends:{tail or ' (empty)'}"
