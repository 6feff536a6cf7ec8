"""The run of this process: its id, the leases it holds, the phase it is in, and whether somebody watches over it.

``chaos_mm.controls.verdict`` makes it, ``chaos_mm.actions`` ask for it: without a watched run nothing is injected,
since Chaos Toolkit goes on when a control is missing or broken.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from chaoslib.exceptions import ActivityFailed

from chaos_mm.controls.facts import Reason
from chaos_mm.controls.names import open_client
from chaos_mm.controls.stopping import StopFlag
from chaos_mm.core.canary import new_run_id
from chaos_mm.core.errors import ChaosMMError, PointUnreachable
from chaos_mm.core.fault import Point

__all__ = ["HEARTBEAT_SECONDS", "HeldLease", "Run", "current", "install", "require", "uninstall"]

logger = logging.getLogger("chaostoolkit")
HEARTBEAT_SECONDS = 5.0  # older than this, the guard counts as dead and nothing is injected
GONE = "process"  # the point that answers now knows nothing of the lease: it was replaced, and is clean
PHASES = ("baseline", "fault", "recovery", "end")


class Events(Protocol):
    """Where a run tells what happens."""

    def write(self, event: str, **fields: Any) -> None:
        """Never blocks, never raises; from any thread and from a signal handler."""


class NoEvents:
    """Nobody listens: a run without a folder."""

    def write(self, event: str, **fields: Any) -> None:
        """Nothing."""


@dataclass(eq=False)
class HeldLease:
    """A lease that this run asked for, and what is known of it.

    ``told``: the last word of each of its points, by URL; ``evidence`` is their sum. ``given_up`` from the first try to
    release it: it gets no more keepalives, so it ends even where that try failed. ``gone``: each process that had not
    proven its undo when last heard of has been replaced since.
    """

    name: str
    fault: str
    target: str
    point: str
    urls: tuple[str, ...]
    keepalive_seconds: float
    evidence: dict[str, Any] = field(default_factory=dict)
    given_up: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    told: dict[str, dict[str, Any]] = field(default_factory=dict)
    gone: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @property
    def inside(self) -> bool:
        """Whether it lives in the process that it hurts, and goes with it."""
        return self.point == Point.AGENT.value

    @property
    def fatal(self) -> str:
        """Why the engine must be restarted after it, as its point said beforehand; "" where it need not."""
        return str((self.evidence.get("engine") or {}).get("fatal") or "")

    def learn(self, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Keep what points say of it, by URL, and answer what is known now. From any thread, and in any order: of two
        answers of one point the later one counts, by the point's own clock.

        It is kept while the lease lives too, as a point that dies with its engine tells no more.
        """
        with self._lock:
            for url, told in found.items():
                if _number(told, "now") >= _number(self.told.get(url, {}), "now"):
                    self.told[url] = dict(told)
            self._sum()
            return self.evidence

    def end(self, answers: Mapping[str, Mapping[str, Any] | None], troubled: bool) -> None:
        """Keep what a release told, by URL; None is a point that knows nothing of it: it was replaced, and is clean.

        ``troubled``: some point did not answer. While the lease may live there, nothing is said of how it ended.
        """
        with self._lock:
            first = not self.released.is_set()
            self.learn({url: told for url, told in answers.items() if told})
            for url in (url for url, told in answers.items() if not told and first):
                known = self.told.get(url)
                if known is not None and not known.get("ended_by"):
                    self.told[url] = {**known, "ended_by": GONE}
                elif known is None and not self.told and not troubled:
                    self.evidence = {**self.evidence, "ended_by": GONE}
            if not troubled:
                self.released.set()
            self._sum()

    def _sum(self) -> None:
        known = summed(list(self.told.values())) or self.evidence
        if self.given_up.is_set() and not self.released.is_set():
            known = {**known, "state": "unknown", "ended_by": ""}
        self.evidence = {**known, "released": self.released.is_set()}


