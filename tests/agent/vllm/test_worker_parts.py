"""What needs no server: rows at the merge, edits of attention's output, refusals by name, the plugin's silence."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from chaos_mm.agent.measuring import Reference
from chaos_mm.agent.vllm import gate
from chaos_mm.agent.vllm.adapter import VllmAdapter
from chaos_mm.agent.vllm.attention import Call, Patch, read_layers
from chaos_mm.agent.vllm.embeddings import MergedEmbedding, joined, replaced, rows_by_request, watch_merge
from chaos_mm.agent.vllm.facts import fault_refusal, seam_refusals
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.fault import Seam
from chaos_mm.faults import catalogue

FACTS: dict[str, Any] = {
    "version": "0.32.0",
    "runner": "V1",
    "device": "cpu",
    "backend": "CPU_ATTN",
    "groups": 1,
    "parallel": {"tensor": 1, "pipeline": 1, "data": 1},
    "speculative": False,
    "full_graphs": False,
    "connector": True,
    "module": "multi_modal_projector",
}


def item(rows: int, start: float, modality: str = "image") -> Any:
    made = torch.arange(rows * 4, dtype=torch.float32).reshape(rows, 4) + start
    made.modality = modality  # type: ignore[attr-defined]  # as vLLM marks its items
    return made


def merged(items: list[Any], mask: Any, text: Any) -> Any:
    """vLLM's merge in one line: the True tokens take the rows in order."""
    out = text.clone()
    out[mask] = torch.cat([i.reshape(-1, i.shape[-1]) for i in items])
    return out


def test_rows_belong_to_the_request_whose_tokens_take_them() -> None:
    scheduled = {"b": 5, "a": 7, "text": 3, "c": 4}
    mask = torch.tensor([0, 1, 1, 0, 0] + [1, 1, 0, 1, 1, 1, 0] + [0, 0, 0] + [0, 1, 1, 1], dtype=torch.bool)
    items = [item(2, 0), item(2, 100), item(3, 200, "audio"), item(3, 300)]
    found = dict(rows_by_request(["b", "a", "text", "c"], scheduled, items, mask))
    assert found == {"b": (0,), "a": (1, 2), "c": (3,)}
    groups = {rows.modality: rows for rows in joined("a", found["a"], items)}
    assert groups["image"].tensor.equal(items[1]) and groups["audio"].tensor.equal(items[2])
    clean, text = merged(items, mask, torch.zeros(19, 4)), torch.zeros(19, 4)
    before = [i.clone() for i in items]
    handed = list(items)
    replaced(handed, groups["audio"], groups["audio"].tensor + 1000)
    hurt = merged(handed, mask, text)
    changed = (hurt != clean).any(dim=1).nonzero().flatten().tolist()
    assert changed == [8, 9, 10], "the second item of a, and nobody else's rows"
    assert handed[2].modality == "audio"
    assert all(i.equal(was) for i, was in zip(items, before, strict=True)), "the encoder's cache keeps what it had"


def test_rows_that_fit_no_item_have_no_owner() -> None:
    mask = torch.tensor([1, 1, 1, 0], dtype=torch.bool)
    assert list(rows_by_request(["a"], {"a": 4}, [item(2, 0), item(2, 9)], mask)) == []


@pytest.mark.parametrize(("rows", "sizes"), [(7, [2, 5]), (4, [2, 2]), (1, [1, 0])])
def test_another_number_of_rows_is_handed_on_as_it_is(rows: int, sizes: list[int]) -> None:
    items = [item(2, 0), item(3, 50)]
    (group,) = joined("a", (0, 1), items)
    replaced(items, group, torch.ones(rows, 4))
    assert [len(i) for i in items] == sizes


def test_a_merged_embedding_keeps_a_reference_and_refuses_another_width() -> None:
    reference, first = Reference(), torch.randn(5, 8)
    value = MergedEmbedding("a", "projector_module", "image", first, reference)
    own = value.reference()
    assert own["count"] == 0 and own["std"] == pytest.approx(float(first.double().std(correction=0)))
    reference.add(first)
    reference.add(second := torch.randn(9, 8) * 3)
    both = torch.cat([first, second]).double()
    seen = value.reference()
    assert (seen["count"], seen["mean"], seen["std"]) == (
        2,
        pytest.approx(float(both.mean())),
        pytest.approx(float(both.std(correction=0))),
    )
    assert value.at("projector") and value.at("projector_module") and not value.at("vision")
    with pytest.raises(ValueError, match="rows of 8"):
        value.replace(torch.zeros(5, 7))


