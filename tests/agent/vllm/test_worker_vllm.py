"""Faults in the worker of a real vLLM: the targeted request changes, nobody beside it does, and it comes back.

Each claim is a comparison of log probabilities with clean runs of the same schedule; that requests truly shared steps
is proven by the worker's own step counter.
"""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from chaos_mm.core.errors import InvalidParams, NotInjectable
from tests.agent.vllm.client import Canaries, first_change, picture, together
from tests.agent.vllm.schedules import TOKENS, Schedule, lease, text, wait_until_proven
from tests.agent.vllm.server import Server

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]
STRUCK_AT = 6


@pytest.fixture(scope="module", autouse=True)
def _proven(server: Server) -> None:
    wait_until_proven(server, "kv", "attention", "embedding")


KV_FAULTS: Mapping[str, Mapping[str, Any]] = {
    "kv_cache_noise": {"sigma": 1.0},
    "kv_cache_bit_flip": {"share": 0.1, "bits": "sign"},
    "kv_cache_zero": {},
    "kv_cache_misread": {"what": "halves"},
}


@pytest.mark.parametrize("fault", KV_FAULTS)
def test_a_kv_fault_hurts_its_canary_from_the_very_token_and_nobody_else(
    server: Server, canaries: Canaries, fault: str
) -> None:
    schedule = Schedule.of(server)
    clean, again = schedule.overlapped(canaries), schedule.overlapped(canaries)
    assert first_change(clean.victim, again.victim) is None and first_change(clean.bystander, again.bystander) is None
    with lease(server, fault, after_tokens=STRUCK_AT, **KV_FAULTS[fault]) as evidence:
        hurt = schedule.overlapped(canaries)
    assert first_change(clean.victim, hurt.victim) == STRUCK_AT
    assert first_change(clean.bystander, hurt.bystander) is None
    found = evidence["found"]
    assert found["applied"] == found["matched"] >= 1 and found["errored"] == 0, found
    assert found["undo"]["proven"] and found["undo"]["figures"]["verified_blocks"] >= 1, found["undo"]
    for checked in found["engine"]["checksums"]:
        assert checked["changed"] and not checked["beside"]
    after = schedule.overlapped(canaries)
    assert first_change(clean.victim, after.victim) is None and first_change(clean.bystander, after.bystander) is None


def test_nonfinite_numbers_stay_with_their_canary(server: Server, canaries: Canaries) -> None:
    schedule = Schedule.of(server)
    clean = schedule.overlapped(canaries)
    with lease(server, "kv_cache_nonfinite", after_tokens=STRUCK_AT) as evidence:
        name = canaries.next()
        victim, bystander = together(lambda: schedule.victim(name), schedule.bystander)
    assert bystander.status == 200 and first_change(clean.bystander, bystander) is None
    assert victim.status != 200 or first_change(clean.victim, victim) == STRUCK_AT, victim
    assert evidence["found"]["applied"] == 1 and evidence["found"]["undo"]["proven"]
    after = schedule.overlapped(canaries)
    assert first_change(clean.victim, after.victim) is None and first_change(clean.bystander, after.bystander) is None


def test_swap_shows_a_canary_another_canarys_memory(server: Server, canaries: Canaries) -> None:
    schedule = Schedule.of(server)
    clean = schedule.overlapped(canaries)
    server.client.chat(text(8), tokens=TOKENS, request_id=canaries.next())  # whose blocks still stand
    with lease(server, "kv_cache_swap", after_tokens=STRUCK_AT) as evidence:
        hurt = schedule.overlapped(canaries)
    assert first_change(clean.victim, hurt.victim) == STRUCK_AT
    assert first_change(clean.bystander, hurt.bystander) is None
    assert evidence["found"]["undo"]["proven"], evidence["found"]["undo"]
    after = schedule.overlapped(canaries)
    assert first_change(clean.victim, after.victim) is None


