"""What every injection point's command shares: its control options, and how it starts serving them."""

import importlib.metadata
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from chaos_mm.control.api import ControlApi, Route
from chaos_mm.control.server import ControlServer, serve_control
from chaos_mm.control.token import load_or_create_token
from chaos_mm.core.fault import Fault, Point, Target
from chaos_mm.core.injector import Injector
from chaos_mm.core.lease_book import Actuator, LeaseBook, Limits

_OPTIONS = (
    click.option("--control-host", default="127.0.0.1", show_default=True, help="Address of the control API."),
    click.option("--control-port", type=click.IntRange(0, 65535), help="Port of the control API; 0 takes a free one."),
    click.option("--control-socket", type=click.Path(path_type=Path), help="Serve it at a 0600 socket file instead."),
    click.option("--tls-cert", default="", help="PEM certificate of the control API, needed off loopback."),
    click.option("--tls-key", default="", help="PEM key of the certificate."),
    click.option("--insecure-plaintext", is_flag=True, help="Serve the control API off loopback without TLS."),
    click.option("--allow-host", multiple=True, help="A Host name, beside IP addresses and localhost, to answer to."),
    click.option("--token-file", type=click.Path(path_type=Path), help="Token file [env CHAOS_MM_TOKEN_FILE]."),
    click.option(
        "--max-ttl", default=3600.0, show_default=True, type=click.FloatRange(1, 86400), help="Cap on a lease, s."
    ),
    click.option("--allow-live", is_flag=True, help="Let leases with selector 'live' hurt users' requests."),
    click.option("--max-rate", default=0.0, show_default=True, type=click.FloatRange(0, 1), help="Cap on their share."),
    click.option("--max-owners", default=1, show_default=True, type=click.IntRange(1, 64), help="Runs served at once."),
)


@dataclass(frozen=True)
class PointSettings:
    """The values of the control options."""

    url: str
    token_file: Path | None = None
    tls_cert: str = ""
    tls_key: str = ""
    insecure_plaintext: bool = False
    allow_hosts: tuple[str, ...] = ()
    max_ttl_seconds: float = 3600.0
    allow_live: bool = False
    max_rate: float = 0.0
    max_owners: int = 1


@dataclass
class ControlPoint:
    """A point's lease book, injector and running control API."""

    book: LeaseBook
    injector: Injector
    server: ControlServer
    token: str = field(repr=False)

    def close(self) -> None:
        """Stop serving; every lease ends with ``process``."""
        self.server.close()


def control_options(default_port: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the control options to a click command; its callback receives them as one ``control: PointSettings``."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @_named_like(function)
        def wrapped(**values: Any) -> Any:
            return function(control=_settings(values, default_port), **values)

        decorated: Callable[..., Any] = wrapped
        # click reads parameters that inner decorators left here; they belong to the wrapper now.
        wrapped.__click_params__ = list(getattr(function, "__click_params__", []))  # type: ignore[attr-defined]
        for option in reversed(_OPTIONS):
            decorated = option(decorated)
        return decorated

    return decorate


def _named_like(function: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def rename(wrapped: Callable[..., Any]) -> Callable[..., Any]:
        wrapped.__name__, wrapped.__doc__ = function.__name__, function.__doc__
        return wrapped

    return rename


def _settings(values: dict[str, Any], default_port: int) -> PointSettings:
    """Take the control options out of ``values``."""
    host, port, path = values.pop("control_host"), values.pop("control_port"), values.pop("control_socket")
    scheme = "https" if values["tls_cert"] else "http"
    shown = f"[{host}]" if ":" in host else host
    url = f"unix://{path.absolute()}" if path else f"{scheme}://{shown}:{default_port if port is None else port}"
    return PointSettings(
        url=url,
        token_file=values.pop("token_file"),
        tls_cert=values.pop("tls_cert"),
        tls_key=values.pop("tls_key"),
        insecure_plaintext=values.pop("insecure_plaintext"),
        allow_hosts=tuple(values.pop("allow_host")),
        max_ttl_seconds=values.pop("max_ttl"),
        allow_live=values.pop("allow_live"),
        max_rate=values.pop("max_rate"),
        max_owners=values.pop("max_owners"),
    )


def start_control(
    settings: PointSettings,
    point: Point,
    catalogue: Mapping[str, Fault],
    targets: frozenset[Target],
    *,
    routes: Sequence[Route] = (),
    metrics: Callable[[], str] = str,
    actuator: Actuator | None = None,
) -> ControlPoint:
    """Serve the control API of a point; ``targets`` are those this process can act on,
    ``actuator`` what begins and ends their harm where no request is handed over.

    Raises ChaosMMError when the token file is not safe or the address is taken.
    """
    token = load_or_create_token(settings.token_file)
    limits = Limits(
        settings.max_ttl_seconds, settings.allow_live, settings.max_rate, settings.max_owners, frozenset(targets)
    )
    book = LeaseBook(catalogue, point=point, limits=limits, actuator=actuator)
    version = importlib.metadata.version("chaostoolkit-multimodal")
    api = ControlApi(book, token, version=version, routes=routes, allow_hosts=settings.allow_hosts, metrics=metrics)
    server = serve_control(
        api,
        settings.url,
        insecure_plaintext=settings.insecure_plaintext,
        tls_cert=settings.tls_cert,
        tls_key=settings.tls_key,
    )
    return ControlPoint(book, Injector(book), server, token)


def announce(point: str, url: str, control_url: str = "") -> None:
    """Print the one line on stdout that says a process is ready to serve."""
    line = {"ready": point, "url": url, "control_url": control_url, "pid": os.getpid()}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
