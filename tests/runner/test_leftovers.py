"""Leases of a run that died, at real points."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.controls.names import POINT_NAMES
from chaos_mm.runner.leftovers import release
from tests.edge.conftest import BarePoint, make_point, token

__all__ = ["make_point", "token"]
CLOSED = "http://127.0.0.1:9"


def lease(owner: str) -> dict[str, Any]:
    radius = {"rate": 1.0, "selector": "canary", "limit": 0}
    return {
        "owner": owner, "reason": "a test", "fault": "image_noise", "params": {"sigma": 0.1}, "blast_radius": radius,
        "ttl_seconds": 60, "keepalive_seconds": 30, "seed": 0, "mode": "inject",
    }  # fmt: skip


@pytest.fixture
def addresses(tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("CHAOS_MM_TOKEN_FILE", str(tmp_path / "token"))
    for name in POINT_NAMES.values():
        monkeypatch.delenv(name.variable, raising=False)
    return {name.key: CLOSED for name in POINT_NAMES.values()}


def live(point: BarePoint) -> list[str]:
    return [one["owner"] for one in point.client.leases() if not one["ended_by"]]


def test_its_leases_go_at_every_point_and_say_so(
    make_point: Callable[..., BarePoint], addresses: dict[str, str]
) -> None:
    points = [make_point(), make_point()]
    for number, point in enumerate(points):
        point.client.put_lease(f"noise-{number}", lease("r1"))
    said = release("r1", {**addresses, "proxy_control_url": ",".join(point.url for point in points)})
    assert sorted(said) == sorted(f"released noise-{n} of r1 at {point.url}" for n, point in enumerate(points))
    assert [live(point) for point in points] == [[], []]
    assert release("r1", {**addresses, "proxy_control_url": points[0].url}) == []


def test_another_runs_lease_stays(make_point: Callable[..., BarePoint], addresses: dict[str, str]) -> None:
    point = make_point()
    point.client.put_lease("noise", lease("another"))
    assert release("r1", {**addresses, "proxy_control_url": point.url}) == []
    assert live(point) == ["another"]


def test_a_point_with_another_token_says_so(
    make_point: Callable[..., BarePoint], addresses: dict[str, str], tmp_path: Path
) -> None:
    point = make_point()
    (tmp_path / "token").write_text("another-token-that-is-long-enough-to-be-one")
    (said,) = release("r1", {**addresses, "proxy_control_url": point.url})
    assert "end by keepalive" in said and "another token" in said


def test_nobody_there_is_nothing_to_say(addresses: dict[str, str]) -> None:
    assert release("r1", addresses) == []
