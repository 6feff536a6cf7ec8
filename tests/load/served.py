"""The load's HTTP side over a store that the test fills."""

import json
from pathlib import Path
from typing import Any

import pytest

from chaos_mm import faults
from chaos_mm.control.client import ControlClient
from chaos_mm.control.point import ControlPoint, PointSettings, start_control
from chaos_mm.core.fault import Point, Target
from chaos_mm.load.canaries import read_mix
from chaos_mm.load.generator import Counters
from chaos_mm.load.marks import Marks
from chaos_mm.load.routes import LoadRoutes
from chaos_mm.load.store import Store
from chaos_mm.load.traffic import TrafficBook, TrafficSpec
from chaos_mm.load.view import View
from chaos_mm.sli.records import Record
from tests.load.virtual import Clock


class Served:
    """The load's HTTP side over a store that the test fills, on a clock that the test moves."""

    def __init__(self, clock: Clock, folder: Path) -> None:
        self.clock, self.store, self.marks = clock, Store(), Marks(clock)
        self.traffic = TrafficBook(TrafficSpec(1.0, read_mix("text")), clock=clock)
        self.counters = Counters()
        view = View(self.store, self.marks, "", clock)
        own = LoadRoutes("s1", self.store, self.marks, self.traffic, view, self.counters, clock)
        settings = PointSettings("http://127.0.0.1:0", token_file=folder / "token")
        self.point: ControlPoint = start_control(
            settings,
            Point.LOAD,
            faults.catalogue(),
            frozenset({Target.TRAFFIC}),
            routes=own.routes(),
            metrics=own.metrics,
        )
        self.client = ControlClient(self.point.server.url, self.point.token)
        self.n = 0

    def pass_time(self, seconds: int, **fields: Any) -> None:
        """One request a second."""
        for _ in range(seconds):
            self.n += 1
            at = self.clock.now
            good = {"status": 200, "complete": True, "exact": True, "expected": "4072", "answer": "4072", "chunks": 4}
            times = {"sent_at": at, "first_token_at": at + 0.1, "last_token_at": at + 0.2, "ended_at": at + 0.2}
            self.store.add(Record(id=f"q{self.n}", n=self.n, scheduled_at=at, **{**good, **times, **fields}))
            self.clock.now += 1.0

    def hang(self, sent: bool = True, **fields: Any) -> Record:
        """A request that is due now and gets no answer."""
        self.n += 1
        at = self.clock.now
        waiting = Record(id=f"q{self.n}", n=self.n, scheduled_at=at, error="open", exact=False, **fields)
        self.store.expect(waiting)
        if sent:
            self.store.sent(waiting.id, at, "4072")
        return waiting

    def stall(self, seconds: int, **fields: Any) -> None:
        """One request a second, and none is answered."""
        for _ in range(seconds):
            self.hang(**fields)
            self.clock.now += 1.0

    def lines(self, **query: Any) -> list[dict[str, Any]]:
        return [
            json.loads(line, parse_constant=pytest.fail) for line in self.client.text("/records", **query).splitlines()
        ]
