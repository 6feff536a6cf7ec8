"""The event stream reader, against cuts anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_mm.core.errors import TooLarge
from chaos_mm.load.sse import MAX_EVENT_BYTES, EventReader

STREAM = 'data: {"a": "é"}\n\n: a comment\r\nevent: x\rdata:two\r\ndata: lines\r\n\r\ndata: [DONE]\n\ndata: never ended'
EVENTS = ['{"a": "é"}', "two\nlines", "[DONE]"]


def read(chunks: list[bytes]) -> list[str]:
    reader = EventReader()
    return [event for chunk in chunks for event in reader.feed(chunk)]


def test_whole() -> None:
    assert read([STREAM.encode()]) == EVENTS


def test_byte_by_byte() -> None:
    data = STREAM.encode()
    assert read([data[i : i + 1] for i in range(len(data))]) == EVENTS


@given(st.lists(st.integers(0, len(STREAM.encode())), max_size=8))
def test_cut_anywhere(cuts: list[int]) -> None:
    data, places = STREAM.encode(), [0, *sorted(cuts), len(STREAM.encode())]
    assert read([data[a:b] for a, b in zip(places, places[1:], strict=False)]) == EVENTS


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert read([b"data: \xff\n\n"]) == ["�"]


@pytest.mark.parametrize("chunk", [b"data: " + b"x" * 4096, b"data: " + b"x" * 4096 + b"\n"])
def test_an_event_without_end_is_refused(chunk: bytes) -> None:
    with pytest.raises(TooLarge):
        read([chunk] * (MAX_EVENT_BYTES // 4096 + 1))


def test_a_line_end_that_was_cut_is_halved_once() -> None:
    assert read([b"data: x\r", b"\n", b"\n", b"data: y\n\n"]) == ["x", "y"]
