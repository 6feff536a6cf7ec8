"""The HTTP API with the real model behind it: answers, streams, usage, errors, metrics."""

import asyncio
import base64
import io
import json
import threading
from typing import Any

import numpy as np
import pytest
from aiohttp import FormData

from tests.target.sounds import audio_part, chat_body, image_part, picture, picture_file, sound_file, speech

pytestmark = pytest.mark.model
URL = "/v1/chat/completions"
TEXT = chat_body("repeat the code 4 0 7 2")


async def ask(client: Any, content: Any, **options: Any) -> dict[str, Any]:
    async with client.post(URL, json=chat_body(content, **options)) as response:
        assert response.status == 200, await response.text()
        return dict(await response.json())


def content_of(completion: dict[str, Any]) -> str:
    return str(completion["choices"][0]["message"]["content"])


async def events_of(client: Any, body: dict[str, Any]) -> list[dict[str, Any]]:
    async with client.post(URL, json=body) as response:
        assert response.headers["content-type"] == "text/event-stream"
        lines = [line for line in (await response.text()).split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines) and lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


@pytest.mark.parametrize(
    ("size", "kind"), [((192, 128), "png"), ((640, 480), "jpeg"), ((320, 180), "webp"), ((300, 300), "png")]
)
async def test_reads_a_picture(client: Any, size: tuple[int, int], kind: str) -> None:
    part = image_part(picture_file(picture("4072", size), kind.upper()), kind)
    assert content_of(await ask(client, [{"type": "text", "text": "what number is in the picture"}, part])) == "4072"


async def test_names_a_colour(client: Any) -> None:
    part = image_part(picture_file(picture("3141", ink="blue")))
    assert (
        content_of(await ask(client, [part, {"type": "text", "text": "What colour is the number in the picture?"}]))
        == "blue"
    )


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3"])
async def test_hears_speech(client: Any, kind: str) -> None:
    part = audio_part(sound_file(speech("4072"), file_format=kind.upper()), kind)
    assert content_of(await ask(client, [{"type": "text", "text": "what number is in the audio"}, part])) == "4072"


async def test_compares_picture_and_speech(client: Any) -> None:
    question = {"type": "text", "text": "is the spoken number the same as the one in the picture"}
    said = audio_part(sound_file(speech("4072")))
    for shown, right in (("4072", "yes"), ("4572", "no")):
        assert content_of(await ask(client, [question, image_part(picture_file(picture(shown))), said])) == right


async def test_the_question_decides(client: Any) -> None:
    media = [image_part(picture_file(picture("4072", ink="red"))), audio_part(sound_file(speech("9315")))]
    answers = {}
    for text in (
        "what number is in the picture",
        "what number is in the audio",
        "what colour is the number in the picture",
        "tea tastes better with a little honey",
        "",
    ):
        answers[text] = content_of(await ask(client, [{"type": "text", "text": text}, *media]))
    assert list(answers.values()) == ["4072", "9315", "red", "unknown", "unknown"]


