"""What is right after a fault: release, a restarted target, concurrency, all on real processes."""

import time
from pathlib import Path

import pytest

from chaos_mm.control.client import ControlClient
from chaos_mm.load.send import send_canaries
from tests.live.conftest import Service
from tests.processes import start

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]
STRONG = {"sigma": 0.8}


async def _exact(service: Service, count: int = 1, first: int = 0, url: str = "") -> list[bool]:
    records = await send_canaries(
        url or service.url, "image", count, service.key, run="recovery", seed=3, first=first, stream=False
    )
    assert all(r.ok for r in records)
    return [r.exact is True for r in records]


async def test_release_to_the_first_clean_answer(service: Service):
    clean = await _exact(service, 8)
    assert sum(clean) >= 7
    n = clean.index(True)
    waits = []
    for _ in range(5):
        with service.inject("image_noise", STRONG) as injection:
            assert await _exact(service, 1, n) == [False]
            began = time.monotonic()
        assert await _exact(service, 1, n) == [True]
        waits.append(time.monotonic() - began)
        assert injection.evidence["ended_by"] == "release"
    print(f"\nrelease to first clean answer: median {sorted(waits)[2]:.3f} s, most {max(waits):.3f} s")
    assert sorted(waits)[2] < 0.5
    assert max(waits) < 1.5


async def test_the_same_requests_are_hurt_alike_whatever_the_concurrency(service: Service):
    answers = []
    for concurrency in (1, 24):
        with service.inject("image_noise", {"sigma": 0.3}, seed=9, blast_radius={"rate": 0.5}) as injection:
            records = await send_canaries(
                service.url, "image", 60, service.key, run="same", seed=4, stream=False, concurrency=concurrency
            )
        answers.append(([r.answer for r in records], injection.evidence["applied"], injection.evidence["achieved"]))
    assert answers[0][:2] == answers[1][:2]
    assert answers[0][2]["psnr_db"]["min"] == answers[1][2]["psnr_db"]["min"]


async def test_a_target_restarted_in_the_middle_of_a_fault_is_clean_afterwards(service: Service, state: Path):
    target = start("target", "--port", "0", state=state)
    port = target.url.rsplit(":", 1)[1]
    proxy = start("proxy", "--upstream", target.url, "--port", "0", "--control-port", "0", state=state)
    try:
        mine = Service(target, proxy, state, ControlClient(proxy.control_url, token_file=state / "token"), service.key)
        with mine.inject("image_noise", STRONG) as injection:
            assert not any(await _exact(mine, 4))
            target.kill()
            records = await send_canaries(mine.url, "image", 1, mine.key, run="down", seed=3, stream=False)
            assert records[0].status == 502
            target = start("target", "--port", port, state=state)
            assert not any(await _exact(mine, 4, 4))
        assert injection.evidence["ended_by"] == "release"
        assert injection.evidence["applied"] >= 8
        assert sum(await _exact(mine, 8)) >= 7
    finally:
        proxy.stop()
        target.stop()


async def test_a_killed_proxy_takes_its_leases_with_it(service: Service, state: Path):
    options = ("--upstream", service.target.url, "--control-port", "0")
    proxy = start("proxy", *options, "--port", "0", state=state)
    mine = Service(
        service.target, proxy, state, ControlClient(proxy.control_url, token_file=state / "token"), service.key
    )
    again = None
    try:
        injection = mine.inject("image_noise", STRONG).__enter__()
        instance = injection.evidence["instance"]
        port, control_port = proxy.url.rsplit(":", 1)[1], proxy.control_url.rsplit(":", 1)[1]
        proxy.kill()
        options = ("--upstream", service.target.url, "--port", port, "--control-port", control_port)
        again = start("proxy", *options, state=state)
        released = mine.control.release("image_noise", injection.owner)
        assert released["gone"] is True
        assert released["instance"] != instance
        assert sum(await _exact(mine, 8)) >= 7
    finally:
        proxy.stop()
        if again is not None:
            again.stop()
