"""A real vLLM's encoder cache emptied and shrunk: the encoder works again, and every answer stays the same."""

import pytest

from tests.agent.vllm.client import Answer, Client, picture
from tests.agent.vllm.leases import LIVE, arm, holding
from tests.agent.vllm.server import Server
from tests.models import IMAGE_TOKENS

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
PICTURES = [picture(100 + seed) for seed in range(4)]


def ask(client: Client, image: str) -> Answer:
    return client.chat("what is shown here?", tokens=6, images=[image])


def test_evicted_outputs_are_computed_again_to_the_same_answers(server: Server, client: Client):
    before = [ask(client, image) for image in PICTURES]
    with holding(server, "encoder_cache_evict", {"share": 1.0}, LIVE) as held:
        achieved = held.applied()["achieved"]
        assert achieved["evicted_entries"]["max"] == achieved["entries_before"]["max"] >= len(PICTURES)
        assert achieved["entries_after"]["max"] == 0
        assert [ask(client, image).ids for image in PICTURES] == [answer.ids for answer in before]
    assert held.read()["undo"]["proven"]


def test_a_part_is_evicted_oldest_first(server: Server, client: Client):
    for image in PICTURES:
        ask(client, image)
    with holding(server, "encoder_cache_evict", {"share": 0.5}, LIVE) as held:
        achieved = held.applied()["achieved"]
        assert achieved["evicted_entries"]["max"] == -(-achieved["entries_before"]["max"] // 2)
        assert achieved["entries_after"]["max"] == achieved["entries_before"]["max"] // 2


def test_an_empty_cache_exercises_nothing(server: Server, client: Client):
    ask(client, PICTURES[0])
    with holding(server, "encoder_cache_evict", {"share": 1.0}, LIVE) as held:
        held.applied()
    second = arm(server, "encoder_cache_evict", {"share": 1.0}, LIVE)
    try:
        assert "none of the 0 entries" in second.failed()
    finally:
        second.release()


def test_a_shrunk_budget_still_serves_and_comes_back(server: Server, client: Client):
    before = [ask(client, image) for image in PICTURES]
    with holding(server, "encoder_budget_shrink", {"share": 1.0}, LIVE) as held:
        achieved = held.applied()["achieved"]
        full = achieved["budget_before"]["max"]
        assert achieved["budget_after"]["max"] == IMAGE_TOKENS, "one picture must still fit"
        assert [ask(client, image).ids for image in PICTURES] == [answer.ids for answer in before]
    assert held.read()["undo"]["proven"]
    with holding(server, "encoder_budget_shrink", {"share": 0.5}, LIVE) as again:
        achieved = again.applied()["achieved"]
        assert achieved["budget_before"]["max"] == full
        assert achieved["budget_after"]["max"] == round(full * 0.5)
