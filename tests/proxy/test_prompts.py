"""Completions and embeddings: strings and lists of strings, never token ids."""

import json

import pytest

from chaos_mm.proxy.policy import Undecodable
from chaos_mm.proxy.prompts import prompt_reader
from tests.proxy.conftest import Connect, StartProxy
from tests.proxy.traffic import post
from tests.proxy.wires import Answer, RecordingUpstream

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("hi", ["prompt"]),
        (["a", "b"], ["prompt[0]", "prompt[1]"]),
        (["a", [1, 2], "b"], ["prompt[0]", "prompt[2]"]),
        ([1, 2, 3], []),
        (None, []),
        ({"a": "b"}, []),
    ],
)
def test_where_the_text_stands(value: object, names: list[str]) -> None:
    body = json.dumps({"model": "m", "other": ["x"], "prompt": value}).encode()
    document = prompt_reader("prompt")(body, "application/json")
    assert [part.name for part in document.parts] == names
    assert document.model == "m"
    assert document.modalities == ({"text"} if names else set())


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"nonsense"])
def test_what_is_no_request(body: bytes) -> None:
    with pytest.raises(Undecodable):
        prompt_reader("input")(body, "application/json")


@pytest.mark.parametrize(("path", "member"), [("/v1/completions", "prompt"), ("/v1/embeddings", "input")])
async def test_a_prompt_is_cut(start_proxy: StartProxy, connect: Connect, path: str, member: str) -> None:
    words = " ".join(f"word{n}" for n in range(60))
    upstream = RecordingUpstream(lambda _: Answer([OK]))
    async with upstream.running(), start_proxy(upstream.url) as proxy:
        proxy.inject("text_token_truncation", params={"share": 0.5, "side": "tail"})
        body = json.dumps({"model": "m", member: [words, words]}).encode()
        await (await connect(proxy.url)).ask(post("x", body, path=path))
        sent = json.loads(upstream.received[0].body)[member]
        assert all(words.startswith(text.rstrip()) and len(text) < 0.7 * len(words) for text in sent)
        assert proxy.release()["applied"] == 1
