"""Server-sent events, read as they arrive (WHATWG HTML, "Interpreting an event stream"): only ``data`` matters here."""

from collections.abc import Iterator

from chaos_mm.core.errors import TooLarge

MAX_EVENT_BYTES = 1 << 20


class EventReader:
    """Feeds on chunks cut anywhere, also inside a line end or a character; yields the data of each whole event."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._after_cr = False

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The events that ``chunk`` completes. Raises TooLarge for an event over 1 MiB."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk, self._after_cr = chunk[1:], False  # the second half of a line end that was cut
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._line += lines[0]
        for line in lines[1:]:
            yield from self._end_line()
            self._line += line
        self._bound()

    def _end_line(self) -> Iterator[str]:
        line, self._line = bytes(self._line), bytearray()
        if not line:
            if self._data:
                yield b"\n".join(self._data).decode("utf-8", "replace")
            self._data, self._size = [], 0
        elif line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
            self._size += len(line)
            self._bound()

    def _bound(self) -> None:
        if self._size + len(self._line) > MAX_EVENT_BYTES:
            raise TooLarge(f"an event of the stream has over {MAX_EVENT_BYTES} bytes")
