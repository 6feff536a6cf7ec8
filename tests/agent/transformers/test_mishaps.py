"""What the agent itself fails at inside a request: the request goes on untouched, the failure is counted and told.

One inner function of each door is made to raise; the oracle is the same request without a lease.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from chaos_mm.core import serving
from chaos_mm.target.encoder_cache import EncoderCache
from chaos_mm.target.generation import decode
from tests.agent.transformers.attached import Attached, attached, hooked_modules
from tests.agent.transformers.prompts import spoken
from tests.agent.transformers.test_demo_media import look

pytestmark = pytest.mark.model
SECRET = "what a user wrote"
HERE = "chaos_mm.agent.transformers."


def broken(*given: Any, **named: Any) -> Any:
    raise KeyError(SECRET)


def errors(agent: Attached) -> int:
    count: int = agent.agent.adapter.facts["errors"]
    return count


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged of mishaps."""
    found = [record.getMessage() for record in caplog.records if "the request goes on" in record.getMessage()]
    assert SECRET not in caplog.text
    return found


@pytest.fixture
def cache(agent: Attached) -> EncoderCache:
    made = EncoderCache(lambda hit: None)
    serving.announce_cache(made)
    agent.proven("media_key")
    return made


@pytest.mark.parametrize(
    ("inner", "fault", "params"),
    [
        ("engine.given_tokens", "kv_cache_noise", {}),
        ("engine.find_cache", "kv_cache_noise", {}),
        ("engine.unsupported", "kv_cache_noise", {}),
        ("engine.row_starts", "attention_head_drop", {}),
        ("engine.KvView", "kv_cache_noise", {}),
        ("engine.TransformersEngine._note_struck", "kv_cache_noise", {}),
        ("engine.TransformersEngine.before_call", "attention_head_drop", {}),
        ("attention.Call", "attention_error", {"kind": "timeout"}),
        ("attention._edited", "attention_head_drop", {}),
        ("engine.TransformersEngine._hook_named_places", "embedding_shift", {}),
    ],
)
def test_a_failure_in_a_generation_leaves_the_very_bits_and_is_told_once(
    agent: Attached,
    generate: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    inner: str,
    fault: str,
    params: dict[str, Any],
) -> None:
    ids = ["someone", agent.canary(0), agent.canary(1)]
    clean = generate(ids)
    lease = agent.put(fault, **params)
    monkeypatch.setattr(HERE + inner, broken)
    for _ in range(2):
        assert torch.equal(generate(ids), clean)
    assert errors(agent) >= 2 and len(told(caplog)) == 1
    monkeypatch.undo()
    shown = agent.release(lease)
    assert shown["errored"] == 1 and "KeyError in test_mishaps.py" in shown["engine"]["last_error"], shown
    assert shown["undo"]["proven"] and torch.equal(generate(ids), clean)


