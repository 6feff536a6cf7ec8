"""HTTP with one deadline for all of it: a peer that sends a byte now and then cannot keep the caller.

A socket's own timeout starts anew with every byte that comes and with every address of a host, and a resolver has a
mind of its own. Here each step gets only what is left of the deadline.
"""

import http.client
import io
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

__all__ = ["connect", "open_socket", "without_credentials"]

_LITERAL = re.compile(r"[0-9.]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*|localhost")
_LEAST_SECONDS = 0.001  # a timeout of zero would mean "do not block"


def connect(url: str, ends: float, ca_file: str | None = None) -> http.client.HTTPConnection:
    """A connection to ``http://``, ``https://`` or ``unix://``, not opened yet, that is over at ``ends`` (monotonic).

    Using it after that raises TimeoutError. ``ca_file``: what an https peer must be signed by; the system's when None.
    """
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return _Unix(parts.path, ends)
    if parts.scheme == "https":
        return _Https(parts.hostname or "", parts.port, ends, ssl.create_default_context(cafile=ca_file))
    return _Http(parts.hostname or "", parts.port, ends)


def without_credentials(url: str) -> str:
    """The URL as it may be shown: ``user:password@`` left out."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=host).geturl() if user else url


def _left(ends: float) -> float:
    left = ends - time.monotonic()
    if left < _LEAST_SECONDS:
        raise TimeoutError("timed out")
    return left


def open_socket(
    address: tuple[str, int], ends: float, lookup: Callable[..., Any] = socket.getaddrinfo
) -> socket.socket:
    """Connect to the first address of a host that takes it, by ``ends``. Raises OSError."""
    refused: OSError = OSError(f"{address[0]} has no address")
    for family, kind, protocol, _, found in _addresses(address, ends, lookup):
        plain = socket.socket(family, kind, protocol)
        try:
            plain.settimeout(_left(ends))
            plain.connect(found)
        except OSError as error:
            plain.close()
            refused = error
        except BaseException:
            plain.close()
            raise
        else:
            return plain
    raise refused


def _addresses(address: tuple[str, int], ends: float, lookup: Callable[..., Any]) -> list[Any]:
    """Looked up in a thread that may outlive its use: a resolver cannot be told to hurry. A literal needs none."""
    if _LITERAL.fullmatch(address[0]):
        return list(lookup(*address, 0, socket.SOCK_STREAM))
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(lookup(*address, 0, socket.SOCK_STREAM))
        except Exception as error:
            answers.put(error)

    threading.Thread(target=ask, name="chaos-mm-lookup", daemon=True).start()
    try:
        answer = answers.get(timeout=_left(ends))
    except queue.Empty:
        raise TimeoutError(f"timed out looking up {address[0]}") from None
    if isinstance(answer, Exception):
        raise answer
    return list(answer)


class _Http(http.client.HTTPConnection):
    def __init__(self, host: str, port: int | None, ends: float) -> None:
        super().__init__(host, port)
        self._ends = ends
        self._create_connection = lambda address, *_: open_socket(address, ends)

    def connect(self) -> None:
        super().connect()
        self.sock = _Timed(self.sock, self._ends)


class _Https(http.client.HTTPSConnection):
    def __init__(self, host: str, port: int | None, ends: float, context: ssl.SSLContext) -> None:
        super().__init__(host, port, context=context)
        self._ends = ends
        self._create_connection = lambda address, *_: open_socket(address, ends)

    def connect(self) -> None:
        super().connect()
        self.sock = _Timed(self.sock, self._ends)


class _Unix(_Http):
    def __init__(self, path: str, ends: float) -> None:
        super().__init__("localhost", None, ends)
        self._path = path

    def connect(self) -> None:
        plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            plain.settimeout(_left(self._ends))
            plain.connect(self._path)
        except BaseException:
            plain.close()
            raise
        self.sock = _Timed(plain, self._ends)


class _Timed:
    """As much of a socket as http.client uses."""

    def __init__(self, plain: socket.socket, ends: float) -> None:
        self._plain, self._ends = plain, ends

    def sendall(self, data: bytes) -> None:
        self._plain.settimeout(_left(self._ends))
        self._plain.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._plain, self._ends))

    def close(self) -> None:
        self._plain.close()


class _Reader(io.RawIOBase):
    def __init__(self, plain: socket.socket, ends: float) -> None:
        # A file of its own, since http.client closes the connection's socket while the answer is still being read.
        self._plain, self._file, self._ends = plain, plain.makefile("rb", buffering=0), ends

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._plain.settimeout(_left(self._ends))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()
