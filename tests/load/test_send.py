"""``send_canaries``: exactly so many, bounded, in order, the same for the same seed."""

import pytest

from chaos_mm.core.canary import canary_key, read_canary_id
from chaos_mm.core.errors import BadRequest
from chaos_mm.load.canaries import CanarySettings
from chaos_mm.load.send import send_canaries
from tests.load.fake_openai import FakeOpenAI

KEY = canary_key("token")


async def test_exactly_so_many_at_bounded_concurrency(fake: FakeOpenAI) -> None:
    fake.gap_seconds = 0.005
    records = await send_canaries(fake.url, "text", 40, KEY, run="dose1", seed=3, concurrency=4)
    assert [record.n for record in records] == list(range(40))
    assert all(
        record.ok and record.exact and record.kind == "text" and record.audience == "canary" for record in records
    )
    assert fake.most_open == 4
    assert len(fake.seen) == 40
    for record in records:
        found = read_canary_id(KEY, record.id)
        assert found is not None
        assert (found.run, found.n) == ("dose1", record.n)


async def test_the_same_seed_asks_the_same(fake: FakeOpenAI) -> None:
    first = await send_canaries(fake.url, "text", 6, KEY, run="a", seed=3)
    again = await send_canaries(fake.url, "text", 6, KEY, run="a", seed=3)
    padded = await send_canaries(fake.url, "text", 6, KEY, run="a", seed=3, padding=3)
    later = await send_canaries(fake.url, "text", 2, KEY, run="a", seed=3, first=4)
    assert [r.expected for r in first] == [r.expected for r in again] == [r.expected for r in padded]
    assert [r.id for r in first] == [r.id for r in again]
    assert [r.expected for r in later] == [r.expected for r in first[4:]]
    asked = {request_id: body["messages"][0]["content"][-1]["text"] for request_id, body in fake.seen[12:18]}
    for before, after in zip(first, padded, strict=True):
        assert asked[after.id].startswith(before.question + ". ")


async def test_failures_are_records(fake: FakeOpenAI) -> None:
    fake.mode = "status"
    records = await send_canaries(fake.url, "image", 5, KEY, run="a", seed=3)
    assert [(record.error, record.status, record.exact) for record in records] == [("status", 500, False)] * 5


async def test_a_leak_among_them_is_seen(fake: FakeOpenAI) -> None:
    fake.answer = lambda request_id, body: "nothing"
    first = (await send_canaries(fake.url, "text", 1, KEY, run="a", seed=3))[0].expected
    fake.answer = lambda request_id, body: first
    records = await send_canaries(fake.url, "text", 5, KEY, run="a", seed=3, concurrency=1)
    assert [record.leak for record in records] == [False, True, True, True, True]


async def test_unknown_kinds_and_settings_are_refused(fake: FakeOpenAI) -> None:
    with pytest.raises(BadRequest, match="kind is 'smell'; allowed: image, colour, audio, text, agreement"):
        await send_canaries(fake.url, "smell", 1, KEY, run="a", seed=3)
    with pytest.raises(ValueError, match="canary_id"):
        await send_canaries(fake.url, "text", 1, KEY, run="Not A Run", seed=3)
    records = await send_canaries(
        fake.url, "image", 2, KEY, run="a", seed=3, settings=CanarySettings(picture_size=(64, 48))
    )
    assert len(records) == 2
