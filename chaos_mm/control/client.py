"""Speaks to injection points: one connection a call, no proxies, no redirects, errors of the shared tree."""

import contextvars
import hmac
import http.client
import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from chaos_mm.control.deadline import ends_at
from chaos_mm.control.timed import connect, without_credentials
from chaos_mm.control.token import proof, read_token
from chaos_mm.core.errors import BadRequest, ChaosMMError, PointUnreachable, Unauthorized, by_kind


class ControlClient:
    """A client of one point.

    ``url``: ``http://host:port``, ``https://host:port`` or ``unix:///path``. ``token``: as text; read from its file at
    the first call that needs it when None. Before that call the point must prove that it knows the same token.
    ``timeout`` in seconds, for each call as a whole: proof, request and the last byte of the answer.
    """

    def __init__(self, url: str, token: str | None = None, *, token_file: Path | None = None, timeout: float = 2.0):
        try:
            url = without_credentials(url)  # they would go nowhere but into messages
            parts = urlsplit(url)
            _ = parts.port
        except ValueError as error:
            raise BadRequest(f"{url.rpartition('@')[2]!r} is no control URL: {error}") from None
        # unix://a/b would quietly mean /b, and unix:///a?b the file "a": both are refused.
        whole = not (parts.netloc or parts.query or parts.fragment)
        named = whole and parts.path.strip("/") if parts.scheme == "unix" else parts.hostname
        if parts.scheme not in ("http", "https", "unix") or not named:
            raise BadRequest(
                f"{url!r} is no control URL; it must be http://host:port, https://host:port or unix:///path"
            )
        self.url, self.timeout = url.rstrip("/"), timeout
        self._token, self._token_file, self._rereads = token, token_file, token is None
        self._proven = False

    def health(self) -> dict[str, Any]:
        """Who answers: ``{"ok", "point", "armed", "stopped", "version", "catalogue", "instance"}``; needs no token."""
        found = self._call("GET", "/health", with_token=False)
        if not isinstance(found, dict) or "catalogue" not in found:
            raise PointUnreachable(f"{self.url} answers, but is no chaos_mm point")
        return found

    def faults(self) -> list[dict[str, Any]]:
        """The declarations this point can inject."""
        return self._list("faults", self._call("GET", "/faults"))

    def put_lease(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create or renew a lease."""
        return self._object(self._call("PUT", f"/leases/{quote(name, safe='')}", body))

    def keepalive(self, name: str, owner: str) -> dict[str, Any]:
        """Push the dead-man's deadline out."""
        return self._object(self._call("POST", f"/leases/{quote(name, safe='')}/keepalive", {"owner": owner}))

    def leases(self, owner: str = "") -> list[dict[str, Any]]:
        """Every lease, live and recently ended."""
        return self._list("leases", self._call("GET", _with_query("/leases", owner=owner)))

    def lease(self, name: str, owner: str = "") -> dict[str, Any]:
        """One lease; raises UnknownLease."""
        return self._object(self._call("GET", _with_query(f"/leases/{quote(name, safe='')}", owner=owner)))

    def release(self, name: str, owner: str, force: bool = False) -> dict[str, Any]:
        """End a lease; ``{"gone", "lease", "instance"}``. Gone is success."""
        path = _with_query(f"/leases/{quote(name, safe='')}", owner=owner, force="1" if force else "")
        answer = self._object(self._call("DELETE", path))
        if "lease" not in answer or "gone" not in answer:
            raise self._foreign()
        return answer

    def stop(self) -> dict[str, Any]:
        """Release everything and refuse new leases."""
        return self._object(self._call("POST", "/stop"))

    def clear_stop(self) -> dict[str, Any]:
        """Lift the stop latch."""
        return self._object(self._call("DELETE", "/stop"))

    def get(self, path: str, **query: Any) -> Any:
        """The JSON at a point's own route."""
        return self._call("GET", _with_query(path, **query))

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """PUT JSON at a point's own route."""
        return self._call("PUT", path, body)

    def delete(self, path: str, **query: Any) -> Any:
        """DELETE at a point's own route."""
        return self._call("DELETE", _with_query(path, **query))

    def text(self, path: str, **query: Any) -> str:
        """The text at a route (metrics, NDJSON)."""
        return self._exchange("GET", _with_query(path, **query), None, True)[1].decode()

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None, with_token: bool = True) -> Any:
        status, answer = self._exchange(method, path, body, with_token)
        try:
            return json.loads(answer)
        except ValueError:
            raise PointUnreachable(f"{self.url} answers {status}, but not as a chaos_mm point does") from None

    def _object(self, answer: Any) -> dict[str, Any]:
        if not isinstance(answer, dict):
            raise self._foreign()
        return answer

    def _list(self, name: str, answer: Any) -> list[dict[str, Any]]:
        found = self._object(answer).get(name)
        if not isinstance(found, list):
            raise self._foreign()
        return [self._object(one) for one in found]

    def _foreign(self) -> PointUnreachable:
        return PointUnreachable(f"{self.url} answers, but not as a chaos_mm point does")

    def _exchange(self, method: str, path: str, body: Mapping[str, Any] | None, with_token: bool) -> tuple[int, bytes]:
        ends = ends_at(self.timeout)
        if with_token:
            self._check_proof(ends)
        status, answer = self._send(method, path, body, with_token, ends)
        if status >= 400:
            raise _error(self.url, status, answer)
        return status, answer

    def _check_proof(self, ends: float) -> None:
        """Have the other side show that it knows the token before it is handed over: a stray server must not get it."""
        if self._proven:
            return
        for fresh in (False, True):
            token = self._current_token(fresh)
            nonce = secrets.token_hex(16)
            status, answer = self._send("GET", f"/health?nonce={nonce}", None, False, ends)
            if status >= 400:
                raise _error(self.url, status, answer)
            self._proven = hmac.compare_digest(_proof_in(self.url, answer), proof(token, nonce))
            if self._proven or not self._rereads:
                break
        if not self._proven:
            raise Unauthorized(
                f"the point at {self.url} has another token; both must read the same CHAOS_MM_TOKEN_FILE"
            )

    def _current_token(self, fresh: bool) -> str:
        if self._token is None or (fresh and self._rereads):
            self._token = read_token(self._token_file)
        return self._token

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, with_token: bool, ends: float
    ) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        if with_token:
            headers["Authorization"] = f"Bearer {self._current_token(fresh=False)}"
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        connection = connect(self.url, ends, os.environ.get("CHAOS_MM_CA_FILE"))
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise PointUnreachable(f"no point answers at {self.url}: {str(error) or type(error).__name__}") from None
        finally:
            connection.close()