async def test_completion_has_openai_shape(client: Any) -> None:
    async with client.post(URL, json=TEXT, headers={"x-request-id": "cmm-1"}) as response:
        assert response.headers["x-request-id"] == "cmm-1"
        completion = await response.json()
    assert completion["id"] == "chatcmpl-cmm-1" and completion["object"] == "chat.completion"
    choice = completion["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "4072"}
    assert choice["finish_reason"] == "stop" and choice["logprobs"] is None
    assert completion["usage"] == {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}


async def test_a_missing_or_odd_request_id_is_replaced(client: Any) -> None:
    for headers in ({}, {"x-request-id": "two words"}, {"x-request-id": "x" * 300}):
        async with client.post(URL, json=TEXT, headers=headers) as response:
            made = response.headers["x-request-id"]
            assert len(made) == 32 and (await response.json())["id"] == f"chatcmpl-{made}"


async def test_stream_has_vllms_chunks(client: Any) -> None:
    events = await events_of(client, {**TEXT, "stream": True, "stream_options": {"include_usage": True}})
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert [delta["content"] for delta in deltas[1:]] == ["4", "0", "7", "2", ""]
    assert [event["choices"][0]["finish_reason"] for event in events[:-1]] == [None] * 5 + ["stop"]
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 5
    assert len({event["id"] for event in events}) == 1


async def test_max_tokens_cuts(client: Any) -> None:
    completion = await ask(client, "repeat the code 4 0 7 2", max_tokens=2)
    assert content_of(completion) == "40" and completion["choices"][0]["finish_reason"] == "length"
    events = await events_of(client, {**TEXT, "stream": True, "max_tokens": 2})
    assert events[-1]["choices"][0]["finish_reason"] == "length"


async def test_logprobs_are_of_the_answers_tokens(client: Any) -> None:
    completion = await ask(client, "repeat the code 4 0 7 2", logprobs=True, top_logprobs=3)
    scores = completion["choices"][0]["logprobs"]["content"]
    assert [score["token"] for score in scores] == ["4", "0", "7", "2"]
    for score in scores:
        assert -0.7 < score["logprob"] <= 0 and score["top_logprobs"][0]["logprob"] == score["logprob"]
        assert len(score["top_logprobs"]) == 3 and sum(np.exp(t["logprob"]) for t in score["top_logprobs"]) <= 1.0001
    events = await events_of(client, {**TEXT, "stream": True, "logprobs": True})
    assert [event["choices"][0]["logprobs"]["content"][0]["token"] for event in events[1:5]] == ["4", "0", "7", "2"]
    assert events[0]["choices"][0]["logprobs"] is None and events[5]["choices"][0]["logprobs"] is None


async def test_many_at_once_each_get_their_own(client: Any) -> None:
    codes = [f"{n:04d}" for n in range(0, 10_000, 401)]
    given = await asyncio.gather(*(ask(client, f"repeat the code {code}") for code in codes))
    assert [content_of(completion) for completion in given] == codes


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b"{", 400, "not JSON"),
        (chat_body("x", max_tokens=0), 400, "max_tokens"),
        ({**TEXT, "model": "gpt-4"}, 404, "does not exist"),
        ({"messages": TEXT["messages"]}, 400, "model is missing"),
        (chat_body([image_part(b"no picture")]), 400, "cannot read image"),
        (chat_body([audio_part(b"no sound")]), 400, "cannot read audio"),
        (chat_body([audio_part(sound_file(np.random.default_rng(0).uniform(-1, 1, 48_000)))]), 400, "3.00 s long"),
        (chat_body("word " * 260), 400, "maximum context length is 256"),
        (chat_body("x" * 17_000_000), 413, "larger than"),
    ],
)
async def test_errors_are_openais_json(client: Any, body: Any, status: int, word: str) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with client.post(URL, data=io.BytesIO(data), headers={"content-type": "application/json"}) as response:
        assert response.status == status
        error = (await response.json())["error"]
    assert word in error["message"] and error["code"] == status and error["type"]


async def test_unknown_paths_and_methods_too(client: Any) -> None:
    for method, path, status in (("GET", "/v1/nothing", 404), ("GET", URL, 405)):
        async with client.request(method, path) as response:
            assert response.status == status and (await response.json())["error"]["code"] == status


async def test_models_and_health(client: Any) -> None:
    async with client.get("/v1/models") as response:
        card = (await response.json())["data"][0]
    assert card["id"] == "chaos-mm-tiny" and card["max_model_len"] == 256
    async with client.get("/health") as response:
        assert response.status == 200


def metric(text: str, name: str) -> float:
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


async def test_metrics_count_what_happened(client: Any) -> None:
    for _ in range(3):
        await ask(client, "repeat the code 4 0 7 2")
    await ask(client, "repeat the code 4 0 7 2", max_tokens=1)
    async with client.get("/metrics") as response:
        text = await response.text()
    label = '{model_name="chaos-mm-tiny"}'
    assert metric(text, f"vllm:prompt_tokens_total{label}") == 36
    assert metric(text, f"vllm:generation_tokens_total{label}") == 16
    assert metric(text, 'vllm:request_success_total{finished_reason="stop"') == 3
    assert metric(text, 'vllm:request_success_total{finished_reason="length"') == 1
    assert metric(text, f"vllm:time_to_first_token_seconds_count{label}") == 4
    assert metric(text, f"vllm:inter_token_latency_seconds_count{label}") == 12
    assert metric(text, f"vllm:e2e_request_latency_seconds_count{label}") == 4
    for name in ("running", "waiting"):
        assert f"vllm:num_requests_{name}{label} 0.0" in text


