"""``transformers serve``, its code untouched, with a tiny random LLaVA: faults from outside, by lease.

It computes one request at a time: that others are not hurt is shown by requests before, beside and after the victim.
"""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.agent.transformers.server import Server, ready_line, serving
from tests.models import tiny_llava

pytestmark = [pytest.mark.model, pytest.mark.live, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("fastapi", reason="transformers serve needs transformers[serving]")
    folder = tmp_path_factory.mktemp("serve")
    model = str(tiny_llava(folder / "tiny-llava"))
    words = ["transformers", "serve", model, "--host", "127.0.0.1", "--port", "{port}"]
    with serving(folder, words, model) as made:
        yield made


@pytest.fixture(scope="module")
def clean(server: Server) -> str:
    """The answer to picture 1, of a request that is nobody's canary."""
    return server.text("someone", 1)


def beside(server: Server, victim: str, other: str) -> tuple[str, str]:
    """Both at once, as far as the server lets them."""
    answers: dict[str, str] = {}
    threads = [
        threading.Thread(target=lambda name=name: answers.update({name: server.text(name, 1)}))
        for name in (victim, other)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers[victim], answers[other]


def test_the_agent_says_what_it_is_in(server: Server, clean: str) -> None:
    line, evidence = ready_line(server), server.evidence()
    assert line == {"ready": "agent", "control_url": server.control, "pid": server.process.pid}
    assert evidence["engine"]["runner"] == "transformers serve"
    assert evidence["engine"]["model"] == "LlavaForConditionalGeneration"
    assert evidence["engine"]["places"] == {"model.vision_tower": "vision", "model.multi_modal_projector": "projector"}
    assert evidence["workers"][0]["pid"] == server.process.pid and evidence["workers"][0]["steps"] >= 24
    answers = server.ask("x", 1, n=1)
    assert "chaos" not in answers.text and server.agent("GET", "/agent").status_code == 200


@pytest.mark.parametrize(
    ("fault", "params", "site"),
    [
        ("kv_cache_noise", {"sigma": 1.0, "after_tokens": 4}, "model.language_model"),
        ("kv_cache_zero", {}, "model.language_model"),
        ("embedding_shift", {"shift_sigma": 3.0, "place": "projector"}, "model.multi_modal_projector"),
        ("embedding_shift", {"shift_sigma": 3.0, "place": "vision"}, "model.vision_tower"),
        ("embedding_noise", {"sigma": 2.0, "place": "model.multi_modal_projector"}, "model.multi_modal_projector"),
        ("attention_head_drop", {"share": 1.0}, "model.language_model.layers.0"),
    ],
)
def test_a_canary_is_hurt_and_nobody_else(
    server: Server, clean: str, fault: str, params: dict[str, Any], site: str
) -> None:
    server.put(fault, **params)
    hurt, other = beside(server, server.canary(1), "bystander")
    after = server.text("another", 1)
    shown = server.release()
    assert hurt != clean and other == clean and after == clean
    assert (shown["matched"], shown["applied"], shown["errored"]) == (1, 1, 0), shown
    assert site in shown["sites"] and shown["undo"]["proven"], shown
    assert server.text(server.canary(2), 1) == clean


def test_a_delay_slows_its_request_and_those_behind_it_and_changes_no_answer(server: Server, clean: str) -> None:
    begin = time.monotonic()
    assert server.text(server.canary(3), 1) == clean
    usual = time.monotonic() - begin
    server.put("attention_delay", seconds=0.05)
    begin = time.monotonic()
    assert server.text(server.canary(4), 1) == clean
    slow = time.monotonic() - begin
    assert slow - usual > 0.5 * 24 * 2 * 0.05  # two layers a token; half of it, for the noise of this machine
    shown = server.release()
    assert shown["achieved"]["delay_seconds"]["count"] == 24 * 2 and shown["engine"]["batch_wide"] is True


@pytest.mark.parametrize("fault", ["attention_error", "embedding_rows"])
def test_an_error_costs_that_request_alone(server: Server, clean: str, fault: str) -> None:
    server.put(fault)
    assert server.ask(server.canary(5), 1).status_code == 500
    assert server.text("someone", 1) == clean
    assert server.release()["applied"] == 1
    assert server.text(server.canary(6), 1) == clean


def test_an_error_in_a_stream_ends_it_without_done(server: Server, clean: str) -> None:
    server.put("attention_error", kind="timeout", after_tokens=4)
    answer = server.ask(server.canary(7), 1, stream=True)
    server.release()
    assert answer.status_code == 200 and "[DONE]" not in answer.text
    assert "attention timed out" in answer.text
    assert server.text(server.canary(8), 1) == clean


def test_what_this_server_does_not_have_is_refused_by_name(server: Server) -> None:
    body = {"owner": "r1", "fault": "media_key_collision", "ttl_seconds": 5}
    answer = server.agent("PUT", "/leases/lease", body)
    assert answer.status_code == 409 and "no seam media_key" in answer.text


def test_hooks_stand_where_they_stood_and_nothing_is_pending(server: Server, clean: str) -> None:
    worker = server.evidence()["workers"][0]
    # The decoder, the attention wrapper, the vision tower and the projector.
    assert worker["hooks"] == 4 and worker["pending_undo"] == 0 and worker["lost_events"] == 0
