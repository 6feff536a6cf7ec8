"""A real control API on a free loopback port, over the tiny catalogue of the core tests."""

import secrets
from collections.abc import Iterator

import pytest

from chaos_mm.control.api import ControlApi, Route
from chaos_mm.control.client import ControlClient
from chaos_mm.control.messages import Request, Response
from chaos_mm.control.server import ControlServer, serve_control
from chaos_mm.core.fault import Point
from chaos_mm.core.lease_book import LeaseBook
from tests.core.samples import CATALOGUE

TOKEN = secrets.token_urlsafe(32)


def _echo(request: Request, word: str) -> Response:
    return Response.json({"word": word, "query": dict(request.query)})


def _rows(request: Request) -> Response:
    return Response(200, (b'{"n":%d}\n' % n for n in range(3)), "application/x-ndjson")


@pytest.fixture
def book() -> LeaseBook:
    return LeaseBook(CATALOGUE, point=Point.PROXY)


@pytest.fixture
def api(book: LeaseBook) -> ControlApi:
    routes = (Route("GET", "/echo/{word}", _echo), Route("GET", "/rows", _rows))
    return ControlApi(book, TOKEN, version="1.2.3", routes=routes, allow_hosts=["chaos.internal"])


@pytest.fixture
def server(api: ControlApi) -> Iterator[ControlServer]:
    served = serve_control(api, "http://127.0.0.1:0")
    yield served
    served.close()


@pytest.fixture
def client(server: ControlServer) -> ControlClient:
    return ControlClient(server.url, TOKEN)
