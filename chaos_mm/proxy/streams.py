"""Byte streams with back-pressure: endpoints, body relays that keep the sender's framing, bounded buffering.

Bodies are forwarded in the framing they came in, chunk lines, extensions and trailers included. A relay holds at most
one read; when the sink is slow `drain` blocks, the source's reader fills up and TCP pushes back on the sender.
"""

import asyncio
import re
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from chaos_mm.proxy.http1 import MAX_HEAD_BYTES, BadMessage, Body, Framing

READ_BYTES = 64 * 1024
_MAX_CHUNK_LINE = 4096
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?\r\n")
_EMPTY_HEADS = 4
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER with a time of zero
_MAX_TRAILER_BYTES = MAX_HEAD_BYTES


class SourceBroken(Exception):
    """The sending side ended before its message did; `reset` when it was a reset, not a plain end."""

    def __init__(self, reset: bool) -> None:
        super().__init__("reset" if reset else "closed early")
        self.reset = reset


class SinkBroken(Exception):
    """The receiving side is gone."""


class WatchedReader(asyncio.StreamReader):
    """A reader that tells at once when its peer is gone, even while nobody reads."""

    def __init__(self) -> None:
        super().__init__(limit=READ_BYTES, loop=asyncio.get_running_loop())
        self.gone = False
        self.on_gone: Callable[[], object] | None = None

    def feed_eof(self) -> None:
        """Called by the transport at the peer's end of stream."""
        super().feed_eof()
        self._tell()

    def set_exception(self, exc: BaseException) -> None:
        """Called by the transport at a reset."""
        super().set_exception(exc)  # type: ignore[arg-type]
        self._tell()

    def _tell(self) -> None:
        self.gone = True
        if self.on_gone is not None:
            self.on_gone()


