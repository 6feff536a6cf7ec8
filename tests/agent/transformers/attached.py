"""The agent in the test's own process, beside a model; leases are put into its book as the control API would."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.agent.transformers.process import ProcessAgent, attach
from chaos_mm.control.token import load_or_create_token
from chaos_mm.core import serving
from chaos_mm.core.canary import canary_id, canary_key
from chaos_mm.core.errors import NotInjectable

OWNER = "r1"


class Attached:
    """An agent of its own state folder; closed at the end, so that the model has no hook of ours."""

    def __init__(self, agent: ProcessAgent, token: str) -> None:
        self.agent, self._key = agent, canary_key(token)

    def canary(self, number: int) -> str:
        return canary_id(self._key, OWNER, number)

    def proven(self, *names: str) -> None:
        """Wait until these seams are proven."""
        point = self.agent.point
        assert point is not None
        wanted = {seam for seam in self.agent.adapter.seams if not names or seam.value in names}
        _wait(lambda: all(point.mirror.proofs.reason(seam) is not None for seam in wanted), "no proof was tried")
        assert {seam: point.mirror.proofs.reason(seam) for seam in wanted} == dict.fromkeys(wanted, "")

    def put(self, fault: str, name: str = "lease", selector: str = "canary", limit: int = 0, **params: Any) -> Any:
        """A lease, as soon as the seam is proven."""
        assert self.agent.point is not None
        book = self.agent.point.control.book
        body = {
            "owner": OWNER,
            "fault": fault,
            "params": params,
            "blast_radius": {"selector": selector, "limit": limit},
            "ttl_seconds": 120,
            "keepalive_seconds": 120,
        }
        until = time.monotonic() + 30
        while True:
            try:
                return book.put(name, body)
            except NotInjectable as error:
                tried_again = "being proven" in str(error) or "evaluation mode" in str(error) and model_trains(self)
                if not tried_again or time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def release(self, lease: Any) -> dict[str, Any]:
        """End it and wait for its undo; the lease as the API shows it."""
        assert self.agent.point is not None
        self.agent.point.control.book.release(lease.name, OWNER)
        return self.ended(lease)

    def ended(self, lease: Any) -> dict[str, Any]:
        _wait(lambda: lease.undo is not None and not lease.undo.pending, f"{lease.name} is still being undone")
        found: dict[str, Any] = lease.to_json(time.monotonic())
        return found

    def hooks(self) -> int:
        engine = self.agent.engine
        return len(engine.served) + engine.attention.count + engine.embeddings.count


def model_trains(attached: Attached) -> bool:
    """Whether the model is in training now: its gradients' seam is then proven at the next try."""
    served = attached.agent.adapter.served
    return served is not None and bool(served.roles.model.training)


def _wait(holds: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.02)


@contextmanager
def attached(folder: Path, model: Any, **environment: str) -> Iterator[Attached]:
    """Attach to ``model``, live traffic allowed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CHAOS_MM_AGENT_BOARD", "CHAOS_MM_AGENT_NONCE"):
            patch.delenv(name, raising=False)
        for name, value in {
            "CHAOS_MM_AGENT": "1",
            "CHAOS_MM_STATE_DIR": str(folder),
            "CHAOS_MM_TOKEN_FILE": str(folder / "token"),
            "CHAOS_MM_AGENT_CONTROL_URL": f"unix://{folder}/control",
            "CHAOS_MM_AGENT_ALLOW_LIVE": "1",
            "CHAOS_MM_AGENT_MAX_RATE": "1",
            **environment,
        }.items():
            patch.setenv(name, value)
        token = load_or_create_token(folder / "token")
        agent = attach(model)
        try:
            yield Attached(agent, token)
        finally:
            agent.close()
            serving.withdraw_model(model)  # the next test of this process attaches to its own alone
            for name in ("CHAOS_MM_AGENT_BOARD", "CHAOS_MM_AGENT_NONCE"):
                patch.delenv(name, raising=False)


def hooked_modules(model: Any) -> int:
    """Hooks of any kind that stand in a model, whoever put them there."""
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules())
