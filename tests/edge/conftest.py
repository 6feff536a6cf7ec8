"""A bare injection point (real control API, real leases, no traffic) in this process, and ``chaos`` pointed at it."""

import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import chaos_mm
from chaos_mm.control.api import ControlApi
from chaos_mm.control.client import ControlClient
from chaos_mm.control.server import ControlServer, serve_control
from chaos_mm.core.fault import Point
from chaos_mm.core.lease_book import LeaseBook
from chaos_mm.faults import catalogue
from tests.edge.chaos import Chaos

CLOSED = "http://127.0.0.1:9"  # discard: nobody listens there


@pytest.fixture(autouse=True)
def heard_signals() -> Iterator[None]:
    """A job that a script started in the background ignores SIGINT, and so would every child: ``exec`` puts a signal
    that has a handler back to its default, but leaves an ignored one ignored."""
    numbers = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
    ignored = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


class BarePoint:
    """A point of any kind whose leases the test can look at. Fifty canaries a second pass it while ``canaries`` is set,
    and every live lease changes each of them."""

    def __init__(self, point: Point, token: str, port: int = 0) -> None:
        self.book = LeaseBook(catalogue(), point=point)
        api = ControlApi(self.book, token, version=chaos_mm.__version__)
        self.server: ControlServer = serve_control(api, f"http://127.0.0.1:{port}")
        self.url = self.server.url
        self.client = ControlClient(self.url, token)
        self.canaries, self._closed = True, threading.Event()
        self._thread = threading.Thread(target=self._pass, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it; again is nothing."""
        self._closed.set()
        self._thread.join(5)
        self.server.close()

    def _pass(self) -> None:
        while not self._closed.wait(0.02):
            now = self.book.clock()
            for lease in self.book.live if self.canaries else ():
                if lease.live_at(now):
                    lease.count_match()
                    if lease.reserve():
                        lease.settle(now, True, False, {"psnr_db": 20.0})


@pytest.fixture
def token(tmp_path: Path) -> str:
    tmp_path.chmod(0o700)
    made = secrets.token_urlsafe(32)
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text(made)
    return made


@pytest.fixture
def make_point(token: str) -> Iterator[Callable[..., BarePoint]]:
    made: list[BarePoint] = []

    def make(point: Point = Point.PROXY, port: int = 0) -> BarePoint:
        made.append(BarePoint(point, token, port))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def point(make_point: Callable[..., BarePoint]) -> BarePoint:
    return make_point(Point.PROXY)


@pytest.fixture
def chaos(tmp_path: Path, point: BarePoint) -> Chaos:
    others = {f"CHAOS_MM_{name}_CONTROL_URL": CLOSED for name in ("AGENT", "HOST", "LOAD")}
    return Chaos(tmp_path, {**others, "CHAOS_MM_PROXY_CONTROL_URL": point.url})
