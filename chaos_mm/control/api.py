"""The control API: pure functions from request to response over a lease book.

PUT    /leases/{name}             create, or renew the same      POST   /leases/{name}/keepalive
GET    /leases[/{name}][?owner=]  evidence                       DELETE /leases/{name}?owner=[&force=1]
POST   /stop                      release all and latch          DELETE /stop   lift the latch
GET    /faults                    what can be injected here      GET    /health, /metrics   open
"""

import hashlib
import hmac
import ipaddress
import json
import logging
from collections.abc import Callable, Sequence
from urllib.parse import unquote

from chaos_mm.control.messages import Request, Response, Route
from chaos_mm.control.token import proof
from chaos_mm.core.errors import BadRequest, ChaosMMError, Forbidden, NotFound, TooLarge, Unauthorized
from chaos_mm.core.fault import Fault
from chaos_mm.core.lease import Lease
from chaos_mm.core.lease_book import LeaseBook, Patient

__all__ = ["MAX_BODY_BYTES", "ControlApi", "Request", "Response", "Route", "catalogue_hash"]

logger = logging.getLogger("chaos_mm.control")
MAX_BODY_BYTES = 64 * 1024


def catalogue_hash(book: LeaseBook) -> str:
    """16 hex digits over every declaration of the catalogue: two points with the same hash know the same faults."""
    schemas = [book.catalogue[name].schema() for name in sorted(book.catalogue)]
    return hashlib.sha256(json.dumps(schemas, sort_keys=True).encode()).hexdigest()[:16]


