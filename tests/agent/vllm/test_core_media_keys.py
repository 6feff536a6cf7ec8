"""Media keys cut to a few bits in a real vLLM: canaries are answered from one another's pictures, nobody else is."""

import pytest

from chaos_mm.core.errors import Forbidden
from tests.agent.vllm.client import Answer, Canaries, Client, picture
from tests.agent.vllm.leases import LIVE, arm, holding
from tests.agent.vllm.server import Server

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
PICTURES = [picture(seed) for seed in range(17)]
"""One more than there are keys of 4 bits, so that two of them must share one."""
TOKENS = 8


def ask(client: Client, image: str, text: str, request_id: str = "") -> Answer:
    return client.chat(text, tokens=TOKENS, images=[image], request_id=request_id)


@pytest.fixture(scope="module")
def clean(server: Server) -> list[Answer]:
    """What each picture is answered without any fault; all different, or nothing could be told from an answer."""
    answers = [ask(server.client, image, "what is shown here?") for image in PICTURES]
    assert len({answer.ids for answer in answers}) == len(PICTURES)
    return answers


def test_colliding_canaries_get_the_first_ones_answer_and_bystanders_their_own(
    server: Server, client: Client, canaries: Canaries, clean: list[Answer]
):
    own = {answer.ids: index for index, answer in enumerate(clean)}
    seen: list[int] = []
    with holding(server, "media_key_collision", {"bits": 4}) as held:
        held.begun()
        for index, image in enumerate(PICTURES):
            seen.append(own[ask(client, image, "what is shown here?", canaries.next()).ids])
            bystander = ask(client, image, "what is shown here?")
            assert bystander.ids == clean[index].ids
    # Each answer is that of some picture sent before or of its own; the first ever is right; one at least is wrong.
    assert all(answered <= index for index, answered in enumerate(seen))
    wrong = [index for index, answered in enumerate(seen) if answered != index]
    assert seen[0] == 0 and wrong
    # Whose key the first one holds keeps answering from it: a picture answered wrongly never answers for another.
    assert not set(wrong) & {answered for answered in seen if answered != seen.index(answered)}
    found = held.read()
    assert found["matched"] == found["applied"] == len(PICTURES) and found["errored"] == 0
    assert found["undo"]["proven"], found["undo"]
    assert found["undo"]["figures"]["flushed_entries"] == len(PICTURES) - len(wrong)
    for image, answer in zip(PICTURES, clean, strict=True):
        assert ask(client, image, "what is shown here?", canaries.next()).ids == answer.ids


def test_prefixes_with_a_cut_key_are_flushed_too(server: Server, client: Client, canaries: Canaries):
    long = "what is shown in the photo of a cat and a dog? " * 12  # several blocks behind the picture
    twin = ask(client, PICTURES[0], long)
    with holding(server, "media_key_collision", {"bits": 4}) as held:
        held.begun()
        answers = [ask(client, image, long, canaries.next()) for image in PICTURES]
        # A prefix of the same cut key and the same text is found again: the answer is another picture's.
        assert any(answer.cached_tokens for answer in answers)
    assert held.read()["undo"]["figures"]["flushed_blocks"] > 0
    again = ask(client, PICTURES[0], long, canaries.next())
    assert again.ids == twin.ids


def test_live_traffic_is_refused(server: Server):
    with pytest.raises(Forbidden, match="carries content between requests"):
        arm(server, "media_key_collision", {"bits": 4}, LIVE)