def test_what_was_hurt_before_is_undone_while_the_agent_fails_at_every_step(
    agent: Attached, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = agent.put("kv_cache_zero", after_tokens=1, share=1.0)
    with torch.inference_mode(), serving.running([agent.canary(0)]):
        steps = decode(model, [spoken(0)], 8)
        next(steps), next(steps)
        monkeypatch.setattr(HERE + "engine.find_cache", broken)
        next(steps)
        agent.agent.point.control.book.release(lease.name, "r1")  # type: ignore[union-attr]
        next(steps)  # before it is computed, the bytes are put back
        restored = agent.agent.runtime.undo.held_bytes
        list(steps)
    shown = agent.ended(lease)
    assert restored == 0 and shown["undo"]["proven"] and shown["undo"]["figures"]["restored_elements"] > 0, shown
    assert (shown["applied"], shown["errored"]) == (1, 1), shown


def test_a_generation_that_was_lost_is_struck_no_more_and_the_next_one_is(
    agent: Attached, generate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which output token a step computes is not known any more, so a fault that waits for one would strike another."""
    from chaos_mm.agent.transformers import engine

    real, calls = engine.find_cache, []

    def once(*given: Any) -> Any:
        calls.append(given)
        return broken() if len(calls) == 2 else real(*given)

    clean = generate([agent.canary(0)])
    lease = agent.put("kv_cache_noise", after_tokens=3)
    monkeypatch.setattr(HERE + "engine.find_cache", once)
    assert torch.equal(generate([agent.canary(0)]), clean)
    assert not torch.equal(generate([agent.canary(0)]), clean)
    assert agent.release(lease)["applied"] == 1


@pytest.mark.parametrize(
    ("inner", "fault", "params"),
    [
        ("embeddings._source", "embedding_shift", {"shift_sigma": 3.0}),
        ("embeddings._parts", "embedding_shift", {"shift_sigma": 3.0}),
        ("embeddings._joined", "embedding_shift", {"shift_sigma": 3.0}),
        ("embeddings.EmbeddingSeam._observe", "embedding_shift", {"shift_sigma": 3.0}),
        ("stores._masked", "embedding_shift", {"shift_sigma": 3.0}),
        ("stores._masked", "media_key_collision", {"bits": 4}),
    ],
)
def test_a_failure_at_an_encoder_or_a_key_leaves_output_and_cache_whole(
    agent: Attached,
    model: Any,
    cache: EncoderCache,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    inner: str,
    fault: str,
    params: dict[str, Any],
) -> None:
    ids, pictures = ["someone", agent.canary(0)], [1, 2]
    clean = look(model, cache, ids, pictures)
    cache.evict(1.0)
    lease = agent.put(fault, **params)
    _until(lambda: fault != "media_key_collision" or bool(agent.agent.engine.keys.masks))
    monkeypatch.setattr(HERE + inner, broken)
    for _ in range(2):
        assert torch.equal(look(model, cache, ids, pictures), clean)
        cache.evict(1.0)
    assert errors(agent) >= 2 and len(told(caplog)) == 1
    monkeypatch.undo()
    shown = agent.release(lease)
    assert shown["errored"] == 1 and "KeyError in test_mishaps.py" in shown["engine"]["last_error"], shown
    assert torch.equal(look(model, cache, ids, pictures), clean)


def test_a_failure_at_a_batchs_end_lets_it_end(
    agent: Attached, generate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [agent.canary(0)]
    clean = generate(ids)
    lease = agent.put("kv_cache_swap")
    monkeypatch.setattr(HERE + "kv.FinishedCaches.keep", broken)
    assert torch.equal(generate(ids), clean)  # there is nobody yet whose cache could stand in its place
    assert not agent.agent.engine.quiet.busy and agent.agent.engine.in_flight(lease.name, "r1") == 0
    shown = agent.release(lease)
    assert shown["errored"] == 1 and "a batch's end" in shown["engine"]["last_error"], shown


def test_a_failure_at_a_gradient_lets_it_flow(agent: Attached, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queries, features = torch.rand(1, 6, 128), torch.rand(1, 96, 128)

    def gradient() -> Any:
        model.zero_grad()
        with serving.running([agent.canary(0)]):
            model.qformer(queries, encoder_hidden_states=features).last_hidden_state.square().sum().backward()
        return model.qformer.layernorm.weight.grad.clone()

    model.train()
    try:
        clean = gradient()
        agent.agent.point.mirror.proofs._tried_at = float("-inf")  # type: ignore[union-attr]  # it trains only now
        lease = agent.put("qformer_gradient_noise", sigma=0.5)
        monkeypatch.setattr(HERE + "embeddings.GradientView", broken)
        assert torch.equal(gradient(), clean)
        shown = agent.release(lease)
    finally:
        model.eval()
        model.zero_grad(set_to_none=True)
    assert (shown["applied"], shown["errored"], errors(agent)) == (0, 1, 1), shown


def test_a_cache_that_cannot_be_taken_up_is_served_all_the_same(
    agent: Attached, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = agent.agent.engine.kept
    monkeypatch.setattr(HERE + "engine.KeptView", broken)
    serving.announce_cache(EncoderCache(lambda hit: None))
    assert errors(agent) == 1 and agent.agent.engine.kept is before


def test_a_model_that_cannot_be_hooked_is_served_without_a_hook_and_refused(
    model: Any, generate: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = generate(["someone"])
    monkeypatch.setattr(HERE + "engine._hidden_layer", broken)  # when the decoder is hooked already
    with attached(tmp_path / "state", model) as agent:
        assert hooked_modules(model) == 0 and errors(agent) == 1 and not agent.agent.engine.attention.count
        assert "OmniModel could not be hooked" in agent.agent.adapter.refusal(_fault(agent))
        assert torch.equal(generate(["someone"]), clean)


def test_a_failing_measure_is_not_the_requests(
    model: Any, generate: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = generate(["someone"])
    with attached(tmp_path / "state", model, CHAOS_MM_AGENT_MEASURES="attention,embedding") as agent:
        monkeypatch.setattr("chaos_mm.agent.measuring.Measures.observe_attention", broken)
        assert torch.equal(generate([agent.canary(0)])[:, 0], clean[:, 0])
        assert errors(agent) > 0


def test_where_the_leases_themselves_cannot_be_told_it_is_counted_and_logged(
    agent: Attached,
    generate: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clean = generate([agent.canary(0)])
    lease = agent.put("kv_cache_noise")
    monkeypatch.setattr(agent.agent.runtime, "leases", broken)
    with caplog.at_level(logging.ERROR):
        assert torch.equal(generate([agent.canary(0)]), clean)
    assert errors(agent) > 0 and told(caplog)
    monkeypatch.undo()
    assert agent.release(lease)["applied"] == 0


@pytest.mark.parametrize("fault", ["kv_cache_noise", "attention_head_drop", "embedding_shift"])
def test_the_first_lease_is_given_at_once_after_the_agent_came_up(model: Any, tmp_path: Path, fault: str) -> None:
    """The whole of its proofs takes a fraction of a second; nobody has to ask twice."""
    with attached(tmp_path / "state", model) as agent:
        body = {"owner": "r1", "fault": fault, "ttl_seconds": 60, "keepalive_seconds": 60}
        assert agent.agent.point is not None
        began = time.monotonic()
        lease = agent.agent.point.control.book.put("first", body)
        assert time.monotonic() - began < 0.9
        agent.release(lease)


def _fault(agent: Attached) -> Any:
    assert agent.agent.point is not None
    return agent.agent.point.control.book.catalogue["kv_cache_noise"]


def _until(holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_a_server_whose_agent_cannot_start_loads_its_model_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from chaos_mm.agent.transformers.launch import Launch

    for name in ("CHAOS_MM_AGENT_BOARD", "CHAOS_MM_AGENT_NONCE", "CHAOS_MM_AGENT"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("CHAOS_MM_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "state").mkdir(mode=0o700)
    launch = Launch("a server")  # CHAOS_MM_AGENT is not 1 any more: whoever set it took it back
    launch.model(torch.nn.Linear(1, 1))
    launch._board.close()
    for said in ("stays inert in a server: it could not be started", "CHAOS_MM_AGENT is not 1"):
        assert said in caplog.text
