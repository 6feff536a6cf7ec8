"""Many clients, leases coming and going, clients leaving midway: the books balance and nothing grows."""

import asyncio
import os
import random
import time

import pytest

from chaos_mm.core.lease import Lease
from tests.proxy.conftest import RunningProxy, StartProxy, until
from tests.proxy.traffic import answer_for, audio_part, chat, clip, image_part, mixed, picture, post
from tests.proxy.wires import Client, RecordingUpstream

SECONDS = float(os.environ.get("CHAOS_MM_SOAK_SECONDS", "120"))
FAULTS = ("image_noise", "audio_spectral_mask", "text_token_truncation")


def resident_kilobytes() -> int:
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


async def user(proxy: RunningProxy, authority: str, seed: int, until_time: float) -> None:
    """Asks, sometimes leaves in the middle, connects again."""
    rng = random.Random(seed)
    parts = ["hello " * 20, image_part(picture("JPEG", 200)), image_part(picture("PNG")), audio_part(clip())]
    odd = [one.pieces for one in mixed(authority, 50, seed)]
    client = await Client.to(proxy.url)
    while time.monotonic() < until_time:
        body = chat(*rng.sample(parts, 2))
        pieces = rng.choice(odd) if rng.random() < 0.3 else (post(authority, body, f"x-index: {rng.randrange(10)}"),)
        if rng.random() < 0.1:
            client.writer.write(pieces[0][: rng.randrange(len(pieces[0]))])
            await asyncio.sleep(rng.random() * 0.01)
            client.abort()
            client = await Client.to(proxy.url)
            continue
        answer = await client.ask(*pieces)
        assert answer
        if b"Connection: close" in answer or b"HTTP/1.0 200" in answer:
            await client.close()
            client = await Client.to(proxy.url)
    await client.close()


async def operator(proxy: RunningProxy, until_time: float) -> list[Lease]:
    """Injects and releases; every lease there was."""
    rng, leases = random.Random(0), []
    while time.monotonic() < until_time:
        proxy.inject(rng.choice(FAULTS), blast_radius={"rate": rng.random(), "selector": "live"})
        leases.append(proxy.book.lease("test"))
        await asyncio.sleep(rng.random() * 0.2)
        proxy.release()
        await asyncio.sleep(rng.random() * 0.1)
    return leases


@pytest.mark.long
async def test_the_books_balance(start_proxy: StartProxy) -> None:
    upstream = RecordingUpstream(answer_for)
    async with upstream.running(), start_proxy(upstream.url) as proxy:

        async def forget() -> None:
            while True:
                await asyncio.sleep(0.1)
                upstream.received.clear()

        forgetting = asyncio.create_task(forget())
        sizes: list[int] = []
        leases: list[Lease] = []
        for seconds in (SECONDS / 4, SECONDS * 3 / 4):
            end = time.monotonic() + seconds
            users = (user(proxy, upstream.authority, seed, end) for seed in range(24))
            made, *_ = await asyncio.gather(operator(proxy, end), *users)
            leases += made
            sizes.append(resident_kilobytes())
        forgetting.cancel()
        await until(lambda: proxy.count("in_flight") == 0 and proxy.count("connections") == 0)
        await until(lambda: all(lease.reserved == 0 for lease in leases))
        applied = sum(lease.applied for lease in leases)
        assert applied > 1000
        assert all(lease.applied + lease.errored <= lease.matched for lease in leases)
        assert proxy.count("held_bytes") == 0
        assert sizes[1] - sizes[0] < 30_000
