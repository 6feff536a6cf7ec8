"""Phase marks on the load's own clock: from now on requests belong to this phase of this run.

Every run has its own line of marks, so two runs that watch the same traffic do not disturb each other.
"""

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from chaos_mm.core.errors import BadRequest, NotFound
from chaos_mm.sli.records import PHASES

MAX_RUNS = 64
MAX_MARKS = 256
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one phase, in seconds of the load's clock; ``end`` is None while it lasts."""

    phase: str
    start: float
    end: float | None


class Marks:
    """Thread-safe; keeps the last 64 runs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, list[tuple[float, str]]] = OrderedDict()

    def put(self, run: str, phase: str) -> float:
        """Mark a phase; the same phase again changes nothing. Returns when it began. Raises BadRequest."""
        if not _RUN.fullmatch(run):
            raise BadRequest(f"run is {run[:80]!r}; allowed: 1–64 of A-Z a-z 0-9 _ . -")
        if phase not in PHASES:
            raise BadRequest(f"phase is {phase[:40]!r}; allowed: {', '.join(PHASES)}")
        with self._lock:
            line = self._runs.setdefault(run, [])
            if not line or line[-1][1] != phase:
                if len(line) >= MAX_MARKS:
                    raise BadRequest(f"run {run} has {MAX_MARKS} marks already")
                line.append((self._clock(), phase))
            self._runs.move_to_end(run)
            while len(self._runs) > MAX_RUNS:
                self._runs.popitem(last=False)
            return line[-1][0]

    def current(self) -> tuple[str, str]:
        """(run, phase) that was marked last, ("", "") when nothing was or that run has ended."""
        with self._lock:
            if not self._runs:
                return "", ""
            run = next(reversed(self._runs))
            phase = self._runs[run][-1][1]
        return ("", "") if phase == "end" else (run, phase)

    def latest(self) -> str:
        """The run that was marked last, ended or not; "" without one."""
        with self._lock:
            return next(reversed(self._runs), "")

    def spans(self, run: str) -> list[Span]:
        """The phases of a run in order. Raises NotFound for a run that was never marked."""
        with self._lock:
            line = list(self._runs.get(run, ()))
        if not line:
            raise NotFound(f"run {run[:80]!r} was never marked at this load")
        ends = [at for at, _ in line[1:]] + [None]
        return [Span(phase, at, end) for (at, phase), end in zip(line, ends, strict=True)]

    def phase_at(self, run: str, at: float) -> str:
        """The phase of a run at a moment, "" before its first mark or for an unknown run."""
        with self._lock:
            line = self._runs.get(run, [])
            return next((phase for begin, phase in reversed(line) if begin <= at), "")