def test_the_merge_is_watched_on_this_model_alone_and_left_as_it_was() -> None:
    class Model:
        def embed_input_ids(self, ids: Any, embeddings: Any = None, *, is_multimodal: Any = None) -> Any:
            return ids, embeddings, is_multimodal

    watched, other, seen = Model(), Model(), []
    remove = watch_merge(watched, lambda items, mask: [*items, "more"] if not seen.append(len(items)) else [])
    assert watched.embed_input_ids(1, ["x"], is_multimodal="m") == (1, ["x", "more"], "m")
    assert watched.embed_input_ids(1) == (1, None, None) and watched.embed_input_ids(2, [], is_multimodal="m")[1] == []
    assert other.embed_input_ids(1, ["x"], is_multimodal="m") == (1, ["x"], "m") and seen == [1]
    remove()
    assert watched.embed_input_ids(1, ["x"], is_multimodal="m") == (1, ["x"], "m")


class Impl:
    """An implementation as vLLM's layers hold one: it writes twice the query into ``output``."""

    num_heads, head_size = 2, 3

    def forward(
        self, layer: Any, query: Any, key: Any, value: Any, cache: Any, metadata: Any, output: Any = None
    ) -> Any:
        output.copy_(query * 2)
        return output


def test_edits_reach_the_rows_of_the_selected_requests_alone() -> None:
    call = Call(0, 1, 2, 3, 4, "X", ("b",), {}, lambda: True)
    output = torch.arange(30, dtype=torch.float32).reshape(5, 6)
    expected = output.clone()
    expected[2:4, 3:] = 0  # head 1 of the two rows of b
    call.edit_output(lambda rows: None if rows[:, 1].zero_().any() else None)
    call.finish(output, {"a": (0, 2), "b": (2, 4), "c": (4, 5)})
    assert output.equal(expected)
    call.edits = [lambda rows: rows + 1]
    call.finish(output, {"a": (0, 2), "b": (2, 4), "c": (4, 5)})
    expected[2:4] += 1
    assert output.equal(expected)


def test_requests_of_a_batch_wait_together_and_sleeps_of_one_add_up() -> None:
    began = time.monotonic()
    one, other = (Call(0, 1, 2, 3, 4, "X", (name,), {}, lambda: True, began=began) for name in "ab")
    assert one.sleep(0.3) >= 0.3 and one.sleep(0.3) >= 0.3
    assert other.sleep(0.3) >= 0.6, "it was held as long as the batch was"
    assert 0.6 <= time.monotonic() - began < 0.85
    ended = Call(0, 1, 2, 3, 4, "X", ("a",), {}, lambda: False)
    assert ended.sleep(5.0) < 1.0


def test_the_class_is_patched_once_and_put_back() -> None:
    layer = SimpleNamespace(impl=Impl(), layer_name="m.layers.0.attn")
    context = {"m.layers.0.attn": layer, "m.layers.1.attn": SimpleNamespace(impl=Impl())}
    real, calls = Impl.forward, []

    def around(real: Any, impl: Any, layer: Any, args: Any, kwargs: Any) -> Any:
        calls.append(layer)
        return real(impl, layer, *args, **kwargs)

    patch = Patch(context, tuple(context), around)
    assert len(patch) == 1
    query, out = torch.ones(1, 2), torch.empty(1, 2)
    layer.impl.forward(layer, query, None, None, None, object(), output=out)
    assert out.equal(query * 2) and calls == [layer]
    patch.remove()
    assert Impl.forward is real


def test_layers_are_numbered_as_the_decoder_runs_them() -> None:
    names = [f"language_model.model.layers.{i}.self_attn.attn" for i in range(12)]
    context = {name: SimpleNamespace(impl=Impl()) for name in reversed(names)}
    found = read_layers(context, sorted(names))
    assert [found[name].index for name in names] == list(range(12)) and found[names[0]].heads == 2


@pytest.mark.parametrize(
    ("change", "seam", "word"),
    [
        ({"runner": "V2"}, Seam.EMBEDDING, "runner V2"),
        ({"runner": "V2"}, Seam.KV, "VLLM_USE_V2_MODEL_RUNNER=0"),
        ({"parallel": {"tensor": 2, "pipeline": 1, "data": 1}}, Seam.KV, "tensor parallel size 2"),
        ({"parallel": {"tensor": 1, "pipeline": 1, "data": 4}}, Seam.ATTENTION, "data parallel size 4"),
        ({"groups": 2}, Seam.EMBEDDING, "2 key-value cache groups"),
        ({"groups": 2}, Seam.KV, "hybrid"),
        ({"full_graphs": True}, Seam.ATTENTION, "full CUDA graphs"),
        ({"backend": "FLASHINFER"}, Seam.KV, "FLASHINFER"),
        ({"connector": False}, Seam.KV_LOAD, "--kv-transfer-config"),
        ({"module": ""}, Seam.EMBEDDING, "takes no media"),
        ({"speculative": True}, Seam.KV, "speculative"),
        ({}, Seam.GRADIENT, "does not train"),
    ],
)
def test_what_was_not_seen_working_is_refused_by_name(change: dict[str, Any], seam: Seam, word: str) -> None:
    assert word in seam_refusals({**FACTS, **change})[seam]