@dataclass(slots=True)
class Endpoint:
    """One side of the wire."""

    reader: WatchedReader
    writer: asyncio.StreamWriter
    _held: bytes = b""

    def send_soon(self, data: bytes) -> None:
        """Write with whatever is sent next, but in this turn of the event loop at the latest.

        A head and a body that is already here leave in one system call, which is what small messages cost most.
        """
        self._held += data
        asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Write what `send_soon` holds."""
        held, self._held = self._held, b""
        if held and not self.writer.is_closing():
            self.writer.write(held)

    async def send(self, data: bytes) -> None:
        """Write and wait while the peer is slow. Raises SinkBroken."""
        try:
            held, self._held = self._held, b""
            self.writer.write(held + data if held else data)
            await self.writer.drain()
        except (ConnectionError, TimeoutError, ssl.SSLError) as error:
            raise SinkBroken from error

    async def head(self) -> bytes | None:
        """The next head with its empty line; None at a clean end. Raises SourceBroken, BadMessage."""
        for _ in range(_EMPTY_HEADS):
            raw = await self._until_empty_line()
            # RFC 9112 §2.2: empty lines before a start line are to be ignored.
            if raw is None or raw.strip(b"\r\n"):
                return raw and raw.lstrip(b"\r\n")
        raise BadMessage("nothing but empty lines comes")

    async def _until_empty_line(self) -> bytes | None:
        try:
            return await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if error.partial.strip(b"\r\n"):
                raise SourceBroken(reset=False) from None
            return None
        except asyncio.LimitOverrunError:
            raise BadMessage(f"the head is longer than {READ_BYTES} bytes", 431) from None
        except (ConnectionError, TimeoutError, ssl.SSLError):
            raise SourceBroken(reset=True) from None

    def abort(self) -> None:
        """Close now; what was not sent yet is lost."""
        self.writer.transport.abort()

    def reset(self) -> None:
        """Close by a TCP reset, so that even an answer that ends with its connection does not look complete."""
        sock = self.writer.get_extra_info("socket")
        if sock is not None and not self.writer.transport.is_closing():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.abort()

    def end(self) -> None:
        """Close once everything has gone out, without waiting for that."""
        self.flush()
        self.writer.close()

    async def close(self) -> None:
        """Close, and wait until everything has gone out."""
        self.end()
        try:
            await self.writer.wait_closed()
        except (ConnectionError, TimeoutError, ssl.SSLError):
            self.abort()


async def connect(host: str, port: int, tls: ssl.SSLContext | None, patience_seconds: float) -> Endpoint:
    """Open the upstream side. Raises OSError (TimeoutError included)."""
    loop = asyncio.get_running_loop()
    reader = WatchedReader()
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    name = host if tls is not None else None
    async with asyncio.timeout(patience_seconds):
        transport, _ = await loop.create_connection(lambda: protocol, host, port, ssl=tls, server_hostname=name)
    return Endpoint(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


@contextmanager
def source_errors() -> Iterator[None]:
    """Around reads of a body: turn every way to fail into SourceBroken or BadMessage."""
    try:
        yield
    except (asyncio.IncompleteReadError, EOFError):
        raise SourceBroken(reset=False) from None
    except asyncio.LimitOverrunError:
        raise BadMessage("a chunk line is too long") from None
    except (ConnectionError, TimeoutError, ssl.SSLError):
        raise SourceBroken(reset=True) from None


def pieces(reader: asyncio.StreamReader, framing: Framing) -> AsyncGenerator[tuple[bytes, bytes], None]:
    """A body as (raw bytes as framed, payload bytes) pairs, each as soon as it is there; read under `source_errors`."""
    if framing.body is Body.CHUNKED:
        return _chunks(reader)
    if framing.body is Body.UNTIL_CLOSE:
        return _until_close(reader)
    return _counted(reader, framing.length if framing.body is Body.LENGTH else 0)


async def _some(reader: asyncio.StreamReader, most: int) -> bytes:
    data = await reader.read(min(most, READ_BYTES))
    if not data:
        raise EOFError
    return data


async def _counted(reader: asyncio.StreamReader, left: int) -> AsyncGenerator[tuple[bytes, bytes], None]:
    while left:
        data = await _some(reader, left)
        left -= len(data)
        yield data, data


async def _until_close(reader: asyncio.StreamReader) -> AsyncGenerator[tuple[bytes, bytes], None]:
    while data := await reader.read(READ_BYTES):
        yield data, data


async def _chunks(reader: asyncio.StreamReader) -> AsyncGenerator[tuple[bytes, bytes], None]:
    """Chunked coding, RFC 9112 §7.1: the size line travels with the first bytes of its chunk."""
    while True:
        line = await reader.readuntil(b"\r\n")
        left = _chunk_size(line)
        if left == 0:
            break
        while left:
            data = await _some(reader, left)
            left -= len(data)
            end = b"" if left else await _chunk_end(reader)
            yield line + data + end, data
            line = b""
    raw, size = [line], 0
    while line != b"\r\n":
        line = await reader.readuntil(b"\r\n")
        raw.append(line)
        size += len(line)
        if size > _MAX_TRAILER_BYTES:
            raise BadMessage("the trailer section is too long")
    yield b"".join(raw), b""


async def _chunk_end(reader: asyncio.StreamReader) -> bytes:
    end = await reader.readexactly(2)
    if end != b"\r\n":
        raise BadMessage("a chunk does not end with CRLF")
    return end


def _chunk_size(line: bytes) -> int:
    found = _CHUNK_LINE.fullmatch(line)
    if found is None or len(line) > _MAX_CHUNK_LINE:
        raise BadMessage("a chunk size is not a hexadecimal number")
    return int(found[1], 16)


async def relay(source: asyncio.StreamReader, sink: Endpoint, framing: Framing, count: Callable[[int], object]) -> None:
    """Forward a body byte for byte. Raises SourceBroken, SinkBroken, BadMessage."""
    with source_errors():
        async with aclosing(pieces(source, framing)) as body:
            async for raw, _ in body:
                await sink.send(raw)
                count(len(raw))


async def tunnel(source: asyncio.StreamReader, sink: Endpoint, count: Callable[[int], object]) -> None:
    """Forward until the source ends, then pass the end on: one direction of an upgraded connection."""
    await relay(source, sink, Framing(Body.UNTIL_CLOSE), count)
    if sink.writer.can_write_eof():
        sink.writer.write_eof()
