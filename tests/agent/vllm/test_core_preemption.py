"""Requests preempted in the middle of a real vLLM's answers: the text is that of a twin that never was."""

import pytest

from tests.agent.vllm.client import Canaries, Client, first_change, together
from tests.agent.vllm.leases import holding
from tests.agent.vllm.server import Server

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
TOKENS = 96


def test_a_preempted_answer_is_its_twins_and_bystanders_go_on(
    server: Server, client: Client, canaries: Canaries, prompt: str
):
    twin, other = client.chat(prompt, tokens=TOKENS), client.chat("aside " + prompt, tokens=TOKENS)
    before = client.metrics()["vllm:num_preemptions_total"]
    with holding(server, "forced_preemption", {"after_tokens": 16, "times": 3}) as held:
        held.begun()
        name = canaries.next()
        preempted, aside = together(
            lambda: client.chat(prompt, tokens=TOKENS, request_id=name),
            lambda: client.chat("aside " + prompt, tokens=TOKENS),
        )
    assert first_change(preempted, twin) is None
    assert first_change(aside, other) is None
    assert client.metrics()["vllm:num_preemptions_total"] - before == 3
    found = held.read()
    assert found["matched"] == 1 and found["applied"] == 1 and found["errored"] == 0
    assert found["engine"]["requests"] == {name: 3}
    assert found["achieved"]["output_tokens"]["min"] == 16 and found["achieved"]["output_tokens"]["max"] == 48


def test_an_answer_shorter_than_that_is_not_preempted(server: Server, client: Client, canaries: Canaries, prompt: str):
    before = client.metrics()["vllm:num_preemptions_total"]
    with holding(server, "forced_preemption", {"after_tokens": 64, "times": 1}) as held:
        held.begun()
        assert client.chat(prompt, tokens=16, request_id=canaries.next()).status == 200
    assert client.metrics()["vllm:num_preemptions_total"] == before
    assert held.read()["applied"] == 0


def test_observing_matches_and_preempts_nobody(server: Server, client: Client, canaries: Canaries, prompt: str):
    before = client.metrics()["vllm:num_preemptions_total"]
    with holding(server, "forced_preemption", {"after_tokens": 2}, mode="observe") as held:
        assert client.chat(prompt, tokens=16, request_id=canaries.next()).status == 200
    assert client.metrics()["vllm:num_preemptions_total"] == before
    found = held.read()
    assert (found["matched"], found["applied"]) == (1, 0)


def test_a_limit_is_kept(server: Server, client: Client, canaries: Canaries, prompt: str):
    before = client.metrics()["vllm:num_preemptions_total"]
    with holding(server, "forced_preemption", {"after_tokens": 4}, {"limit": 1}) as held:
        held.begun()
        for _ in range(3):
            assert client.chat(prompt, tokens=8, request_id=canaries.next()).status == 200
    assert client.metrics()["vllm:num_preemptions_total"] - before == 1
    found = held.read()
    assert (found["applied"], found["ended_by"]) == (1, "limit")