class Run:
    """One experiment under way. ``beat`` is the guard's last sign of life, on ``clock``.

    ``notes``: what was found true on the way and has a word of the verdict. ``nudged``: the next SIGUSR1 is our own.
    ``halted_by``: the objective whose guard stopped it. ``chosen``: (point, its URLs) that answered when it was armed,
    by (fault, the point that the file names or ""). ``fatal``: why the engine must be restarted, by fault.
    """

    def __init__(
        self,
        title: str,
        experiment: str = "",
        configuration: Mapping[str, Any] | None = None,
        secrets: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.id = new_run_id()
        self.title = title
        self.experiment = experiment
        self.started = datetime.now(UTC).isoformat()
        self.configuration = dict(configuration or {})
        self.secrets = dict(secrets or {})
        self.clock = clock
        self.stop = StopFlag()
        self.unwinding = threading.Event()
        self.closed = threading.Event()
        self.traffic_ended = threading.Event()
        self.traffic_ended.set()
        self.events: Events = NoEvents()
        self.notes: list[Reason] = []
        self.nudged = False
        self.halted_by = ""
        self.chosen: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {}
        self.fatal: dict[str, str] = {}
        self.beat = float("-inf")
        self.leases: dict[str, HeldLease] = {}
        self.phase = ""
        self.begun: list[str] = []
        self.phase_since = clock()
        self._lock = threading.RLock()

    @property
    def watched(self) -> bool:
        """Whether the guard gave a sign of life lately."""
        return self.clock() - self.beat < HEARTBEAT_SECONDS and not self.closed.is_set()

    def note(self, word: str, reason: str) -> None:
        """Something that the verdict must say. Takes no lock: a signal handler may call it."""
        self.notes.append(Reason(word, reason))

    def request_stop(self, word: str, reason: str) -> None:
        """End the run, from any thread: the guard releases at once and interrupts the engine."""
        if not self.stop.is_set():
            self.note(word, reason)
            self.events.write("stop", reason=reason, word=word)
        self.stop.set()

    def enter(self, phase: str) -> bool:
        """Go on to a later phase; False when the run is there already or beyond."""
        with self._lock:
            if PHASES.index(phase) <= (PHASES.index(self.phase) if self.phase else -1):
                return False
            self.phase, self.phase_since = phase, self.clock()
            self.begun.append(phase)
        self.events.write("phase", phase=phase)
        return True

    def phase_left(self, seconds: float) -> float:
        """Seconds until the phase has lasted ``seconds``."""
        return self.phase_since + seconds - self.clock()

    def hold(self, lease: HeldLease) -> None:
        """Answer for a lease; called before it is asked for, so that a signal in between releases it."""
        with self._lock:
            self.leases[lease.name] = lease

    def held(self) -> list[HeldLease]:
        """Leases not yet released."""
        with self._lock:
            return [lease for lease in self.leases.values() if not lease.released.is_set()]

    def forget(self, lease: HeldLease) -> None:
        """It never came to be: there is nothing to answer for."""
        with self._lock:
            lease.given_up.set()
            lease.released.set()
            if self.leases.get(lease.name) is lease:
                del self.leases[lease.name]

    def release(self, lease: HeldLease, timeout: float = 2.0, silent: set[str] | None = None) -> list[str]:
        """Release at every URL; what went wrong, in words. One failing never stops the others.

        ``silent``: URLs that did not answer a moment ago, which are not asked again; what does not answer now is added.
        """
        lease.given_up.set()
        silent = set() if silent is None else silent
        troubles: list[str] = []
        answers: dict[str, Mapping[str, Any] | None] = {}
        for url in lease.urls:
            if url in silent:
                troubles.append(f"{lease.point} at {url}: it does not answer")
                continue
            try:
                answers[url] = open_client(url, self.secrets, timeout).release(lease.name, self.id)["lease"]
            except ChaosMMError as error:
                silent |= {url} if isinstance(error, PointUnreachable) else set()
                troubles.append(f"{lease.point} at {url}: {error}")
        with self._lock:
            was_released = lease.released.is_set()
            lease.end(answers, bool(troubles))
        if lease.released.is_set() and not was_released:
            self.events.write("released", lease=lease.name, evidence=lease.evidence)
        return troubles

    def release_all(self, timeout: float = 2.0) -> list[str]:
        """Release whatever was ever asked for, what seems released too: an injection may have been slower than its
        release. Troubles with leases that are not known to be released, in words.

        Points are asked side by side, and one that does not answer once: neither many leases nor a point that hangs
        hold up the others.
        """
        groups: dict[tuple[str, ...], list[HeldLease]] = {}
        for lease in list(self.leases.values()):
            lease.given_up.set()
            groups.setdefault(lease.urls, []).append(lease)
        troubles: list[str] = []
        parts = [threading.Thread(target=self._release_group, args=(g, timeout, troubles)) for g in groups.values()]
        for part in parts[1:]:
            part.start()
        if parts:
            parts[0].run()
        for part in parts[1:]:
            part.join()
        return troubles

    def _release_group(self, leases: list[HeldLease], timeout: float, troubles: list[str]) -> None:
        silent: set[str] = set()
        for lease in leases:
            was_released = lease.released.is_set()
            try:
                found = self.release(lease, timeout, silent)
            except Exception as error:  # whatever it is: the next lease must be released all the same
                found = [f"{lease.name}: {type(error).__name__}: {error}"]
            troubles += [] if was_released else found


def _number(told: Mapping[str, Any], name: str) -> float:
    return float(told.get(name) or 0.0)


def summed(leases: list[dict[str, Any]]) -> dict[str, Any]:
    """One lease at several points as one: the first that did not end as it should, with the counts added up, and the
    undo that is furthest from being proven.
    """
    if not leases:
        return {}
    counts = {key: sum(int(lease.get(key, 0)) for lease in leases) for key in ("matched", "applied", "errored")}
    early = [lease for lease in leases if lease.get("ended_by") not in ("", "release", "limit", None)]
    undos = [lease for lease in leases if lease.get("undo")]
    pending = [lease for lease in undos if lease["undo"].get("pending")]
    unproven = [lease for lease in undos if not lease["undo"].get("proven")]
    worst = next(iter([*pending, *unproven]), {})
    return {**(early or leases)[0], **counts, **{key: worst[key] for key in ("undo", "state") if key in worst}}


_current: Run | None = None


def install(run: Run) -> None:
    """Make it the run of this process."""
    global _current
    _current = run


def uninstall(run: Run) -> None:
    """The run is over."""
    global _current
    if _current is run:
        _current = None


def current() -> Run | None:
    """The run of this process, if an experiment with our control is under way."""
    return _current


def require(what: str) -> Run:
    """The watched run; without one nothing may be injected and the experiment is stopped.

    An ordinary error would not do: Chaos Toolkit would go on and exit 0. In the main thread this raises
    ``SystemExit(20)``, the toolkit's word for "stop, with rollbacks"; elsewhere it signals the main thread.
    """
    run = _current
    if run is not None and run.watched and not run.stop.is_set():
        return run
    why = _why_not(run)
    logger.error(f"{what}: nothing was injected: {why}")
    if run is not None and not run.stop.is_set():
        run.note("error", f"{what}: {why}")
    unwinding = run is not None and run.unwinding.is_set()  # what is raised now takes the other rollbacks away
    if threading.current_thread() is threading.main_thread() and not unwinding:
        raise SystemExit(20)
    if unwinding:
        raise ActivityFailed(f"{what}: nothing was injected: {why}")
    from chaos_mm.controls.signals import interrupt_main

    interrupt_main(run)
    raise ActivityFailed(f"{what}: nothing was injected: {why}")


def _why_not(run: Run | None) -> str:
    if run is None:
        return "the control chaos_mm.controls.verdict does not watch over this run; name it under 'controls'"
    return "this run is being stopped" if run.stop.is_set() else "the guard of this run is dead"
