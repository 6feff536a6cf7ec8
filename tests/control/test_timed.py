"""One deadline for all of an exchange, against a server whose bytes keep every socket timeout from firing."""

import socket
import threading
import time
from collections.abc import Callable

import pytest

from chaos_mm.control.client import ControlClient, Points
from chaos_mm.control.deadline import ends_at, within
from chaos_mm.control.timed import connect, open_socket, without_credentials
from chaos_mm.core.errors import BadRequest, PointUnreachable
from tests.control.conftest import TOKEN
from tests.trickle import HEAD, trickling

SECONDS = 0.5


def took(call: Callable[[], object]) -> float:
    began = time.monotonic()
    with pytest.raises(PointUnreachable, match="timed out"):
        call()
    return time.monotonic() - began


@pytest.mark.parametrize("head", [b"", HEAD], ids=["in the head", "in the body"])
@pytest.mark.parametrize("call", ["health", "leases", "stop"])
def test_a_call_ends_at_its_deadline_though_bytes_keep_coming(head: bytes, call: str) -> None:
    with trickling(head) as url:
        client = ControlClient(url, TOKEN, timeout=SECONDS)
        assert SECONDS * 0.9 < took(getattr(client, call)) < SECONDS * 3


def test_a_shorter_end_around_it_holds() -> None:
    with trickling() as url, within(0.3):
        assert took(ControlClient(url, TOKEN, timeout=60).health) < 0.9
        spent = time.monotonic()
        assert took(ControlClient(url, TOKEN, timeout=60).health) < 0.3
        assert time.monotonic() - spent < 0.3


def test_within_never_lengthens_and_ends_with_its_block() -> None:
    now = time.monotonic()
    with within(10):
        with within(100):
            assert ends_at(1000) == pytest.approx(now + 10, abs=1)
        with within(1):
            assert ends_at(1000) == pytest.approx(now + 1, abs=1)
    assert ends_at(1000) == pytest.approx(now + 1000, abs=1)


def test_an_end_in_the_past_connects_nowhere() -> None:
    connection = connect("http://127.0.0.1:9", time.monotonic() - 1)
    with pytest.raises(TimeoutError):
        connection.request("GET", "/")


def test_a_resolver_that_never_answers_is_given_up_in_time() -> None:
    never, began = threading.Event(), time.monotonic()
    with pytest.raises(TimeoutError, match=r"looking up points\.example"):
        open_socket(("points.example", 80), began + 0.3, lookup=lambda *_: never.wait(30))
    assert time.monotonic() - began < 0.9
    never.set()


def test_a_resolver_s_error_is_the_caller_s() -> None:
    with pytest.raises(socket.gaierror):
        open_socket(("x", 1), time.monotonic() + 5, lookup=_unknown)
    with pytest.raises(PointUnreachable, match="no point answers at http://"):
        ControlClient("http://no-such-host.invalid:1", TOKEN, timeout=5).health()


def _unknown(*_: object) -> None:
    raise socket.gaierror("unknown")


def test_a_host_of_several_addresses_is_tried_until_one_takes_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        stream = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
        found = [(*stream, ("127.0.0.1", 9)), (*stream, ("127.0.0.1", port))]
        with open_socket(("x", 1), time.monotonic() + 5, lookup=lambda *_: found) as made:
            assert made.getpeername()[1] == port


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("http://me:hidden@host:1/x?y=1", "http://host:1/x?y=1"),
        ("http://[::1]:3", "http://[::1]:3"),
        ("unix:///a/b", "unix:///a/b"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_url_is_shown_without_its_credentials(given: str, shown: str) -> None:
    assert without_credentials(given) == shown


def test_no_message_of_the_client_shows_them() -> None:
    with pytest.raises(PointUnreachable) as raised:
        ControlClient("http://me:hidden@127.0.0.1:9", TOKEN).health()
    assert "hidden" not in str(raised.value)
    with pytest.raises(BadRequest) as refused:
        ControlClient("ftp://me:hidden@127.0.0.1:9")
    assert "hidden" not in str(refused.value)


def test_a_list_with_a_slow_point_is_given_up_in_time_too() -> None:
    with trickling() as one, trickling(HEAD) as other, within(1.0):
        assert took(lambda: Points([one, other], TOKEN, SECONDS).put_lease("a", {"owner": "me"})) < 3.0
