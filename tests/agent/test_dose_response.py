"""Damage grows with noise on keys and values and with heads dropped, on the real model, through the real agent.

Few canaries a dose here; ``long`` asks 300 and prints the tables with Wilson's intervals, damage by bit class too.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from chaos_mm.core.bits import FORMATS
from chaos_mm.sli.statistics import wilson
from tests.agent.test_dose_response_embedding import Served, ended, served

__all__ = ["served"]
pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]
NOISE = (0.0, 0.1, 0.3, 0.5, 1.0, 2.0)
HEADS = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0)


async def exact_under(served: Served, fault: str, params: dict[str, Any], kind: str, count: int) -> int:
    """Exact answers of the same canaries under a lease that is proven undone afterwards."""
    body = {"owner": "dose", "fault": fault, "params": params, "ttl_seconds": 900, "keepalive_seconds": 600, "seed": 5}
    await asyncio.to_thread(served.client.put_lease, "dose", body)
    exact = await served.exact(kind, count)
    lease = await ended(served)
    assert lease["errored"] == 0 and lease["matched"] == count, lease
    dose = params.get("sigma", params.get("share", 1.0))
    assert (lease["applied"] >= 0.98 * count) if dose else (lease["applied"] == 0)
    assert lease["undo"] is None or lease["undo"]["proven"], lease
    return exact


async def curve(served: Served, fault: str, dose: str, doses: Sequence[float], kind: str, count: int) -> list[int]:
    """Exact answers at each dose: none may lie above a weaker dose's interval, the strongest below the clean one's."""
    found = [await exact_under(served, fault, {dose: value}, kind, count) for value in doses]
    intervals = [wilson(exact, count) for exact in found]
    for value, exact, (low, high) in zip(doses, found, intervals, strict=True):
        print(f"{fault} {dose}={value:<6g} on {kind}: {exact / count:.3f} [{low:.3f}, {high:.3f}]")
    assert all(after[0] <= before[1] for before, after in zip(intervals, intervals[1:], strict=False))
    assert intervals[-1][1] < intervals[0][0]
    return found


async def test_few_canaries_see_damage_grow_and_go(served: Served):
    clean = await served.exact("image", 40)
    assert clean >= 36
    noisy = await curve(served, "kv_cache_noise", "sigma", (0.0, 2.0), "image", 40)
    dropped = await curve(served, "attention_head_drop", "share", (0.0, 1.0), "image", 40)
    assert noisy[0] == dropped[0] == clean
    assert await served.exact("image", 40) == clean, "after release every answer is as before"


@pytest.mark.long
@pytest.mark.parametrize("kind", ["image", "audio"])
@pytest.mark.parametrize(
    ("fault", "dose", "doses"), [("kv_cache_noise", "sigma", NOISE), ("attention_head_drop", "share", HEADS)]
)
async def test_three_hundred_canaries_a_dose(served: Served, fault: str, dose: str, doses: Sequence[float], kind: str):
    clean = await served.exact(kind, 300)
    found = await curve(served, fault, dose, doses, kind, 300)
    assert clean / 300 >= 0.95 and found[0] == clean
    assert await served.exact(kind, 300) == clean


@pytest.mark.long
async def test_damage_by_bit_class(served: Served):
    """Low mantissa bits are below what the answer rests on; the top exponent bit destroys it."""
    share, count, exact = 0.01, 300, {}
    clean = await served.exact("image", count)
    for bits in FORMATS["float32"].classes():
        exact[bits] = await exact_under(served, "kv_cache_bit_flip", {"share": share, "bits": bits}, "image", count)
        low, high = wilson(exact[bits], count)
        print(f"kv_cache_bit_flip share={share} {bits:14}: {exact[bits] / count:.3f} [{low:.3f}, {high:.3f}]")
    assert exact["mantissa_low"] == clean
    assert wilson(exact["exponent_top"], count)[1] < wilson(clean, count)[0]
    assert await served.exact("image", count) == clean
