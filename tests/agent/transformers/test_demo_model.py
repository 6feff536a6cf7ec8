"""Faults at the seams of the demo target's model, row by row in padded batches, and nothing left of them.

The oracle is the same batch without a lease, and at the end a process that never had an agent.
"""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from chaos_mm.core import serving
from chaos_mm.core.errors import InvalidParams, NotInjectable
from chaos_mm.core.fault import Seam
from chaos_mm.target.generation import decode
from tests.agent.transformers.attached import Attached, attached, hooked_modules
from tests.agent.transformers.prompts import digest, first_change, spoken
from tests.house.conftest import ROOT

pytestmark = pytest.mark.model
Generate = Callable[..., Any]


@pytest.mark.parametrize("after", [1, 3])
@pytest.mark.parametrize(
    ("fault", "params"),
    [
        ("kv_cache_noise", {"sigma": 1.0}),
        ("kv_cache_zero", {"layers": "-1", "heads": "0,2"}),
        ("kv_cache_misread", {"what": "halves"}),
        ("kv_cache_nonfinite", {}),
        # A tenth of 3,072 elements: the default thousandth would leave one lease in twenty without a flip.
        ("kv_cache_bit_flip", {"positions": "first:4", "share": 0.1}),
    ],
)
def test_kv_faults_change_their_victims_alone_from_their_token_on(
    agent: Attached, generate: Generate, fault: str, params: dict[str, Any], after: int
) -> None:
    ids = ["someone", agent.canary(0), "another", agent.canary(1)]
    clean = generate(ids)
    lease = agent.put(fault, after_tokens=after, **params)
    struck = generate(ids)
    shown = agent.release(lease)
    changes = first_change(struck, clean)
    assert changes[0] is None and changes[2] is None
    assert all(step is not None and step >= after for step in (changes[1], changes[3]))
    assert (shown["matched"], shown["applied"], shown["errored"]) == (2, 2, 0)
    assert shown["undo"]["proven"] and shown["sites"] == {"language_model.model": 2}
    assert torch.equal(generate(ids), clean)


