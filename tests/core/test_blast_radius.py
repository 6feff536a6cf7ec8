"""Selector, rate and limit: canaries only unless `live` stands there."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_mm.core.blast_radius import BlastRadius, Selector
from chaos_mm.core.errors import InvalidParams
from tests.core.samples import request


@pytest.mark.parametrize(
    ("text", "canary", "user"),
    [
        ("canary", True, False),
        ("live", True, True),
        ("header:X-Tenant=acme", True, False),
        ("live,header:x-tenant=acme", True, True),
        ("header:x-tenant=other", False, False),
        ("live,model:tiny", True, True),
        ("model:big", False, False),
        ("live,modality:text", True, True),
        ("live,modality:image", False, False),
        ("live,path:/v1/chat/completions", True, True),
        ("live,path:/v1/embeddings", False, False),
    ],
)
def test_who_is_selected(text: str, canary: bool, user: bool):
    selector = Selector.parse(text)
    fields: dict[str, Any] = {"headers": {"x-tenant": "acme"}, "model": "tiny"}
    assert selector.matches(request(canary=True, **fields)) is canary
    assert selector.matches(request(canary=False, **fields)) is user


def test_the_head_alone_never_rules_out_what_the_body_may_still_meet():
    selector = Selector.parse("canary,model:tiny,modality:image")
    assert selector.may_match(request(modalities=frozenset()))
    assert not selector.may_match(request(canary=False))


@pytest.mark.parametrize(
    "text", ["", "everyone", "header:x", "header:=v", "modality:smell", "canary,live", "live,", "model:"]
)
def test_bad_selectors_are_refused_with_what_is_allowed(text: str):
    with pytest.raises(InvalidParams, match=r"blast_radius: selector="):
        BlastRadius.from_json({"selector": text})


@pytest.mark.parametrize(
    ("given_body", "words"),
    [
        ({"rate": "10%"}, r"rate='10%'.*\[0, 1\]"),
        ({"rate": 1.01}, "rate=1.01"),
        ({"rate": float("nan")}, "rate=nan"),
        ({"limit": -1}, "limit=-1"),
        ({"share": 1}, "unknown field 'share'"),
    ],
)
def test_bad_radii_are_refused(given_body: dict[str, Any], words: str):
    with pytest.raises(InvalidParams, match=words):
        BlastRadius.from_json(given_body)


def test_round_trip():
    body = {"rate": 0.25, "selector": "live,header:x-a=b", "limit": 7}
    assert BlastRadius.from_json(body).to_json() == body


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_rate_is_met_by_hash(rate: float):
    radius = BlastRadius(rate)
    hits = sum(radius.hits(7, "lease", f"request-{n}") for n in range(4000))
    assert abs(hits / 4000 - rate) <= 4 * (0.25 / 4000) ** 0.5


@given(st.text(max_size=50), st.floats(0, 1))
def test_a_higher_rate_keeps_every_hit_of_a_lower_one(request_id: str, rate: float):
    # Raising the dose must add victims, not draw new ones: dose-response curves are then monotone by design.
    if BlastRadius(rate).hits(1, "a", request_id):
        assert BlastRadius(min(1.0, rate + 0.1)).hits(1, "a", request_id)
