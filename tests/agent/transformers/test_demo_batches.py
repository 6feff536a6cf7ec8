"""Whose rows a lease finds: batches within others, left late, of another size, with rows that nobody waits for."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from chaos_mm.core import serving
from chaos_mm.target.generation import decode
from tests.agent.transformers.attached import Attached
from tests.agent.transformers.prompts import first_change, spoken

pytestmark = pytest.mark.model
Generate = Callable[..., Any]


@pytest.mark.parametrize("inside", ["someone", "the same"])
def test_a_batch_within_another_leaves_the_outer_one_where_it_stood(
    agent: Attached, model: Any, generate: Generate, inside: str
) -> None:
    """As a server does that asks its model something while it answers: a draft, a translation, a check."""
    canary = agent.canary(0)
    clean = generate([canary])
    lease = agent.put("kv_cache_noise", after_tokens=3)
    with torch.inference_mode(), serving.running([canary]):
        steps = decode(model, [spoken(0)], 6)
        outer = [next(steps), next(steps)]
        inner = generate([canary if inside == "the same" else inside], 3)
        outer += list(steps)
    shown = agent.release(lease)
    assert first_change(torch.stack(outer), clean[:6]) == [3] and first_change(inner, clean[:3]) == [None]
    assert (shown["matched"], shown["applied"]) == (1, 1) and torch.equal(generate([canary]), clean)


def test_a_canarys_batch_that_is_left_late_is_not_the_next_ones(
    agent: Attached, model: Any, generate: Generate
) -> None:
    """A stream whose client went away is closed at any time, by any thread; a user's answer is not its answer."""

    def streaming() -> Iterator[Any]:
        with serving.running([agent.canary(0)]):
            yield from decode(model, [spoken(0)], 8)

    clean = generate(["someone"])
    lease = agent.put("kv_cache_noise")
    here, there = streaming(), streaming()
    with torch.inference_mode():
        next(here)
        with serving.running(["someone"]):
            steps = decode(model, [spoken(0)], 8)
            found = [next(steps)]
            here.close()
            found += list(steps)
        next(there)
        closing = threading.Thread(target=there.close)
        closing.start()
        closing.join(10.0)
        without = torch.stack(list(decode(model, [spoken(0)], 8)))
    shown = agent.release(lease)
    assert torch.equal(torch.stack(found), clean) and torch.equal(without, clean)
    assert (shown["applied"], shown["errored"]) == (0, 0), shown


def test_batches_that_other_threads_left_are_not_kept(agent: Attached) -> None:
    """A server whose streams are all closed elsewhere would keep a little more with each of them."""

    def streaming() -> Iterator[Any]:
        with serving.running([agent.canary(0)]) as batch:
            yield weakref.ref(batch)

    batches = []
    for _ in range(5):
        stream = streaming()
        batches.append(next(stream))
        closing = threading.Thread(target=stream.close)
        closing.start()
        closing.join(10.0)
        del stream
    with serving.running(["someone"]):
        pass
    gc.collect()
    assert [batch() for batch in batches] == [None] * 5


def test_rows_that_nobody_waits_for_any_more_are_not_struck(agent: Attached, model: Any) -> None:
    lease = agent.put("kv_cache_noise", after_tokens=3)
    with torch.inference_mode(), serving.running([agent.canary(0), agent.canary(1)]):
        for step, _ in enumerate(decode(model, [spoken(0), spoken(1)], 6)):
            if step == 1:
                serving.finished(0)
    assert agent.release(lease)["applied"] == 1


def test_a_batch_of_another_size_than_was_said_is_nobodys(agent: Attached, model: Any) -> None:
    lease = agent.put("kv_cache_noise")
    with torch.inference_mode(), serving.running([agent.canary(0)]):
        list(decode(model, [spoken(0), spoken(1)], 4))
    shown = agent.release(lease)
    assert (shown["matched"], shown["applied"], shown["errored"]) == (0, 0, 0)
