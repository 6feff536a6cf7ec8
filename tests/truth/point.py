"""A point without traffic of its own: real control API and leases, hits counted as a script says."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import chaos_mm
from chaos_mm.control.api import ControlApi, Request, Response
from chaos_mm.control.client import ControlClient
from chaos_mm.control.server import ControlServer, serve_control
from chaos_mm.core.fault import Fault, Point
from chaos_mm.core.lease import Lease, Undo
from chaos_mm.core.lease_book import LeaseBook, Limits
from chaos_mm.faults import catalogue

FOREIGN = "somebody-else"


@dataclass(frozen=True)
class PointScript:
    """How the point behaves.

    ``matched``: share of the canaries that its selector meets. ``applied``, ``errored``: shares of those. ``achieved``:
    what each application reports. ``refuses``: methods on /leases that it answers with 500 and does not obey; POST are
    keepalives. ``slow_seconds``: how long it takes over a PUT. ``foreign``: a lease of another owner lives there from
    the beginning. ``refusal``: why it cannot run any fault. ``fatal``: why a restart is needed after one.
    ``undo``: proven, unproven or never ("": ending a lease is enough), ``undo_seconds`` after its end. ``kind``: which
    point it is; the agent goes with the process that it hurts.
    """

    matched: float = 1.0
    applied: float = 1.0
    errored: float = 0.0
    achieved: Mapping[str, float] = field(default_factory=lambda: {"psnr_db": 20.0})
    refuses: tuple[str, ...] = ()
    slow_seconds: float = 0.0
    max_ttl_seconds: float = 3600.0
    version: str = ""
    latched: bool = False
    foreign: bool = False
    refusal: str = ""
    fatal: str = ""
    undo: str = ""
    undo_seconds: float = 0.0
    kind: Point = Point.PROXY


class _Actuator:
    """Harms nothing, and undoes as its script says."""

    def __init__(self, script: PointScript) -> None:
        self._script = script

    def refusal(self, fault: Fault) -> str:
        return self._script.refusal

    def selectable(self, fault: Fault) -> bool:
        return True

    def describe(self, fault: Fault) -> Mapping[str, Any]:
        return {"fatal": self._script.fatal}

    def begin(self, lease: Lease) -> None:
        lease.engine = {"fatal": self._script.fatal} if self._script.fatal else {}

    def renew(self, lease: Lease) -> None:
        """Nothing."""

    def finish(self, lease: Lease) -> None:
        if not self._script.undo:
            return
        lease.undo = Undo()
        if self._script.undo != "never":
            timer = threading.Timer(self._script.undo_seconds, self._undone, [lease])
            timer.daemon = True
            timer.start()

    def _undone(self, lease: Lease) -> None:
        proven = self._script.undo == "proven"
        lease.undo = Undo(False, proven, "" if proven else "2 blocks hold what nobody wrote", {"restored_elements": 7})


class _Api(ControlApi):
    """Refuses what its script says, before the real handler sees it."""

    refuses: tuple[str, ...] = ()
    slow_seconds = 0.0

    def handle(self, request: Request) -> Response:
        if request.method == "PUT":
            time.sleep(self.slow_seconds)
        if request.method in self.refuses and request.path.startswith("/leases/"):
            return Response.json({"error": f"{request.method} cannot be done here", "kind": "error"}, 500)
        return super().handle(request)


class ScriptedPoint:
    """Serves from the first moment; ``close`` ends it."""

    def __init__(self, token: str, script: PointScript, port: int = 0) -> None:
        self.script, self._token = script, token
        limits = Limits(max_ttl_seconds=script.max_ttl_seconds)
        self.book = LeaseBook(catalogue(), point=script.kind, limits=limits, actuator=_Actuator(script))
        api = _Api(self.book, token, version=script.version or chaos_mm.__version__)
        self.server: ControlServer = serve_control(api, f"http://127.0.0.1:{port}")
        self.url = self.server.url
        self.client = ControlClient(self.url, token)
        self._lock = threading.Lock()
        self._shares = {"matched": 0.5, "applied": 0.5, "errored": 0.5}
        self._closed = False
        if script.foreign:
            body = {"owner": FOREIGN, "fault": "image_noise", "ttl_seconds": 600, "keepalive_seconds": 600}
            self.client.put_lease("image_noise", body)
        if script.latched:
            self.client.stop()
        api.refuses, api.slow_seconds = script.refuses, script.slow_seconds

    def replaced(self) -> "ScriptedPoint":
        """This one dies, and another process would serve at its address, knowing nothing."""
        port = self.server.port
        self.close()
        return ScriptedPoint(self._token, self.script, port)

    def close(self) -> None:
        """Stop serving; again is nothing."""
        if not self._closed:
            self._closed = True
            self.server.close()

    def canary(self) -> None:
        """One canary passes: every live lease counts it as the script says."""
        with self._lock:
            if self.book.live and self._next("matched", self.script.matched):
                failed = self._next("errored", self.script.errored)
                changed = not failed and self._next("applied", self.script.applied)
                for lease in self.book.live:
                    self._count(lease, changed, failed)

    def _count(self, lease: Any, changed: bool, failed: bool) -> None:
        now = self.book.clock()
        if lease.spec.owner != FOREIGN and lease.live_at(now):
            lease.count_match()
            if lease.reserve():
                lease.settle(now, changed, failed, self.script.achieved if changed else {})

    def _next(self, name: str, share: float) -> bool:
        """Whether the next one counts, so that the counts never stray from the share by more than one."""
        total = self._shares[name] + share
        self._shares[name] = total - 1.0 if total >= 1.0 else total
        return total >= 1.0
