"""The load's own routes beside the control API.

PUT    /marks/{run}/{phase}                    from now on: baseline, fault, recovery, end
GET    /records?run=&phase=&since=&limit=      NDJSON, streamed
GET    /slis[/{name}]?run=&phase=&window_seconds=&threshold_seconds=&audience=&modality=&kind=
       recovery_seconds under its own name only; requests without an answer: see ``view``
GET    /worst/{name}?run=&phase=&window_seconds=&min_samples=&worse=low|high&<filters as above>   see ``worst``
PUT    /traffic/{owner}    DELETE /traffic/{owner}    GET /status
"""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from chaos_mm.control.messages import Request, Response, Route
from chaos_mm.core.errors import BadRequest
from chaos_mm.load.generator import Counters
from chaos_mm.load.marks import Marks
from chaos_mm.load.store import Store
from chaos_mm.load.traffic import TrafficBook
from chaos_mm.load.view import Question, View, read_number
from chaos_mm.load.worst import Worst, WorstQuestion
from chaos_mm.sli.records import PHASES, Record

_BATCH = 64
_RECENT_SECONDS = 10.0


class LoadRoutes:
    """Handlers over the load's parts; called from the control API's threads."""

    def __init__(
        self,
        session: str,
        store: Store,
        marks: Marks,
        traffic: TrafficBook,
        view: View,
        counters: Counters,
        clock: Callable[[], float] = time.monotonic,
        model: str = "",
    ) -> None:
        self._model = model
        self._session, self._store, self._marks, self._traffic = session, store, marks, traffic
        self._view, self._counters, self._clock = view, counters, clock
        self._windows = Worst(view, clock)

    def routes(self) -> Sequence[Route]:
        """For ``start_control``."""
        return (
            Route("PUT", "/marks/{run}/{phase}", self._mark),
            Route("GET", "/records", self._records),
            Route("GET", "/slis", self._slis),
            Route("GET", "/slis/{name}", self._sli),
            Route("GET", "/worst/{name}", self._worst),
            Route("PUT", "/traffic/{owner}", self._put_traffic),
            Route("DELETE", "/traffic/{owner}", self._delete_traffic),
            Route("GET", "/status", self._status),
        )

    def _mark(self, request: Request, run: str, phase: str) -> Response:
        began = self._marks.put(run, phase)
        return Response.json({"run": run, "phase": phase, "phase_seconds": self._clock() - began})

    def _records(self, request: Request) -> Response:
        query = request.query
        run, phase = query.get("run", ""), query.get("phase", "")
        if phase not in ("", *PHASES):
            raise BadRequest(f"phase is {phase[:40]!r}; allowed: {', '.join(PHASES)}")
        since = read_number(query, "since", float("-inf"), 0.0, 1e12)
        limit = int(read_number(query, "limit", 0.0, 0.0, 1e9))
        return Response(200, _lines(self._view.records(run, phase, since, limit)), "application/x-ndjson")

    def _slis(self, request: Request) -> Response:
        return Response.json(self._view.slis(Question.read(request.query)))

    def _sli(self, request: Request, name: str) -> Response:
        answer = self._view.sli(name, Question.read(request.query), request.query.get("objectives", ""))
        return Response.json(answer.to_json())

    def _worst(self, request: Request, name: str) -> Response:
        return Response.json(self._windows.find(name, WorstQuestion.read(request.query)))

    def _put_traffic(self, request: Request, owner: str) -> Response:
        return Response.json(self._traffic.put(owner, request.json()).to_json(self._clock()))

    def _delete_traffic(self, request: Request, owner: str) -> Response:
        return Response.json({"gone": not self._traffic.delete(owner)})

    def _status(self, request: Request) -> Response:
        return Response.json(self.status())

    def status(self) -> dict[str, Any]:
        """What flows, how much went out, and whether the load keeps its own schedule."""
        now = self._clock()
        live = self._traffic.live()
        run, phase = self._marks.current()
        counters = self._counters
        return {
            "sending": bool(live),
            "rate": sum(traffic.spec.rate for traffic in live),
            "sent": counters.due - counters.overloaded,
            "overloaded": counters.overloaded,
            "in_flight": len(self._store.open(now)),
            "lag_seconds": self.recent_lag(now),
            "records": len(self._store),
            "records_dropped": self._store.dropped,
            "records_unwritten": self._store.unwritten,
            "session": self._session,
            "model": self._model,
            "current_run": run,
            "current_phase": phase,
            "traffic": self._traffic.shown(),
        }

    def recent_lag(self, now: float) -> float:
        """The worst lateness of our own in the last ten seconds, of requests that have ended."""
        return max((record.lag_seconds for record in self._store.since(now - _RECENT_SECONDS)), default=0.0)

    def metrics(self) -> str:
        """Prometheus text: numbers and names only."""
        counters, now = self._counters, self._clock()
        lines = ["# TYPE chaos_mm_load_requests_total counter"]
        for (audience, kind, outcome), count in sorted(counters.ended.copy().items()):
            labels = f'audience="{audience}",kind="{kind}",outcome="{outcome}"'
            lines.append(f"chaos_mm_load_requests_total{{{labels}}} {count}")
        for name, kind, value in (
            ("wrong_answers_total", "counter", counters.wrong),
            ("leaks_total", "counter", counters.leaks),
            ("in_flight", "gauge", len(self._store.open(now))),
            ("lag_seconds", "gauge", round(self.recent_lag(now), 6)),
            ("rate", "gauge", sum(traffic.spec.rate for traffic in self._traffic.live())),
        ):
            lines += [f"# TYPE chaos_mm_load_{name} {kind}", f"chaos_mm_load_{name} {value}"]
        return "\n".join(lines) + "\n"


def _lines(records: Iterator[Record]) -> Iterator[bytes]:
    while batch := list(islice(records, _BATCH)):
        yield b"".join(record.to_line() for record in batch)
