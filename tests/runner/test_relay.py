"""Signals to the runner."""

import os
import signal

import pytest

from chaos_mm.runner.relay import GRACE_SECONDS, Relay
from tests.runner.clocks import Clock


class Recorder:
    def __init__(self) -> None:
        self.sent: list[int] = []

    def send(self, number: int) -> None:
        self.sent.append(number)


@pytest.mark.parametrize(
    ("number", "sent"),
    [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM), (signal.SIGHUP, signal.SIGTERM)],
)
def test_the_first_is_handed_on_once_and_handlers_are_put_back(number: int, sent: int) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with Relay() as relay:
            child = Recorder()
            relay.watch(child)  # type: ignore[arg-type]
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            assert (relay.received, child.sent, relay.stopping) == ([number, number], [sent], True)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_second_one_gives_the_child_so_long_and_a_third_no_longer() -> None:
    clock = Clock()
    relay = Relay(clock)
    relay.on_signal(signal.SIGTERM, None)
    clock.now += 1000
    assert not relay.overdue
    relay.on_signal(signal.SIGINT, None)
    clock.now += GRACE_SECONDS - 0.1
    relay.on_signal(signal.SIGINT, None)
    assert not relay.overdue
    clock.now += 0.1
    assert relay.overdue


def test_what_came_while_the_child_was_being_started_reaches_it() -> None:
    relay, child = Relay(), Recorder()
    relay.on_signal(signal.SIGHUP, None)
    relay.watch(child)  # type: ignore[arg-type]
    assert child.sent == [signal.SIGTERM]


def test_what_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Relay() as relay:
            os.kill(os.getpid(), signal.SIGHUP)
            assert relay.received == []
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