class Points:
    """Several points of one kind as one, for injecting: all or nothing."""

    def __init__(self, urls: str | Sequence[str], token: str | None = None, timeout: float = 2.0) -> None:
        names = urls.split(",") if isinstance(urls, str) else urls
        self.clients = [ControlClient(url.strip(), token, timeout=timeout) for url in names if url.strip()]
        if not self.clients:
            raise BadRequest(f"{urls!r} names no control URL")

    def put_lease(self, name: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Inject at every point, or at none: what was begun is released before the error leaves.

        All are asked at once, so that each has the whole of ``timeout``: an agent may take long over its first lease.
        """
        asked = _each(self.clients, lambda client: client.put_lease(name, body))
        trouble = next((error for one in asked if (error := one.exception()) is not None), None)
        if trouble is not None:  # also where it timed out: it may have armed all the same
            for one in _each(self.clients, lambda client: client.release(name, str(body.get("owner", "")))):
                error = one.exception()  # what cannot be reached ends by keepalive: the first error is the one to show
                if error is not None and not isinstance(error, ChaosMMError):
                    raise error from trouble
            raise trouble
        return [one.result() for one in asked]


def _each(
    clients: Sequence[ControlClient], ask: Callable[[ControlClient], dict[str, Any]]
) -> list[Future[dict[str, Any]]]:
    """Ask all at once, each in a thread of its own; what each answered, or how it failed."""
    with ThreadPoolExecutor(len(clients), "chaos-mm-points") as pool:
        return [pool.submit(contextvars.copy_context().run, ask, client) for client in clients]


def _with_query(path: str, **query: Any) -> str:
    given = {name: str(value) for name, value in query.items() if value not in ("", None)}
    return f"{path}?{urlencode(given)}" if given else path


def _proof_in(url: str, answer: bytes) -> str:
    try:
        return str(json.loads(answer)["proof"])
    except (ValueError, LookupError, TypeError):
        raise PointUnreachable(f"{url} answers, but is no chaos_mm point") from None


def _error(url: str, status: int, answer: bytes) -> ChaosMMError:
    try:
        found = json.loads(answer)
        cls, text = by_kind()[found["kind"]], str(found["error"])
    except (ValueError, KeyError, TypeError):
        return PointUnreachable(f"{url} answers {status}, but not as a chaos_mm point does")
    return cls(text)