def test_a_user_with_the_same_prompt_never_reads_a_hurt_block(server: Server, canaries: Canaries) -> None:
    client, words = server.client, text(9)
    clean = client.chat(words, tokens=TOKENS)
    with lease(server, "kv_cache_noise", sigma=1.0, after_tokens=0) as evidence:
        hurt = client.chat(words, tokens=TOKENS, request_id=canaries.next())
        user = client.chat(words, tokens=TOKENS)
    assert hurt.cached_tokens > 0 and first_change(clean, hurt) == 0, "a hit on the prefix cache, hurt from the start"
    assert user.cached_tokens > 0 and first_change(clean, user) is None
    assert evidence["found"]["undo"]["proven"] and evidence["found"]["applied"] == 1
    assert first_change(clean, client.chat(words, tokens=TOKENS)) is None


def test_blocks_that_were_freed_and_given_away_are_left_to_their_new_owner(server: Server, canaries: Canaries) -> None:
    client, words = server.client, text(9)
    others = [text(30) for _ in range(10)]  # 10 * 5 blocks and more of the 64: freed blocks must go round
    clean = [client.chat(other, tokens=4) for other in others]
    alone = client.chat(words, tokens=TOKENS)
    with lease(server, "kv_cache_noise", sigma=1.0, after_tokens=STRUCK_AT) as evidence:
        hurt = client.chat(words, tokens=TOKENS, request_id=canaries.next())
        found = [client.chat(other, tokens=4) for other in others]
    assert first_change(alone, hurt) == STRUCK_AT
    assert [first_change(one, other) for one, other in zip(clean, found, strict=True)] == [None] * len(others)
    undo = evidence["found"]["undo"]
    assert undo["proven"], undo
    assert [first_change(one, client.chat(other, tokens=4)) for one, other in zip(clean, others, strict=True)] == [
        None
    ] * len(others)
    assert first_change(alone, client.chat(words, tokens=TOKENS)) is None


def test_what_is_derived_from_the_damage_is_shared_with_nobody(server: Server, canaries: Canaries) -> None:
    client, words = server.client, text(9)
    clean = client.chat(words, tokens=3 * TOKENS)
    with lease(server, "kv_cache_noise", sigma=1.0, after_tokens=1) as evidence:
        hurt = client.chat(words, tokens=150, request_id=canaries.next())
        turns = [
            {"role": "user", "content": words},
            {"role": "assistant", "content": hurt.text},
            {"role": "user", "content": "and then"},
        ]
        during = client.chat("", tokens=TOKENS, messages=turns)  # a user whose prompt is the hurt request's text
    assert first_change(clean, hurt) == 1
    undo = evidence["found"]["undo"]
    assert undo["proven"] and undo["figures"]["derived_blocks"] >= 2, undo
    after = client.chat("", tokens=TOKENS, messages=turns)
    flush(server)
    fresh = client.chat("", tokens=TOKENS, messages=turns)
    assert fresh.cached_tokens == 0 and first_change(fresh, during) is None and first_change(fresh, after) is None


def test_attention_delay_slows_and_changes_nothing(server: Server, canaries: Canaries) -> None:
    schedule = Schedule.of(server)
    clean = schedule.overlapped(canaries)
    with lease(server, "attention_delay", selector="live", seconds=0.05) as evidence:
        slow = schedule.run(canaries)
    fast = schedule.run(canaries)
    assert first_change(clean.victim, slow.victim) is None and first_change(clean.bystander, slow.bystander) is None
    layers, made = 2, len(clean.victim.ids)
    assert slow.victim.seconds > layers * 0.05 * made > fast.victim.seconds
    assert first_change(clean.victim, fast.victim) is None
    engine = evidence["found"]["engine"]
    assert engine["batch_wide"] and any("CPU_ATTN" in site for site in evidence["found"]["sites"]), evidence["found"]
    assert evidence["found"]["achieved"]["delay_seconds"]["min"] >= 0.05


