"""Details of a lease on their way to the ring: bounded, strict JSON, and counted where they get lost."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from chaos_mm.agent.layout import RECORD_BYTES
from chaos_mm.agent.ledger import Ledger, finite


def drain(ledger: Ledger) -> tuple[list[dict[str, Any]], int]:
    """What it writes where there is room, and how much it says is lost."""
    records: list[dict[str, Any]] = []

    def push(record: Any) -> bool:
        assert len(json.dumps(record, allow_nan=False, separators=(",", ":"))) <= RECORD_BYTES - 8
        records.append(record)
        return True

    return records, ledger.flush(push)


def total(records: list[dict[str, Any]], kind: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for record in records:
        for name, count in record["v"].items() if record["k"] == kind else ():
            found[name] = found.get(name, 0) + count
    return found


@given(st.lists(st.tuples(st.text(max_size=70), st.text(min_size=1, max_size=70)), max_size=60))
@settings(max_examples=60, deadline=None)
def test_sites_and_requests_arrive_whatever_their_names(strikes: list[tuple[str, str]]):
    ledger = Ledger(1)
    for site, request in strikes:
        ledger.strike(request, site, {})
    records, lost = drain(ledger)
    sites = {site: sum(s == site for s, _ in strikes) for site, _ in strikes if site}
    requests = {request: sum(r == request for _, r in strikes) for _, request in strikes}
    assert (total(records, "sites"), total(records, "requests"), lost) == (sites, requests, 0)


def test_figures_are_folded_and_only_finite_ones_as_numbers():
    ledger = Ledger(1)
    for value in (1.0, 3.0, float("nan"), float("-inf"), 10**400, None, "five"):
        ledger.strike("", "s", {"rms": value})
    records, _ = drain(ledger)
    (figures,) = (record["v"] for record in records if record["k"] == "figures")
    assert figures == {"rms": [2, 4.0, 1.0, 3.0], "nonfinite_rms": [5, 5.0, 1.0, 1.0]}


def test_a_note_that_is_too_long_or_no_json_is_lost_and_does_not_stop_the_others():
    ledger = Ledger(1)
    ledger.note("note", {"blocks": list(range(1000, 1200))})
    ledger.note("note", {"value": {1, 2}})
    ledger.note("note", {"value": float("nan")})
    ledger.note("note", {"blocks": [1, 2]})
    records, lost = drain(ledger)
    assert [record["v"] for record in records] == [{"blocks": [1, 2]}] and lost == 3


def test_what_finds_no_room_waits_and_what_is_too_much_is_counted():
    ledger = Ledger(1)
    for n in range(1000):
        ledger.strike(f"r{n}", f"s{n}", {})
        ledger.note("note", {"n": n})
    assert ledger.flush(lambda record: False) > 0 and ledger.waiting > 0
    records, _ = drain(ledger)
    drain(ledger)
    assert len(records) <= 2000 and ledger.waiting == 0


def test_numbers_of_any_library_are_taken():
    class Scalar:
        def __float__(self) -> float:
            return 2.5

    assert finite({"a": Scalar(), "b": True, "c": object()}) == {"a": 2.5, "b": 1.0, "nonfinite_c": 1.0}
