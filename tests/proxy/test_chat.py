"""Which parts of a chat request a fault can act on."""

import json

import pytest

from chaos_mm.core.fault import Target
from chaos_mm.proxy.chat import read_chat
from chaos_mm.proxy.policy import Undecodable
from tests.proxy.traffic import audio_part, image_part


def body(*messages: object) -> bytes:
    return json.dumps({"messages": messages, "model": "m-1"}).encode()


def found(*messages: object) -> list[tuple[str, str, str]]:
    data = body(*messages)
    return [(part.name, part.target.value, part.span.text(data)) for part in read_chat(data).parts]


def test_string_content_of_a_user_is_a_text_part() -> None:
    assert found({"role": "user", "content": "hi"}) == [("messages[0].content", "text", "hi")]


def test_texts_of_others_are_not_parts_but_their_media_are() -> None:
    picture = image_part(b"x")
    assert found(
        {"role": "system", "content": "rules"},
        {"role": "assistant", "content": [{"type": "text", "text": "said"}, picture]},
        {"role": "tool", "content": [picture]},
    ) == [
        ("messages[1].content[1]", "image", "data:image/jpeg;base64,eA=="),
        ("messages[2].content[0]", "image", "data:image/jpeg;base64,eA=="),
    ]


def test_content_parts() -> None:
    clip = {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,eA=="}}
    parts = [{"type": "text", "text": "a"}, image_part(b"x", "image/png"), audio_part(b"x"), clip]
    assert [row[1:] for row in found({"role": "user", "content": parts})] == [
        ("text", "a"),
        ("image", "data:image/png;base64,eA=="),
        ("audio", "eA=="),
        ("audio", "data:audio/wav;base64,eA=="),
    ]


def test_a_part_without_a_type_goes_by_its_member() -> None:
    part = {"image_url": {"url": "data:image/png;base64,"}}
    assert found({"role": "user", "content": [part]}) == [("messages[0].content[0]", "image", "data:image/png;base64,")]


def test_an_image_url_that_is_a_string() -> None:
    part = {"type": "image_url", "image_url": "data:image/png;base64,"}
    assert [row[2] for row in found({"role": "user", "content": [part]})] == ["data:image/png;base64,"]


@pytest.mark.parametrize(
    "content",
    [None, 3, {}, [], [None], [[]], [{}], [{"type": "video_url"}], [{"type": "text"}], [{"type": "text", "text": 4}]]
    + [[{"type": "image_url", "image_url": {"url": None}}], [{"type": "image_url", "image_url": ["data:"]}]],
)
def test_what_is_no_part_is_passed_over(content: object) -> None:
    assert found({"role": "user", "content": content}, "no message", {"content": "no role"}) == []


def test_model_and_modalities() -> None:
    chat = read_chat(body({"role": "user", "content": ["x", image_part(b""), audio_part(b"")]}))
    assert (chat.model, chat.modalities) == ("m-1", frozenset({"image", "audio"}))
    assert Target.IMAGE in {part.target for part in chat.parts}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b'{"messages": [NaN]}', "invalid_json"),
        (b'{"messages": "\xff"}', "invalid_json"),
        (b'{"messages": ["\\ud800"]}', "invalid_json"),
        ('{"messages": []}'.encode("utf-16"), "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b"[]", "not_understood"),
        (b"{}", "not_understood"),
        (b'{"messages": "no"}', "not_understood"),
    ],
)
def test_what_is_no_chat_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(Undecodable) as caught:
        read_chat(data)
    assert caught.value.reason == reason
