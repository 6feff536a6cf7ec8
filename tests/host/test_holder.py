"""The holder over a fake device: it keeps its floor whatever others do, and gives back what a spike asks."""

from typing import Any

import pytest

from chaos_mm.host.allocators import Ram, largest_free_block
from chaos_mm.host.holder import Holder
from chaos_mm.host.schedule import Schedule

MIB = 1 << 20


class FakeDevice:
    """Memory of ``total`` bytes in ``largest`` pieces at most; ``others`` is what other processes hold."""

    def __init__(self, total: int, largest: int = 1 << 60) -> None:
        self.total, self.largest, self.others, self.mine = total, largest, 0, list[int]()
        self.taken = 0

    def free(self) -> int:
        return self.total - self.others - sum(self.mine)

    def take(self, size: int) -> Any:
        if size > min(self.free(), self.largest):
            return None
        self.taken += 1
        self.mine.append(size)
        return size

    def drop(self, block: Any) -> None:
        self.mine.remove(block)


def run(holder: Holder, at: float) -> None:
    while holder.step(at):
        pass


def test_a_fill_takes_its_share_and_is_at_work():
    device = FakeDevice(1000 * MIB)
    holder = Holder(device, Schedule(share=0.6, block_bytes=64 * MIB))
    run(holder, 0.0)
    assert (sum(device.mine), holder.held, holder.begun) == (600 * MIB, 600 * MIB, True)


def test_a_ramp_goes_up_evenly():
    device = FakeDevice(1000 * MIB)
    holder = Holder(device, Schedule(share=0.5, ramp_seconds=10, block_bytes=10 * MIB))
    held = []
    for second in range(0, 12, 2):
        run(holder, second)
        held.append(holder.held // MIB)
    assert held == [0, 100, 200, 300, 400, 500]
    assert holder.begun


def test_the_floor_holds_though_others_take():
    device = FakeDevice(1000 * MIB)
    holder = Holder(device, Schedule(floor_bytes=200 * MIB, block_bytes=50 * MIB))
    run(holder, 0.0)
    assert device.free() == 200 * MIB
    device.others = 300 * MIB
    run(holder, 1.0)
    assert device.free() >= 200 * MIB - 16 * MIB
    assert holder.held < holder.peak == 800 * MIB
    device.others = 0
    run(holder, 2.0)
    assert device.free() == 200 * MIB


def test_a_spike_comes_and_goes():
    device = FakeDevice(1000 * MIB)
    holder = Holder(device, Schedule("spike", 0.5, period_seconds=2.0, block_bytes=50 * MIB))
    held = []
    for at in (0.0, 1.0, 2.0, 3.0):
        run(holder, at)
        held.append(holder.held // MIB)
    assert held == [500, 50, 500, 50]  # one block stays, so that a level is not chased byte by byte


def test_a_leak_grows_by_its_rate_to_its_share():
    device = FakeDevice(1000 * MIB)
    holder = Holder(device, Schedule("leak", 0.5, rate_bytes=100 * MIB, block_bytes=10 * MIB))
    held = []
    for at in (0.0, 1.0, 2.5, 9.0):
        run(holder, at)
        held.append((holder.held // MIB, holder.begun))
    assert held == [(0, False), (100, True), (250, True), (500, True)]


def test_fragments_leave_every_other_block_and_say_the_largest_that_can_be_had():
    device = FakeDevice(1000 * MIB, largest=70 * MIB)
    holder = Holder(device, Schedule("fragment", 0.8, block_bytes=40 * MIB))
    run(holder, 0.0)
    assert (holder.held, holder.peak) == (400 * MIB, 800 * MIB)
    assert holder.told()["figures"]["largest_free_block_bytes"] == 70 * MIB
    run(holder, 5.0)
    assert holder.held == 400 * MIB  # and it does not fill the holes again


def test_an_allocator_that_has_no_more_is_full_and_at_work():
    device = FakeDevice(1000 * MIB, largest=0)
    device.largest = 30 * MIB
    holder = Holder(device, Schedule(share=0.5, block_bytes=50 * MIB))
    run(holder, 0.0)
    assert holder.full and not holder.begun  # it holds nothing: that is no fault at work


@pytest.mark.parametrize("largest", [0, 2, 64, 998, 1000])
def test_the_largest_block_is_found_by_bisection(largest: int):
    device = FakeDevice(1000 * MIB, largest * MIB)
    assert largest_free_block(device) == largest * MIB
    assert device.mine == []


def test_ram_is_really_written(tmp_path: object):
    import psutil

    ram, process = Ram.__new__(Ram), psutil.Process()  # not __init__: this process shall not become the first victim
    before = process.memory_info().rss
    block = ram.take(64 * MIB)
    assert 60 * MIB < process.memory_info().rss - before < 80 * MIB
    ram.drop(block)
    assert process.memory_info().rss - before < 20 * MIB