def test_nothing_else_is_refused() -> None:
    assert seam_refusals(FACTS).keys() == {Seam.GRADIENT}
    assert not any(fault_refusal(fault, FACTS) for name, fault in catalogue().items() if name.startswith("kv_"))
    assert "Q-Former" in fault_refusal(catalogue()["qformer_perturbation"], FACTS)


@pytest.fixture
def adapter() -> Iterator[VllmAdapter]:
    loop = asyncio.new_event_loop()
    yield VllmAdapter(None, loop, [{**FACTS, "refused": {"kv_load": "no connector", "gradient": "does not train"}}])
    loop.close()


def test_the_adapter_says_what_the_workers_have(adapter: VllmAdapter) -> None:
    assert adapter.seams == {Seam.KV, Seam.ATTENTION, Seam.EMBEDDING, Seam.ENGINE_MEMORY}
    assert adapter.seam_reason(Seam.KV_LOAD) == "no connector" and adapter.seam_reason(Seam.KV) == ""
    assert "vLLM of unknown version" in adapter.refusal(catalogue()["kv_cache_zero"]), "none is installed here"


def test_delays_hit_the_batch_and_edits_the_rows_of_the_selected(adapter: VllmAdapter) -> None:
    selectable = {name for name, fault in catalogue().items() if fault.seam and adapter.selectable(fault)}
    assert {"attention_head_drop", "kv_cache_noise", "embedding_shift"} <= selectable
    assert not selectable & {"attention_delay", "attention_timeout", "attention_hang", "attention_error"}


def test_what_vllm_does_not_survive_is_said_beforehand(adapter: VllmAdapter) -> None:
    fatal = {name for name, fault in catalogue().items() if adapter.fatal.get(fault.effect)}
    assert {"attention_error", "embedding_rows"} <= fatal and not fatal & {"attention_delay", "kv_cache_noise"}


def test_places_at_the_merge(adapter: VllmAdapter) -> None:
    shift = catalogue()["embedding_shift"]
    for place in ("projector", "multi_modal_projector"):
        adapter.check(shift, shift.bind({"place": place}))
    with pytest.raises(InvalidParams, match="place='qformer'.*'projector' or 'multi_modal_projector'"):
        adapter.check(shift, shift.bind({"place": "qformer"}))


def test_one_inert_worker_is_enough_to_refuse() -> None:
    loop = asyncio.new_event_loop()
    made = VllmAdapter(None, loop, [FACTS, {"inert": "the board is gone"}])
    loop.close()
    assert made.seams == frozenset() and made.seam_reason(Seam.KV) == "the board is gone"


@pytest.mark.parametrize(
    ("version", "environment", "word"),
    [
        ("0.32.1", {}, "vLLM 0.32.1 is not one"),
        ("0.33.0", {}, "0.33.0"),
        ("", {}, "unknown version"),
        ("0.32.0", {}, "CHAOS_MM_TOKEN_FILE is not set"),
        ("0.32.0", {"CHAOS_MM_TOKEN_FILE": "/no/such/file"}, "does not exist"),
    ],
)
def test_the_gate_names_what_is_wrong(version: str, environment: dict[str, str], word: str) -> None:
    assert word in gate.refusal(version, environment)


PROBE = """
import sys, logging
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from chaos_mm.agent.vllm.plugin import register
register(); register()
print(sorted(m for m in ("torch", "vllm", "numpy", "chaos_mm.agent.runtime") if m in sys.modules))
"""


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "[]"),
        ({"CHAOS_MM_AGENT": "0", "CHAOS_MM_TOKEN_FILE": "/no/such/file"}, "[]"),
        ({"CHAOS_MM_AGENT": "1"}, "chaos_mm agent is inert: vLLM of unknown version"),
    ],
)
def test_a_plugin_that_is_not_wanted_imports_nothing_and_says_why(environment: dict[str, str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    lines = done.stdout.splitlines()
    assert lines[-1] == "[]" and lines[0].startswith(said)