@pytest.mark.parametrize("fault", ["kv_cache_noise", "attention_head_drop"])
def test_hooks_ask_the_runtime_whether_they_may(
    agent: Attached, generate: Generate, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """One that was forked says no, and shares its parent's page, which says yes."""
    clean = generate([agent.canary(0)])
    lease = agent.put(fault)
    with monkeypatch.context() as patch:
        patch.setattr(agent.agent.runtime, "armed", lambda: False)
        assert torch.equal(generate([agent.canary(0)]), clean)
    assert not torch.equal(generate([agent.canary(0)]), clean)
    assert agent.release(lease)["applied"] == 1


@pytest.mark.parametrize(
    ("fault", "params"),
    [
        ("kv_cache_noise", {}),
        ("kv_cache_zero", {"share": 1.0}),
        ("kv_cache_zero", {"share": 1.0, "unit": "elements"}),
        ("kv_cache_misread", {"what": "stride"}),
        ("kv_cache_misread", {"what": "dtype"}),
        ("kv_cache_misread", {"what": "halves"}),
        ("kv_cache_bit_flip", {"share": 0.1}),
        ("kv_cache_nonfinite", {}),
    ],
)
def test_a_server_that_computes_gradients_along_is_hurt_alike(
    agent: Attached, model: Any, fault: str, params: dict[str, Any]
) -> None:
    """Parameters want gradients unless somebody says otherwise, and so the cache is part of a graph."""
    lease = agent.put(fault, **params)
    wanted = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        model.requires_grad_(True)
        with torch.enable_grad(), serving.running([agent.canary(0)]):
            logits = list(decode(model, [spoken(0)], 4))
    finally:
        for parameter, before in wanted:
            parameter.requires_grad_(before)
    shown = agent.release(lease)
    assert logits[-1].requires_grad and (shown["applied"], shown["errored"]) == (1, 0), shown


def test_the_same_request_is_hurt_alike_whatever_else_is_in_its_batch(agent: Attached, model: Any) -> None:
    """Logits may differ in their last bits between batches of other shapes; the damage itself may not."""

    def whole(cache: Any, row: int) -> Any:
        return torch.stack([getattr(layer, n)[row].clone() for layer in cache.layers for n in ("keys", "values")])

    def damage(ids: list[str], row: int) -> Any:
        caches: list[Any] = []
        hook = model.language_model.model.register_forward_hook(
            lambda module, args, kwargs, output: caches.append(kwargs["cache"]), with_kwargs=True
        )
        lease = agent.put("kv_cache_bit_flip")
        try:
            with torch.inference_mode(), serving.running(ids):
                steps = decode(model, [spoken(2 if i == row else 0) for i in range(len(ids))], 3)
                next(steps)
                before = whole(caches[0], row)
                next(steps)
                after = whole(caches[0], row)[..., : before.shape[-2], :]
                flipped: Any = before.view(torch.int32) ^ after.contiguous().view(torch.int32)
        finally:
            hook.remove()
            agent.release(lease)
        return flipped

    victim = agent.canary(7)
    alone, crowded = damage([victim], 0), damage(["a", "b", victim], 2)
    assert int((alone != 0).sum()) > 0
    assert torch.equal(alone, crowded[..., -alone.shape[-2] :, :])


def test_bytes_come_back_while_the_request_goes_on(agent: Attached, model: Any) -> None:
    caches: list[Any] = []
    hook = model.language_model.model.register_forward_hook(
        lambda module, args, kwargs, output: caches.append(kwargs["cache"]), with_kwargs=True
    )

    def tensors(length: int) -> list[Any]:
        return [getattr(layer, n)[:, :, :length].clone() for layer in caches[0].layers for n in ("keys", "values")]

    lease = agent.put("kv_cache_noise", sigma=1.0)
    try:
        with torch.inference_mode(), serving.running(["someone", agent.canary(0)]):
            steps = decode(model, [spoken(0), spoken(1)], 8)
            next(steps)
            length = caches[0].get_seq_length()
            clean = tensors(length)
            next(steps)
            hurt = tensors(length)
            assert all(
                torch.equal(a[0], b[0]) and not torch.equal(a[1], b[1]) for a, b in zip(hurt, clean, strict=True)
            )
            assert agent.agent.point is not None
            agent.agent.point.control.book.release(lease.name, "r1")
            next(steps)
            assert all(torch.equal(a, b) for a, b in zip(tensors(length), clean, strict=True))
            list(steps)
    finally:
        hook.remove()
    figures = agent.ended(lease)["undo"]["figures"]
    prompt = len(spoken(1).ids)
    assert figures["restored_elements"] == 3 * 2 * 128 * prompt and figures.get("skipped_elements", 0) == 0


def test_a_swap_takes_from_a_living_canary_and_from_one_that_has_finished(agent: Attached, generate: Generate) -> None:
    pair, alone = [agent.canary(0), agent.canary(1)], [agent.canary(2)]
    clean, clean_alone = generate(pair), generate(alone)
    lease = agent.put("kv_cache_swap")
    both, later = generate(pair), generate(alone)
    user = generate(["someone"])
    shown = agent.release(lease)
    assert all(step == 1 for step in first_change(both, clean))
    assert first_change(later, clean_alone) != [None]  # from one of the two that had finished
    assert torch.equal(user, clean_alone) and shown["applied"] == 3
    again = agent.put("kv_cache_swap")
    assert torch.equal(generate(alone), clean_alone)  # nobody else's was kept beyond the lease
    assert agent.release(again)["applied"] == 0


def test_dropped_heads_change_victims_alone_and_a_delay_changes_nothing(agent: Attached, generate: Generate) -> None:
    ids = ["someone", agent.canary(0), agent.canary(1)]
    clean = generate(ids)
    lease = agent.put("attention_head_drop", share=0.5)
    dropped = generate(ids)
    assert first_change(dropped, clean) == [None, 0, 0]
    assert set(agent.release(lease)["sites"]) == {f"language_model.model.layers.{i}" for i in range(3)}
    lease = agent.put("attention_delay", seconds=0.01)
    assert torch.equal(generate(ids), clean)
    shown = agent.release(lease)
    # Two victims share each of 8 x 3 calls, and each wait is waited once.
    assert shown["achieved"]["delay_seconds"]["count"] == 2 * 8 * 3
    assert sum(shown["sites"].values()) == 2 * 8 * 3 and shown["engine"]["batch_wide"] is True


def test_an_error_leaves_the_step_and_the_next_batch_is_whole(agent: Attached, generate: Generate) -> None:
    ids = ["someone", agent.canary(0)]
    clean = generate(ids)
    lease = agent.put("attention_error", kind="timeout", after_tokens=2, layers="1")
    with pytest.raises(TimeoutError, match="chaos_mm"):
        generate(ids)
    assert torch.equal(generate(["someone", "another"]), clean)
    shown = agent.release(lease)
    assert shown["applied"] == 1 and shown["sites"] == {"language_model.model.layers.1": 1}
    assert torch.equal(generate(ids), clean)


@pytest.mark.parametrize("site", ["attention", "kv_growth"])
def test_an_allocation_fails_as_often_as_asked(agent: Attached, generate: Generate, site: str) -> None:
    clean = generate(["someone"])
    agent.proven("engine_memory")
    lease = agent.put("allocation_failure", selector="live", site=site, times=1)
    while "times" not in lease.achieved:  # it is begun by a thread of its own
        agent.agent.point.mirror.drain()  # type: ignore[union-attr]
    assert (lease.matched, lease.applied) == (0, 0)  # nobody was hurt by its standing there
    with pytest.raises(torch.OutOfMemoryError, match=site):
        generate(["someone"])
    assert torch.equal(generate(["someone"]), clean)
    shown = agent.release(lease)
    assert (shown["matched"], shown["applied"], sum(shown["sites"].values())) == (1, 1, 1), shown


def test_an_allocation_that_nobody_makes_is_no_hit(agent: Attached, generate: Generate) -> None:
    agent.proven("engine_memory")
    lease = agent.put("allocation_failure", selector="live", site="encoder")
    while "times" not in lease.achieved:
        agent.agent.point.mirror.drain()  # type: ignore[union-attr]
    generate(["someone"])  # codes as text: no encoder is called
    shown = agent.release(lease)
    assert (shown["matched"], shown["applied"], shown["sites"]) == (0, 0, {})


def test_a_change_that_fails_leaves_the_very_bits_and_is_an_error(
    agent: Attached, generate: Generate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(output: Any, *rest: Any) -> None:
        output.zero_()
        raise ArithmeticError("half way")

    ids = ["someone", agent.canary(0)]
    clean = generate(ids)
    monkeypatch.setattr("chaos_mm.faults.attention_head_drop._edit", breaks)
    lease = agent.put("attention_head_drop", share=0.5)
    assert torch.equal(generate(ids), clean)
    shown = agent.release(lease)
    assert shown["errored"] == 1 and "half way" in shown["engine"]["last_error"], shown


def test_the_agents_own_canary_is_nobody_that_a_lease_hits(agent: Attached) -> None:
    """Seams are proven again while leases live, and a live lease matches whoever comes."""
    lease = agent.put("kv_cache_noise", selector="live")
    assert agent.agent.adapter.prove(Seam.KV) == ""
    shown = agent.release(lease)
    assert (shown["matched"], shown["applied"], shown["sites"]) == (0, 0, {}), shown


def test_a_cache_without_positions_in_order_is_refused_by_name() -> None:
    from transformers import LlamaConfig
    from transformers.cache_utils import DynamicCache, StaticCache

    from chaos_mm.agent.transformers.kv import unsupported

    config = LlamaConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=2)
    assert unsupported(DynamicCache(config=config)) == ""
    assert "StaticLayer" in unsupported(StaticCache(config=config, max_cache_len=8))
    assert unsupported(None) == "it generates without a key-value cache"


def test_a_withdrawn_model_has_no_hooks_and_comes_back_with_them(
    agent: Attached, model: Any, generate: Generate
) -> None:
    clean = generate(["someone"])
    serving.withdraw_model(model)
    assert hooked_modules(model) == 0 and agent.hooks() == 0
    with pytest.raises(NotInjectable, match="no model has been loaded"):
        agent.put("kv_cache_noise")
    serving.announce_model(model)
    lease = agent.put("kv_cache_noise")
    assert not torch.equal(generate([agent.canary(0)]), clean)
    agent.release(lease)
    assert torch.equal(generate(["someone"]), clean)


def test_a_server_that_cannot_be_met_refuses_everything(agent: Attached) -> None:
    from chaos_mm.agent.transformers.serve import CONTINUOUS

    agent.agent.adapter.refused = CONTINUOUS
    with pytest.raises(NotInjectable, match="batches continuously"):
        agent.put("kv_cache_noise")


def test_what_the_model_does_not_have_is_refused_by_name(agent: Attached) -> None:
    for fault, seam in (("kv_cache_pressure", "block_pool"), ("forced_preemption", "scheduler")):
        with pytest.raises(NotInjectable, match=f"no seam {seam}"):
            agent.put(fault, selector="live")
    with pytest.raises(NotInjectable, match="evaluation mode"):
        agent.put("qformer_gradient_noise")
    with pytest.raises(InvalidParams, match="place='nowhere'"):
        agent.put("embedding_shift", place="nowhere")
    adapter, faults = agent.agent.adapter, agent.agent.point.control.book.catalogue  # type: ignore[union-attr]
    with pytest.raises(InvalidParams, match="place='nowhere' is not in OmniModel; it has: audio, audio_projection"):
        adapter.check(faults["embedding_shift"], {"place": "nowhere"})
    with pytest.raises(InvalidParams, match="layers='3' is outside this engine's 0-2"):
        adapter.check(faults["kv_cache_noise"], {"layers": "3"})


@pytest.mark.timeout(400)
def test_two_hundred_cycles_leave_nothing_and_a_process_without_an_agent_agrees(
    model: Any, generate: Generate, tmp_path: Any
) -> None:
    from chaos_mm.agent.transformers import memory

    table = dict(sys.modules["transformers.models.llama.modeling_llama"].ALL_ATTENTION_FUNCTIONS._local_mapping)
    assert hooked_modules(model) == 0
    faults = ("kv_cache_noise", "attention_head_drop", "kv_cache_bit_flip", "kv_cache_swap")
    with attached(tmp_path / "state", model) as agent:
        agent.proven("kv", "attention", "embedding")
        standing, resident = agent.hooks(), 0
        for cycle in range(200):
            lease = agent.put(faults[cycle % len(faults)])
            generate([agent.canary(2 * cycle), agent.canary(2 * cycle + 1)], 3)
            shown = agent.release(lease)
            assert shown["applied"] == 2 and shown["undo"]["proven"], shown
            if cycle == 20:
                resident = memory.memory_facts("cpu")["used_bytes"]
        assert agent.hooks() == standing
        assert agent.agent.runtime.undo.held_bytes == 0
        assert memory.memory_facts("cpu")["used_bytes"] - resident < 24 << 20
        hooked = digest(generate(["a", "b", "c"], 8))
    assert hooked_modules(model) == 0
    assert table == dict(sys.modules["transformers.models.llama.modeling_llama"].ALL_ATTENTION_FUNCTIONS._local_mapping)
    argv = [sys.executable, "-m", "tests.agent.transformers.prompts", "3", "8"]
    never = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout.strip()
    assert digest(generate(["a", "b", "c"], 8)) == hooked == never
