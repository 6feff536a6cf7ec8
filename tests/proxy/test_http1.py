"""Heads: parsed for framing, written back as they came."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos_mm.proxy.http1 import BadMessage, Body, RequestHead, ResponseHead, keeps_alive

RAW = b"POST /a?b HTTP/1.1\r\nHost: x\r\nX-A:1 \r\nx-a:\t2\r\nConnection: Keep-Alive, X-A\r\n\r\n"
token = st.text("abcXYZ019-_!#$%&'*+.^`|~", min_size=1, max_size=12)
value = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=20)


@settings(deadline=None)
@given(st.lists(st.tuples(token, value), max_size=8))
def test_an_untouched_head_is_the_same_bytes(fields: list[tuple[str, str]]) -> None:
    lines = "".join(f"{name}:{text}\r\n" for name, text in fields)
    raw = f"GET / HTTP/1.1\r\n{lines}\r\n".encode("latin-1")
    head = RequestHead.read(raw)
    assert head.encode() == raw
    assert [(n.decode(), v.decode("latin-1")) for n, v in head.fields] == [
        (name.lower(), text.strip(" \t")) for name, text in fields
    ]


def test_values_and_tokens() -> None:
    head = RequestHead.read(RAW)
    assert (head.method, head.target, head.path) == (b"POST", b"/a?b", "/a")
    assert head.values(b"x-a") == [b"1", b"2"]
    assert head.value(b"nope") is None
    assert head.tokens(b"connection") == {b"keep-alive", b"x-a"}


def test_put_replaces_in_place_and_keeps_the_spelling() -> None:
    head = RequestHead.read(RAW)
    head.put("HOST", b"y")
    head.put("New", b"1")
    assert head.encode().startswith(b"POST /a?b HTTP/1.1\r\nHost: y\r\nX-A:1 \r\n")
    assert head.encode().endswith(b"\r\nNew: 1\r\n\r\n")
    assert head.value(b"new") == b"1"


def test_drop_removes_every_line_of_a_field() -> None:
    head = RequestHead.read(RAW)
    head.drop([b"x-a"])
    assert head.encode() == b"POST /a?b HTTP/1.1\r\nHost: x\r\nConnection: Keep-Alive, X-A\r\n\r\n"


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/v1/%63hat", "/v1/chat"),
        ("http://h:1/v1/x?y", "/v1/x"),
        ("http://[x]/v1", "/v1"),
        ("http://h", "/"),
        ("*", "*"),
        ("//a/b", "//a/b"),
    ],
)
def test_the_path_that_routes(target: str, path: str) -> None:
    assert RequestHead.read(f"GET {target} HTTP/1.1\r\n\r\n".encode()).path == path


@pytest.mark.parametrize(
    ("method", "status", "lines", "body", "length"),
    [
        (b"GET", 200, "Content-Length: 5", Body.LENGTH, 5),
        (b"GET", 200, "Content-Length: 5\r\nContent-Length: 5", Body.LENGTH, 5),
        (b"GET", 200, "Transfer-Encoding: gzip, Chunked", Body.CHUNKED, 0),
        (b"GET", 200, "Transfer-Encoding: chunked\r\nContent-Length: 5", Body.CHUNKED, 0),
        (b"GET", 200, "Transfer-Encoding: gzip", Body.UNTIL_CLOSE, 0),
        (b"GET", 200, "X: 1", Body.UNTIL_CLOSE, 0),
        (b"HEAD", 200, "Content-Length: 5", Body.NONE, 0),
        (b"GET", 204, "Content-Length: 5", Body.NONE, 0),
        (b"GET", 304, "Content-Length: 5", Body.NONE, 0),
    ],
)
def test_where_an_answer_ends(method: bytes, status: int, lines: str, body: Body, length: int) -> None:
    framing = ResponseHead.read(f"HTTP/1.1 {status} X\r\n{lines}\r\n\r\n".encode()).framing(method)
    assert (framing.body, framing.length) == (body, length)


def test_an_answer_of_two_lengths_has_no_end() -> None:
    head = ResponseHead.read(b"HTTP/1.1 200\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")
    with pytest.raises(BadMessage):
        head.framing(b"GET")


def test_an_odd_line_in_an_answer_passes() -> None:
    raw = b"HTTP/1.1 299  odd \xff\r\nno colon here\r\n folded\r\nBad Name: 1\r\n\r\n"
    assert ResponseHead.read(raw).encode() == raw


@pytest.mark.parametrize("raw", [b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 20\r\n\r\n", b"ICY 200 OK\r\n\r\n"])
def test_what_is_no_answer(raw: bytes) -> None:
    with pytest.raises(BadMessage):
        ResponseHead.read(raw)


@pytest.mark.parametrize(
    ("version", "connection", "alive"),
    [("1.1", "x", True), ("1.1", "Close", False), ("1.0", "x", False), ("1.0", "Keep-Alive", True)],
)
def test_keep_alive(version: str, connection: str, alive: bool) -> None:
    head = RequestHead.read(f"GET / HTTP/{version}\r\nConnection: {connection}\r\n\r\n".encode())
    assert keeps_alive(head) is alive


def test_interim_answers() -> None:
    assert [ResponseHead.read(b"HTTP/1.1 %d \r\n\r\n" % s).interim for s in (100, 101, 103, 200)] == [
        True,
        False,
        True,
        False,
    ]
