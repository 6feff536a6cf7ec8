"""The engine: batching, cancelling, failing, refusing."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from chaos_mm.target import tokens
from chaos_mm.target.engine import MAX_WAITING, Engine, Failed, Finished, Job, Token, make_token
from chaos_mm.target.generation import ModelInput
from chaos_mm.target.metrics import Metrics
from chaos_mm.target.refusal import Refusal

pytestmark = pytest.mark.model


def prompt(code: str = "4072") -> ModelInput:
    return ModelInput(tokens.prompt_ids(tokens.text_ids(f"repeat the code {code}"), False, False))


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("tiny")


@pytest.fixture
def engine(model: Any, metrics: Metrics) -> Iterator[Engine]:
    made = Engine(model, metrics)
    yield made
    made.close()


def finished(metrics: Metrics, reason: str) -> float:
    labels = {"model_name": "tiny", "finished_reason": reason}
    value = metrics.registry.get_sample_value("vllm:request_success_total", labels)
    assert value is not None
    return value


async def read(job: Job) -> tuple[str, Finished | Failed]:
    ids = []
    while isinstance(event := await asyncio.wait_for(job.events.get(), 20), Token):
        ids.append(event.id)
    return tokens.answer_text(ids), event


async def test_what_waits_is_decoded_in_one_batch(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    engine.model.language_model.register_forward_pre_hook(
        lambda module, args, kwargs: sizes.append(len(kwargs["attention_mask"])), with_kwargs=True
    )
    jobs = [Job(prompt(f"{n:04d}"), 16) for n in range(20)]
    for job in jobs:
        engine.submit(job)
    engine.start()
    assert [(await read(job))[0] for job in jobs] == [f"{n:04d}" for n in range(20)]
    engine.model.language_model._forward_pre_hooks.clear()
    assert sorted(set(sizes)) == [4, 16]


async def test_short_and_long_answers_share_a_batch(engine: Engine) -> None:
    jobs = [Job(prompt(), limit) for limit in (1, 2, 16)]
    for job in jobs:
        engine.submit(job)
    engine.start()
    ends = [await read(job) for job in jobs]
    assert ends == [("4", Finished("length", 1)), ("40", Finished("length", 2)), ("4072", Finished("stop", 5))]


async def test_a_cancelled_job_is_dropped_and_counted(engine: Engine, metrics: Metrics) -> None:
    gone, stays = Job(prompt("1111"), 16), Job(prompt("2222"), 16)
    gone.cancel()
    engine.submit(gone)
    engine.submit(stays)
    engine.start()
    assert (await read(stays))[0] == "2222"
    assert gone.events.empty()
    assert (finished(metrics, "abort"), finished(metrics, "stop")) == (1, 1)


async def test_cancelling_while_it_is_decoded_stops_it(engine: Engine, metrics: Metrics) -> None:
    job = Job(prompt(), 16)
    seen = threading.Event()

    def cancel_after_prefill(module: Any, args: Any, output: Any) -> None:
        job.cancel()
        seen.set()

    hook = engine.model.language_model.register_forward_hook(cancel_after_prefill)
    engine.submit(job)
    engine.start()
    assert await asyncio.to_thread(seen.wait, 20)
    hook.remove()
    other = Job(prompt("1234"), 16)
    engine.submit(other)
    assert (await read(other))[0] == "1234"
    assert job.events.empty() and finished(metrics, "abort") == 1


async def test_a_model_that_raises_fails_its_batch_and_serves_on(engine: Engine, metrics: Metrics) -> None:
    def explode(module: Any, args: Any) -> None:
        raise RuntimeError("struck")

    hook = engine.model.language_model.register_forward_pre_hook(explode)
    job = Job(prompt(), 16)
    engine.submit(job)
    engine.start()
    _, end = await read(job)
    hook.remove()
    assert isinstance(end, Failed) and str(end.error) == "struck" and finished(metrics, "error") == 1
    again = Job(prompt(), 16)
    engine.submit(again)
    assert (await read(again))[0] == "4072"


async def test_too_many_waiting_is_refused(engine: Engine) -> None:
    for _ in range(MAX_WAITING):
        engine.submit(Job(prompt(), 1))
    with pytest.raises(Refusal) as caught:
        engine.submit(Job(prompt(), 1))
    assert caught.value.status == 503


def test_logprobs_are_log_softmax_and_finite() -> None:
    logits = torch.tensor([1.0, 2.0, 3.0])
    token = make_token(2, logits, 2)
    expected = (logits - logits.exp().sum().log()).tolist()
    assert token.logprob == pytest.approx(expected[2])
    assert [entry[0] for entry in token.top] == [2, 1]
    broken = make_token(0, torch.tensor([float("nan"), 1.0, float("-inf")]), 3)
    assert broken.logprob == -9999.0 and all(score == -9999.0 for _, score in broken.top)
    assert make_token(1, logits, None) == Token(1)
