"""Raw sockets for the proxy's tests: an upstream that keeps every byte it gets, and a client that shows every byte.

h11, an HTTP parser that is not the proxy's, says where messages end.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

import h11

READ_BYTES = 65536
_MOST_HEAD = 1 << 20


@dataclass
class Answer:
    """What the upstream writes, piece by piece; then whether it closes, or resets, the connection."""

    pieces: Sequence[bytes]
    close: bool = False
    reset: bool = False


@dataclass
class Message:
    """One request as it came: all its bytes, and as h11 read them."""

    raw: bytes
    head: h11.Request
    body: bytes

    def header(self, name: str) -> str:
        return next((value.decode("latin-1") for key, value in self.head.headers if key.decode() == name.lower()), "")


@dataclass
class RecordingUpstream:
    """A server of fixed answers."""

    answer: Callable[[Message], Answer]
    received: list[Message] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    connections: int = 0
    port: int = 0
    _open: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.authority}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer in self._open.values():
                writer.transport.abort()
            await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            while (message := await self._message(reader, writer)) is not None:
                self.received.append(message)
                if not await self._send(self.answer(message), writer):
                    break
        except (ConnectionError, h11.RemoteProtocolError):
            pass  # the client left in the middle
        finally:
            self.gone.set()
            self._open.pop(task)
            writer.close()

    async def _send(self, answer: Answer, writer: asyncio.StreamWriter) -> bool:
        for piece in answer.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if answer.reset:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            await asyncio.sleep(0.05)  # let the bytes leave before the reset
            writer.transport.abort()
        return not answer.close and not answer.reset

    async def _message(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Message | None:
        parser, raw, body, head = h11.Connection(h11.SERVER, _MOST_HEAD), [], [], None
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                if parser.they_are_waiting_for_100_continue:
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                    parser.send(h11.InformationalResponse(status_code=100, headers=[]))
                data = await reader.read(READ_BYTES)
                raw.append(data)
                parser.receive_data(data)
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return Message(b"".join(raw), head, b"".join(body))
            else:
                return None


class Client:
    """A connection that sends bytes and hands back the bytes of whole answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, url: str) -> Self:
        host, port = url.removeprefix("http://").rsplit(":", 1)
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, *pieces: bytes) -> bytes:
        """Send one request in pieces, after `Expect` only the head until told to go on; every byte of the answer."""
        expects = b"100-continue" in pieces[0]
        raw = bytearray()
        for index, piece in enumerate(pieces):
            if index == 1 and expects:
                raw += await self.reader.readuntil(b"\r\n\r\n")
            self.writer.write(piece)
            await self.writer.drain()
        return bytes(raw + await self._answer(pieces[0].split(b" ", 1)[0]))

    async def _answer(self, method: bytes) -> bytes:
        parser, raw = h11.Connection(h11.CLIENT, _MOST_HEAD), bytearray()
        parser.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        parser.send(h11.EndOfMessage())
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                data = await self.reader.read(READ_BYTES)
                raw += data
                parser.receive_data(data)
            elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
                return bytes(raw)

    async def until_reset(self) -> bool:
        """Whether the connection ends by a reset rather than by a plain end."""
        try:
            while await self.reader.read(READ_BYTES):
                pass
            return False
        except ConnectionResetError:
            return True

    async def close(self) -> None:
        """Close, whatever state it is in."""
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    def abort(self) -> None:
        self.writer.transport.abort()


def split(raw: bytes) -> tuple[list[bytes], bytes]:
    """Head lines and body of a raw message."""
    head, _, body = raw.partition(b"\r\n\r\n")
    return head.split(b"\r\n"), body
