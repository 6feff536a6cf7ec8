"""A server that keeps its callers: it accepts, and sends a byte now and then, for ever."""

import contextlib
import socket
import threading
from collections.abc import Iterator

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"


@contextlib.contextmanager
def trickling(head: bytes = b"", period: float = 0.2, port: int = 0) -> Iterator[str]:
    """Its URL. ``head`` is sent at once, then a byte every ``period`` seconds, so that no socket timeout ever fires."""
    closing = threading.Event()
    threads: list[threading.Thread] = []

    def feed(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.sendall(head)
            endless = HEAD if not head else b""
            sent = 0
            while not closing.wait(period):
                connection.sendall(endless[sent : sent + 1] or b" ")
                sent += 1

    def accept(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not closing.is_set():
                threads.append(threading.Thread(target=feed, args=(listening.accept()[0],), daemon=True))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", port)) as listening:
        acceptor = threading.Thread(target=accept, args=(listening,), daemon=True)
        acceptor.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            closing.set()
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # wakes accept
            for thread in [acceptor, *threads]:
                thread.join(5.0)
