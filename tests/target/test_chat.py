"""Chat requests: what is read, and which field a refusal names."""

import base64
import json
from typing import Any

import pytest

from chaos_mm.target import chat
from chaos_mm.target.refusal import Refusal
from tests.target.sounds import audio_part, chat_body, image_part


def read(body: Any) -> chat.ChatRequest:
    return chat.read_chat(json.dumps(body).encode())


def test_a_string_and_parts_of_all_kinds() -> None:
    assert read(chat_body("repeat the code 4072")).text == "repeat the code 4072"
    asked = read(
        chat_body([{"type": "text", "text": "a"}, image_part(b"P"), audio_part(b"S"), {"type": "text", "text": "b"}])
    )
    assert (asked.text, asked.picture, asked.speech) == ("a b", b"P", b"S")


def test_messages_are_read_together() -> None:
    messages = [
        {"role": "system", "content": "be kind"},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "hi"},
    ]
    assert read({"model": "m", "messages": messages}).text == "be kind hi"


def test_an_image_url_may_be_a_plain_string() -> None:
    url = image_part(b"P")["image_url"]["url"]
    assert read(chat_body([{"type": "image_url", "image_url": url}])).picture == b"P"


def test_defaults_and_options() -> None:
    asked = read(chat_body("x"))
    assert (asked.max_tokens, asked.stream, asked.include_usage, asked.logprobs) == (16, False, False, None)
    options = {
        "max_tokens": 3,
        "stream": True,
        "stream_options": {"include_usage": True},
        "logprobs": True,
        "top_logprobs": 5,
    }
    asked = read(chat_body("x", temperature=0.0, seed=1, **options))
    assert (asked.max_tokens, asked.stream, asked.include_usage, asked.logprobs) == (3, True, True, 5)
    assert read(chat_body("x", max_completion_tokens=7, max_tokens=3)).max_tokens == 7


@pytest.mark.parametrize(
    ("body", "param", "word"),
    [
        ({"messages": []}, "messages", "empty"),
        ({"messages": "hi"}, "messages", "list"),
        ({}, "messages", "list"),
        ({"messages": ["hi"]}, "messages", "role"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages", "role"),
        (chat_body(7), "messages", "content"),
        (chat_body(["hi"]), "messages", "content"),
        (chat_body([{"type": "video_url"}]), "messages", "image_url"),
        (chat_body([{"type": "text"}]), "text", "str"),
        (chat_body([{"type": "image_url"}]), "image_url", "dict"),
        (chat_body([{"type": "image_url", "image_url": {"url": 5}}]), "url", "str"),
        (chat_body([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "aiff"}}]), "input_audio", "wav"),
        (chat_body([image_part(b"a"), image_part(b"b")]), "messages", "At most 1 image"),
        (chat_body([audio_part(b"a"), audio_part(b"b")]), "messages", "At most 1 audio"),
        (chat_body("x", max_tokens=0), "max_tokens", "at least 1"),
        (chat_body("x", max_tokens=True), "max_tokens", "int"),
        (chat_body("x", max_tokens="5"), "max_tokens", "int"),
        (chat_body("x", n=2), "n", "one answer"),
        (chat_body("x", stop=["4"]), "stop", "not supported"),
        (chat_body("x", stream="yes"), "stream", "bool"),
        (chat_body("x", top_logprobs=21), "top_logprobs", "0-20"),
        (chat_body("x", stream_options=[]), "stream_options", "dict"),
        (chat_body("tea \ud800"), "text", "surrogate"),
        (chat_body([{"type": "text", "text": "\udfff"}]), "text", "surrogate"),
        (chat_body([{"type": "image_url", "image_url": "data:image/png;base64,\ud83d"}]), "url", "surrogate"),
        ({**chat_body("x"), "model": "\ud800"}, "model", "surrogate"),
    ],
)
def test_refusals_name_the_field(body: Any, param: str, word: str) -> None:
    with pytest.raises(Refusal) as caught:
        read(body)
    assert caught.value.param == param and word in str(caught.value)
    assert caught.value.to_json()["error"]["code"] == 400


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"4", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(Refusal, match="body is"):
        chat.read_chat(body)


def test_any_text_that_unicode_knows_is_read() -> None:
    assert read(chat_body("tea \U0001f375 caf\xe9 \ud7ff\ue000")).text == "tea \U0001f375 caf\xe9 \ud7ff\ue000"


def test_contents_stay_out_of_repr_and_messages() -> None:
    secret = "PLANTED-SECRET"
    assert secret not in repr(read(chat_body(secret)))
    with pytest.raises(Refusal) as caught:
        read(chat_body([{"type": "image_url", "image_url": {"url": base64.b64encode(secret.encode()).decode()}}]))
    assert secret not in str(caught.value)