def test_a_missed_deadline_returns_late_because_the_engine_would_not_survive_an_error(
    server: Server, canaries: Canaries
) -> None:
    client, words = server.client, text(4)
    clean = client.chat(words, tokens=TOKENS, request_id=canaries.next())
    with lease(server, "attention_timeout", deadline_seconds=0.4, times=3) as evidence:
        late = client.chat(words, tokens=TOKENS, request_id=canaries.next())
    assert first_change(clean, late) is None and late.seconds > 3 * 0.4
    achieved = evidence["found"]["achieved"]
    assert achieved["held_seconds"]["min"] >= 0.4 and achieved["raised"]["max"] == 0, achieved


def test_a_hang_lasts_until_release(server: Server, canaries: Canaries) -> None:
    client, words = server.client, text(4)
    clean = client.chat(words, tokens=TOKENS, request_id=canaries.next())
    with ThreadPoolExecutor(1) as pool, lease(server, "attention_hang") as evidence:
        hung = pool.submit(client.chat, words, tokens=TOKENS, request_id=canaries.next())
        time.sleep(2.0)
        assert not hung.done() and server.client.healthy(), "green health, and nothing comes"
    after = hung.result(60)
    assert first_change(clean, after) is None and after.seconds > 2.0
    assert evidence["found"]["applied"] == 1 and evidence["found"]["undo"]["proven"]


def test_dropped_heads_change_the_rows_of_the_canary_alone(server: Server, canaries: Canaries) -> None:
    schedule = Schedule.of(server)
    clean = schedule.overlapped(canaries)
    with lease(server, "attention_head_drop", heads="0") as evidence:
        hurt = schedule.overlapped(canaries)
    assert first_change(clean.victim, hurt.victim) is not None
    assert first_change(clean.bystander, hurt.bystander) is None
    assert evidence["found"]["undo"]["proven"] and evidence["found"]["errored"] == 0
    after = schedule.overlapped(canaries)
    assert first_change(clean.victim, after.victim) is None


EMBEDDING_FAULTS: Mapping[str, Mapping[str, Any]] = {
    "embedding_shift": {"shift_sigma": 3.0},
    "embedding_noise": {},
    "embedding_replay": {},
}


@pytest.mark.parametrize("fault", EMBEDDING_FAULTS)
def test_an_embedding_fault_hurts_the_canarys_picture_alone(server: Server, canaries: Canaries, fault: str) -> None:
    server.client.chat("before", tokens=2, request_id=canaries.next(), images=[picture(7)])  # for a replay
    schedule = Schedule.of(server, words=7, images=(picture(11), picture(12)))
    clean, again = schedule.overlapped(canaries), schedule.overlapped(canaries)
    assert first_change(clean.victim, again.victim) is None and first_change(clean.bystander, again.bystander) is None
    flush(server)
    server.client.chat("before", tokens=2, request_id=canaries.next(), images=[picture(7)])
    with lease(server, fault, **EMBEDDING_FAULTS[fault]) as evidence:
        hurt = schedule.overlapped(canaries)
    found = evidence["found"]
    assert found["applied"] >= 1 and found["errored"] == 0, found
    assert first_change(clean.victim, hurt.victim) == 0
    assert first_change(clean.bystander, hurt.bystander) is None
    assert found["undo"]["proven"], found["undo"]
    after = schedule.overlapped(canaries)  # its picture stands in a full block: the block was evicted
    assert first_change(clean.victim, after.victim) is None


def flush(server: Server) -> None:
    """Let other prompts take every block, so that no picture comes from the prefix cache."""
    for _ in range(14):  # of 6 full blocks each; there are 63
        assert server.client.chat(text(40), tokens=1).prompt_tokens > 6 * 128


@pytest.mark.parametrize(
    ("fault", "params", "error", "word"),
    [
        ("qformer_perturbation", {}, NotInjectable, "Q-Former"),
        ("qformer_gradient_noise", {}, NotInjectable, "does not train"),
        ("kv_cache_load_failure", {}, NotInjectable, "--kv-transfer-config"),
        ("embedding_shift", {"place": "vision"}, InvalidParams, "cannot be reached"),
    ],
)
def test_what_this_vllm_does_not_allow_is_refused_by_name(
    server: Server, fault: str, params: dict[str, Any], error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word), lease(server, fault, **params):
        raise AssertionError("it was armed")
