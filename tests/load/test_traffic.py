"""Traffic ends by itself: by its hard end, by a lost keepalive, or by its owner."""

from typing import Any

import pytest

from chaos_mm.core.errors import BadRequest, InvalidParams, LeaseConflict
from chaos_mm.load.canaries import read_mix
from chaos_mm.load.traffic import MAX_OWNERS, TrafficBook, TrafficLimits, TrafficSpec
from tests.load.virtual import Clock

DEFAULTS = TrafficSpec(1.0, read_mix("image,audio"))
BODY = {"rate": 5.0, "mix": {"image": 1}, "ttl_seconds": 30, "keepalive_seconds": 10}


@pytest.fixture
def book(clock: Clock) -> TrafficBook:
    return TrafficBook(DEFAULTS, TrafficLimits(max_rate=50.0, max_ttl_seconds=600.0), clock)


def state(book: TrafficBook, owner: str = "r1") -> tuple[str, str]:
    found = next(shown for shown in book.shown() if shown["owner"] == owner)
    return found["state"], found["ended_by"]


def test_a_lost_keepalive_ends_it(book: TrafficBook, clock: Clock) -> None:
    book.put("r1", BODY)
    clock.now += 9.9
    assert [traffic.owner for traffic in book.live()] == ["r1"]
    clock.now += 0.1
    assert book.live() == []
    assert state(book) == ("ended", "keepalive")


def test_a_keepalive_never_moves_the_hard_end(book: TrafficBook, clock: Clock) -> None:
    for _ in range(4):
        book.put("r1", BODY)
        clock.now += 9
    assert state(book) == ("ended", "ttl")


def test_another_body_is_refused_while_it_flows(book: TrafficBook, clock: Clock) -> None:
    book.put("r1", BODY)
    for change in ({"rate": 6.0}, {"mix": "audio"}, {"ttl_seconds": 31}, {"bystanders": 0.5}):
        with pytest.raises(LeaseConflict, match="traffic of r1 flows with another body"):
            book.put("r1", {**BODY, **change})
    clock.now += 20
    assert book.put("r1", {**BODY, "rate": 6.0}).spec.rate == 6.0


def test_release_and_gone_is_success(book: TrafficBook) -> None:
    assert not book.delete("r1")
    book.put("r1", BODY)
    assert book.delete("r1")
    assert not book.delete("r1")
    assert state(book) == ("ended", "release")


def test_defaults_stand_in(book: TrafficBook) -> None:
    traffic = book.put("r1", {})
    assert traffic.spec == DEFAULTS
    assert traffic.to_json(1000.0)["expires_in_seconds"] == 600.0
    assert traffic.to_json(1000.0)["keepalive_in_seconds"] == 10.0


def test_background_flows_for_ever_and_is_nobodys(book: TrafficBook, clock: Clock) -> None:
    book.background(DEFAULTS)
    clock.now += 1e9
    assert [traffic.owner for traffic in book.live()] == ["background"]
    assert book.shown()[0]["expires_in_seconds"] is None
    with pytest.raises(BadRequest, match="background traffic ends with the process"):
        book.delete("background")
    with pytest.raises(BadRequest, match="not 'background'"):
        book.put("background", BODY)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": "10%"}, "rate is '10%'; allowed: a number from 0.01 to 50"),
        ({"rate": -1}, "rate is -1"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"rate": 1e9}, "rate is 1000000000.0"),
        ({"rate": True}, "rate is True"),
        ({"ttl_seconds": 601}, "ttl_seconds is 601; allowed: a number from 1 to 600"),
        ({"keepalive_seconds": 4}, "keepalive_seconds is 4; allowed: a number from 5 to 30"),
        ({"bystanders": 1.5}, "bystanders is 1.5"),
        ({"arrivals": "bursty"}, "arrivals is 'bursty'; allowed: poisson, constant"),
        ({"mix": "smell"}, "mix is 'smell'"),
        ({"mix": None}, "mix is None"),
        ({"raet": 3}, "field 'raet' is unknown; allowed: rate, mix"),
    ],
)
def test_bad_bodies_are_named(book: TrafficBook, change: dict[str, Any], message: str) -> None:
    with pytest.raises((BadRequest, InvalidParams), match=message):
        book.put("r1", {**BODY, **change})
    assert book.live() == []


def test_owners_are_bounded(book: TrafficBook) -> None:
    for n in range(MAX_OWNERS):
        book.put(f"r{n}", BODY)
    with pytest.raises(LeaseConflict, match="16 owners have traffic here"):
        book.put("one-more", BODY)
    book.delete("r3")
    assert book.put("one-more", BODY)