async def test_a_client_that_hangs_up_is_counted_as_an_abort(client: Any, model: Any) -> None:
    """The decoder is held until the client is gone; then the job ends unanswered."""
    entered, go_on = threading.Event(), threading.Event()

    def hold(module: Any, args: Any) -> None:
        entered.set()
        assert go_on.wait(20)

    hook = model.language_model.register_forward_pre_hook(hold)
    asking = asyncio.ensure_future(ask(client, "repeat the code 4 0 7 2"))
    try:
        assert await asyncio.to_thread(entered.wait, 20)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        async with client.get("/health") as response:  # the server has seen the closed connection by now, or soon
            assert response.status == 200
        await asyncio.sleep(0.1)
    finally:
        hook.remove()
        go_on.set()
    assert content_of(await ask(client, "repeat the code 1 2 3 4")) == "1234"
    async with client.get("/metrics") as response:
        assert metric(await response.text(), 'vllm:request_success_total{finished_reason="abort"') == 1


async def test_a_failing_model_is_500_and_its_words_stay_inside(client: Any, model: Any, caplog: Any) -> None:
    def explode(module: Any, args: Any) -> None:
        raise RuntimeError("PLANTED-SECRET")

    hook = model.language_model.register_forward_pre_hook(explode)
    try:
        async with client.post(URL, json=TEXT) as response:
            assert response.status == 500
            body = await response.text()
        stream = await events_of(client, {**TEXT, "stream": True})
    finally:
        hook.remove()
    assert "PLANTED-SECRET" not in body and json.loads(body)["error"]["code"] == 500
    assert stream[-1]["error"]["code"] == 500
    assert "RuntimeError" in caplog.text and "PLANTED-SECRET\n" not in caplog.text.replace(
        'raise RuntimeError("PLANTED-SECRET")', ""
    )


async def test_transcribes(client: Any) -> None:
    def form(**fields: str) -> FormData:
        made = FormData()
        made.add_field("file", sound_file(speech("4072")), filename="a.wav", content_type="audio/wav")
        for name, value in {"model": "chaos-mm-tiny", **fields}.items():
            made.add_field(name, value)
        return made

    url = "/v1/audio/transcriptions"
    async with client.post(url, data=form(language="en")) as response:
        assert await response.json() == {"text": "4072"}
    async with client.post(url, data=form(response_format="text")) as response:
        assert await response.text() == "4072"
    for data, status in (
        (form(model="x"), 404),
        (form(response_format="srt"), 400),
        ({"model": "chaos-mm-tiny"}, 400),
        (b"x", 400),
    ):
        async with client.post(url, data=data) as response:
            assert response.status == status and (await response.json())["error"]["code"] == status


async def test_embeds(client: Any) -> None:
    texts = ["what number is in the picture", "what number is in the image", "tea tastes better with a little honey"]
    async with client.post("/v1/embeddings", json={"model": "chaos-mm-tiny", "input": texts}) as response:
        answer = await response.json()
    vectors = np.array([entry["embedding"] for entry in answer["data"]])
    assert vectors.shape == (3, 128) and np.linalg.norm(vectors, axis=1) == pytest.approx(1)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    assert answer["usage"] == {"prompt_tokens": 22, "total_tokens": 22}
    body = {"model": "chaos-mm-tiny", "input": texts[0], "encoding_format": "base64"}
    async with client.post("/v1/embeddings", json=body) as response:
        packed = (await response.json())["data"][0]["embedding"]
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(packed), np.float32), vectors[0], atol=1e-6)


async def test_a_lone_surrogate_is_the_clients_error(client: Any) -> None:
    async with client.post(URL, json=chat_body("repeat the code \ud800")) as response:
        assert response.status == 400 and "text" in (await response.json())["error"]["message"]


@pytest.mark.parametrize("given", [None, 5, [], [5], ["x"] * 65, "word " * 256, ["tea \ud800"]])
async def test_bad_embedding_inputs_are_refused(client: Any, given: Any) -> None:
    async with client.post("/v1/embeddings", json={"model": "chaos-mm-tiny", "input": given}) as response:
        assert response.status == 400 and "input" in (await response.json())["error"]["message"]
