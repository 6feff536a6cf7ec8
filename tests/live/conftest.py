"""The real thing once a session: the demo model behind the proxy, each a process of its own."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.control.client import ControlClient
from chaos_mm.control.token import read_token
from chaos_mm.core.canary import canary_key, new_run_id
from tests.processes import Running, start


@dataclass
class Service:
    """Target and proxy, and what a test needs to speak to them."""

    target: Running
    proxy: Running
    state: Path
    control: ControlClient
    key: bytes

    @property
    def url(self) -> str:
        return self.proxy.url

    def inject(self, fault: str, params: dict[str, Any], **fields: Any) -> "Injection":
        """Hold a lease on canaries for the time of a ``with`` block."""
        return Injection(self, fault, params, fields)


@dataclass
class Injection:
    """A lease that is released when its block ends; ``evidence`` is then its last state."""

    service: Service
    fault: str
    params: dict[str, Any]
    fields: dict[str, Any]
    owner: str = ""

    def __enter__(self) -> "Injection":
        self.owner = new_run_id()
        body = {"owner": self.owner, "fault": self.fault, "params": self.params, "ttl_seconds": 600}
        self.service.control.put_lease(self.fault, {**body, "keepalive_seconds": 600, **self.fields})
        return self

    def __exit__(self, *error: object) -> None:
        self.service.control.release(self.fault, self.owner)

    @property
    def evidence(self) -> dict[str, Any]:
        return self.service.control.lease(self.fault, self.owner)


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("state")
    folder.chmod(0o700)
    return folder


@pytest.fixture(scope="session")
def service(state: Path) -> Iterator[Service]:
    target = start("target", "--port", "0", state=state)
    try:
        options = ("--port", "0", "--control-port", "0", "--allow-live", "--max-rate", "1.0")
        proxy = start("proxy", "--upstream", target.url, *options, state=state)
        token = read_token(state / "token")
        yield Service(target, proxy, state, ControlClient(proxy.control_url, token), canary_key(token))
        proxy.stop()
    finally:
        target.stop()


@pytest.fixture
def marker() -> str:
    """A text that nothing else contains."""
    return "zq" + secrets.token_hex(8)
