"""A load point that sends nothing: its records are written by a script, everything else about it is real.

Real control API, marks, store, view and routes; a thread adds one synthetic record every ``1 / RATE`` seconds. What a
request gets is said by ``Play``s, by audience, phase and seconds into the phase. A stall of this process delays
records and loses none: they are due on a fixed schedule and judged by the phase at that moment.
"""

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import chaos_mm
from chaos_mm.control.api import ControlApi
from chaos_mm.control.server import ControlServer, serve_control
from chaos_mm.core.fault import Point
from chaos_mm.core.lease_book import LeaseBook
from chaos_mm.faults import catalogue
from chaos_mm.load.generator import Counters
from chaos_mm.load.marks import Marks
from chaos_mm.load.routes import LoadRoutes
from chaos_mm.load.store import Store
from chaos_mm.load.traffic import TrafficBook, TrafficSpec
from chaos_mm.load.view import View
from chaos_mm.sli.records import Record

RATE = 40.0
_BYSTANDERS = (2, 5, 8)  # of every ten requests
_TICK_SECONDS = 0.02


@dataclass(frozen=True)
class Play:
    """What requests of an audience get in a phase, from ``begin`` to ``end`` seconds of it.

    ``what``: wrong (answered, not exactly), leak (answered with another request's code), error (status 500), or none
    (the load keeps no record at all).
    """

    audience: str
    phase: str
    what: str
    begin: float = 0.0
    end: float = math.inf


class ScriptedLoad:
    """Serves from the first moment; ``close`` ends it. ``on_canary`` is told of every canary sent."""

    def __init__(
        self, token: str, plays: Sequence[Play], on_canary: Callable[[], None], objectives_dir: str, rate: float = RATE
    ) -> None:
        self._plays, self._on_canary, self._period = plays, on_canary, 1.0 / rate
        self.marks, self.store = Marks(), Store()
        traffic = TrafficBook(TrafficSpec(rate, {"image": 1.0}))
        traffic.background(TrafficSpec(rate, {"image": 1.0}))
        view = View(self.store, self.marks, objectives_dir)
        routes = LoadRoutes("truth", self.store, self.marks, traffic, view, Counters()).routes()
        book = LeaseBook(catalogue(), point=Point.LOAD)
        api = ControlApi(book, token, version=chaos_mm.__version__, routes=routes)
        self.server: ControlServer = serve_control(api, "http://127.0.0.1:0")
        self.url = self.server.url
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scripted-load", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop sending and serving; again is nothing."""
        if not self._done.is_set():
            self._done.set()
            self._thread.join(5.0)
            self.server.close()

    def _run(self) -> None:
        n, due = 0, time.monotonic()
        while not self._done.wait(_TICK_SECONDS):
            while due <= time.monotonic():
                self._send(n, due)
                n, due = n + 1, due + self._period
                self.store.expect(_record(n, due))

    def _send(self, n: int, due: float) -> None:
        record = _record(n, due)
        if record.audience == "canary":
            self._on_canary()
        what = self._what(record)
        if what == "none":
            self.store.forget(record.id)
        else:
            self.store.add(_answered(record, what))

    def _what(self, record: Record) -> str:
        run = self.marks.latest()
        phase = self.marks.phase_at(run, record.scheduled_at)
        began = next((span.start for span in self.marks.spans(run) if span.phase == phase), 0.0) if phase else 0.0
        into = record.scheduled_at - began
        for play in self._plays:
            if (play.audience, play.phase) == (record.audience, phase) and play.begin <= into < play.end:
                return play.what
        return "right"


def _record(n: int, due: float) -> Record:
    audience = "bystander" if n % 10 in _BYSTANDERS else "canary"
    return Record(
        id=f"truth-{n}",
        n=n,
        session="truth",
        traffic="background",
        audience=audience,
        kind="image",
        modality="image",
        scheduled_at=due,
        sent_at=due,
        expected="4072",
    )


def _answered(record: Record, what: str) -> Record:
    at = record.scheduled_at + 0.001
    if what == "error":
        return replace(record, ended_at=at, status=500, error="status", exact=None)
    answer = "4072" if what == "right" else "1999"
    return replace(
        record,
        first_token_at=at,
        last_token_at=at,
        ended_at=at,
        chunks=1,
        status=200,
        finish_reason="stop",
        complete=True,
        answer=answer,
        exact=answer == record.expected,
        leak=what == "leak",
    )