class ControlApi:
    """Answers one request at a time, from any thread; raises nothing."""

    def __init__(
        self,
        book: LeaseBook,
        token: str,
        *,
        version: str,
        routes: Sequence[Route] = (),
        allow_hosts: Sequence[str] = (),
        metrics: Callable[[], str] = str,
    ) -> None:
        self.book = book
        self._token = token.encode()
        self._version = version
        self._allow_hosts = frozenset(host.lower() for host in allow_hosts)
        self._metrics = metrics
        self._catalogue = catalogue_hash(book)
        self._routes = (*self._own_routes(), *routes)

    def handle(self, request: Request) -> Response:
        """The answer to any request; errors become ``{"error", "kind"}`` with their status."""
        try:
            return self._answer(request)
        except ChaosMMError as error:
            return Response.json({"error": str(error), "kind": error.kind}, error.status)
        except Exception as error:  # the control API must answer whatever happens, or nobody can release
            logger.exception("control request failed")
            return Response.json({"error": f"internal error: {type(error).__name__}", "kind": "error"}, 500)

    def trusts(self, request: Request) -> bool:
        """Whether it carries the token."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode(), self._token)
        return right and scheme.lower() == "bearer"

    def _answer(self, request: Request) -> Response:
        if "origin" in request.headers:
            raise Forbidden("requests from a web page (Origin) are refused")
        self._check_host(request.headers.get("host", ""))
        if len(request.body) > MAX_BODY_BYTES:
            raise TooLarge(f"the body has {len(request.body)} bytes; at most {MAX_BODY_BYTES} are taken")
        route, variables = self._find(request)
        if not route.open and not self.trusts(request):
            raise Unauthorized("a bearer token is needed; it stands in the file that CHAOS_MM_TOKEN_FILE names")
        return route.handler(request, **{name: unquote(value) for name, value in variables.items()})

    def _find(self, request: Request) -> tuple[Route, dict[str, str]]:
        methods = []
        for route in self._routes:
            variables = route.match(request.path)
            if variables is not None and route.method == request.method:
                return route, variables
            if variables is not None:
                methods.append(route.method)
        if methods:
            raise BadRequest(f"{request.method} is not taken there; {', '.join(sorted(methods))} is")
        raise NotFound("no such path at this control API")

    def _check_host(self, value: str) -> None:
        host = value.rsplit(":", 1)[0] if not value.endswith("]") else value
        host = host.strip("[]").lower()
        # DNS rebinding needs a name: literals, localhost and names the operator gave are safe.
        if host == "localhost" or host in self._allow_hosts:
            return
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise Forbidden("Host must be an IP address, localhost, or a name given with --allow-host") from None

    def _own_routes(self) -> tuple[Route, ...]:
        return (
            Route("GET", "/health", self._health, open=True),
            Route("GET", "/metrics", self._get_metrics, open=True),
            Route("GET", "/faults", self._faults),
            Route("GET", "/leases", self._leases),
            Route("GET", "/leases/{name}", self._lease),
            Route("PUT", "/leases/{name}", self._put),
            Route("POST", "/leases/{name}/keepalive", self._keepalive),
            Route("DELETE", "/leases/{name}", self._release),
            Route("POST", "/stop", self._stop),
            Route("DELETE", "/stop", self._clear_stop),
        )

    def _health(self, request: Request) -> Response:
        book, nonce = self.book, request.query.get("nonce", "")
        return Response.json(
            {
                **({"proof": proof(self._token.decode(), nonce)} if nonce else {}),
                "ok": True,
                "point": book.point.value,
                "armed": book.armed,
                "stopped": book.stopped,
                "version": self._version,
                "catalogue": self._catalogue,
                "instance": book.instance,
            }
        )

    def _get_metrics(self, request: Request) -> Response:
        text = lease_metrics(self.book) + self._metrics()
        return Response(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    def _faults(self, request: Request) -> Response:
        book = self.book
        here = [f for f in book.catalogue.values() if book.point in f.points and f.target in book.limits.targets]
        return Response.json({"faults": [self._declared(fault) for fault in sorted(here, key=lambda f: f.name)]})

    def _declared(self, fault: Fault) -> dict[str, object]:
        actuator = self.book.actuator
        if actuator is None:
            return fault.schema()
        pending = {"pending": actuator.pending(fault)} if isinstance(actuator, Patient) else {}
        return {**fault.schema(), **actuator.describe(fault), **pending, "refusal": actuator.refusal(fault)}

    def _leases(self, request: Request) -> Response:
        found = self.book.leases(request.query.get("owner", ""))
        shown = [self._shown(lease) for lease in found]
        limits = {"max_owners": self.book.limits.max_owners, "stopped": self.book.stopped}
        return Response.json({"leases": shown, **limits})

    def _lease(self, request: Request, name: str) -> Response:
        return Response.json(self._shown(self.book.lease(name, request.query.get("owner", ""))))

    def _put(self, request: Request, name: str) -> Response:
        return Response.json(self._shown(self.book.put(name, request.json(), request.arrived)))

    def _keepalive(self, request: Request, name: str) -> Response:
        owner = request.json().get("owner")
        if not isinstance(owner, str):
            raise BadRequest('a keepalive carries {"owner": "<run id>"}')
        return Response.json(self._shown(self.book.keepalive(name, owner)))

    def _release(self, request: Request, name: str) -> Response:
        force = request.query.get("force", "") == "1"
        lease = self.book.release(name, request.query.get("owner", ""), force)
        shown = None if lease is None else self._shown(lease)
        # Gone is success: a point that restarted, or a lease that ended by itself, leaves nothing to undo.
        return Response.json({"gone": lease is None, "lease": shown, "instance": self.book.instance})

    def _stop(self, request: Request) -> Response:
        return Response.json({"released": self.book.stop(), "stopped": True})

    def _clear_stop(self, request: Request) -> Response:
        self.book.clear_stop()
        return Response.json({"stopped": False})

    def _shown(self, lease: Lease) -> dict[str, object]:
        return lease.to_json(self.book.clock())


def lease_metrics(book: LeaseBook) -> str:
    """Prometheus text: live leases, and matched, applied, errored requests by fault."""
    sums: dict[tuple[str, str], int] = {}
    for lease in book.leases():
        for word in ("matched", "applied", "errored"):
            key = (word, lease.fault.name)
            sums[key] = sums.get(key, 0) + getattr(lease, word)
    lines = ["# TYPE chaos_mm_leases_live gauge", f"chaos_mm_leases_live {int(len(book.live))}"]
    for word in ("matched", "applied", "errored"):
        metric = f"chaos_mm_lease_{word}_requests"
        lines.append(f"# TYPE {metric} gauge")
        lines += [f'{metric}{{fault="{name}"}} {count}' for (kind, name), count in sorted(sums.items()) if kind == word]
    return "\n".join(lines) + "\n"
