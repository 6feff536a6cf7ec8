"""The agent's control API: served by exactly one process of an engine, on a port of its own."""

import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from chaos_mm.agent.adapter import Adapter
from chaos_mm.agent.board import Board, new_nonce
from chaos_mm.agent.evidence import agent_evidence
from chaos_mm.agent.identity import Identity
from chaos_mm.agent.mirror import Mirror
from chaos_mm.agent.serving_lock import take_lock
from chaos_mm.control.messages import Request, Response, Route
from chaos_mm.control.point import ControlPoint, PointSettings, start_control
from chaos_mm.control.state import state_dir
from chaos_mm.control.token import read_token
from chaos_mm.core.errors import ChaosMMError, InvalidParams
from chaos_mm.core.fault import Fault, Point, Target
from chaos_mm.core.params import ParamSpec
from chaos_mm.faults import catalogue

__all__ = ["DEFAULT_URL", "AgentPoint", "agent_settings", "enabled", "make_board", "start_agent"]

logger = logging.getLogger("chaos_mm.agent")
DEFAULT_URL = "http://127.0.0.1:8603"
_said = threading.Event()


class AgentPoint:
    """A serving agent: ``control`` (book, server) and ``mirror``; ``close`` disarms and stops."""

    def __init__(self, control: ControlPoint, mirror: Mirror, release: Callable[[], None]) -> None:
        """``release`` gives the serving lock back."""
        self.control, self.mirror, self._release = control, mirror, release

    @property
    def url(self) -> str:
        """Where the control API is served."""
        return self.control.server.url

    def close(self) -> None:
        """Every lease ends; nothing is served any more."""
        self.control.close()
        self.mirror.close()
        self._release()


def enabled() -> str:
    """Why the agent must stay inert in this process, empty when it may work.

    It needs CHAOS_MM_AGENT=1 and a token file that is there already, private and whole.
    """
    if os.environ.get("CHAOS_MM_AGENT") != "1":
        return "CHAOS_MM_AGENT is not 1"
    try:
        read_token()
    except ChaosMMError as error:
        return str(error)
    return ""


def make_board() -> Board:
    """The board of this engine: the one that the environment names, else a new one that children will find there.

    Sets CHAOS_MM_AGENT_BOARD and CHAOS_MM_AGENT_NONCE. Raises ChaosMMError where the path is taken or not safe.
    """
    named, nonce = os.environ.get("CHAOS_MM_AGENT_BOARD", ""), os.environ.get("CHAOS_MM_AGENT_NONCE", "")
    if named and nonce:
        return Board.open(Path(named), nonce)
    nonce = new_nonce()
    path = Path(named) if named else state_dir() / f"agent-{nonce[:12]}.board"
    _sweep(path.parent)
    board = Board.create(path, nonce)
    os.environ["CHAOS_MM_AGENT_BOARD"], os.environ["CHAOS_MM_AGENT_NONCE"] = str(path), nonce
    return board


def start_agent(
    adapter: Adapter,
    board: Board,
    settings: PointSettings | None = None,
    *,
    faults: Mapping[str, Fault] | None = None,
    measures: Callable[[], Mapping[str, Any]] = dict,
) -> AgentPoint | None:
    """Serve the control API of this engine; None where this process must not (logged, and the service goes on).

    ``settings``: by default from the environment. ``measures``: what stands under that name in ``GET /agent``.
    """
    why = enabled()
    if why:
        logger.error("chaos_mm agent is not served: %s", why)
        return None
    release = take_lock(board.path)
    if release is None:
        if not _said.is_set():
            _said.set()
            logger.warning("chaos_mm agent: another process serves the control API of this engine already")
        return None
    mirror = Mirror(adapter, board)
    try:
        control = _serve(mirror, settings or agent_settings(), catalogue() if faults is None else faults, measures)
    except ChaosMMError as error:
        release()
        logger.error("chaos_mm agent is not served: %s", error)
        return None
    mirror.start()
    logger.warning("chaos_mm agent of %s %s is served at %s", adapter.name, adapter.version, control.server.url)
    return AgentPoint(control, mirror, release)


def agent_settings() -> PointSettings:
    """From CHAOS_MM_AGENT_CONTROL_URL, …_ALLOW_LIVE, …_MAX_RATE, …_MAX_TTL. Raises InvalidParams naming a bad one."""
    return PointSettings(
        url=os.environ.get("CHAOS_MM_AGENT_CONTROL_URL") or DEFAULT_URL,
        allow_live=os.environ.get("CHAOS_MM_AGENT_ALLOW_LIVE") == "1",
        max_rate=_number("CHAOS_MM_AGENT_MAX_RATE", 0.0, 0, 1),
        max_ttl_seconds=_number("CHAOS_MM_AGENT_MAX_TTL", 3600.0, 1, 86400),
    )


def _serve(
    mirror: Mirror, settings: PointSettings, faults: Mapping[str, Fault], measures: Callable[[], Mapping[str, Any]]
) -> ControlPoint:
    def answer(request: Request) -> Response:
        return Response.json(agent_evidence(mirror, measures))

    return start_control(
        settings, Point.AGENT, faults, _targets(faults), routes=(Route("GET", "/agent", answer),), actuator=mirror
    )


def _targets(faults: Mapping[str, Fault]) -> frozenset[Target]:
    """Targets of faults that take hold at a seam: media are hurt on their way, by the proxy."""
    return frozenset(f.target for f in faults.values() if Point.AGENT in f.points and f.seam is not None)


def _number(name: str, default: float, low: float, high: float) -> float:
    try:
        value: float = ParamSpec(name, float, default, "", low, high).check(os.environ.get(name) or default)
    except ValueError as error:
        raise InvalidParams(str(error)) from None
    return value


def _sweep(folder: Path) -> None:
    """Remove boards that nobody uses any more: their maker and every process that joined them are gone."""
    for path in folder.glob("agent-*.board"):
        if path.is_symlink() or not _abandoned(path):
            continue
        path.unlink(missing_ok=True)
        path.with_name(path.name + ".serving").unlink(missing_ok=True)


def _abandoned(path: Path) -> bool:
    try:
        board = Board.open_any(path)
    except ChaosMMError:
        return False  # not ours to judge
    try:
        found = [board.creator, *(worker.identity for worker in board.workers())]
        return not any(Identity(who.pid, who.start).alive for who in found)
    finally:
        board.close()
