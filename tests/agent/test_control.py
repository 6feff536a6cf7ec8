"""Who serves the agent's control API, where, and what it answers."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.agent.board import Board, new_nonce
from chaos_mm.agent.control import AgentPoint, agent_settings, make_board, start_agent
from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.serving_lock import take_lock
from chaos_mm.control.client import ControlClient
from chaos_mm.core.errors import ChaosMMError, InvalidParams, Unauthorized
from chaos_mm.core.fault import Seam
from tests.agent.conftest import TOKEN, until
from tests.agent.declared import FAULTS
from tests.agent.miniature import Engine

pytestmark = pytest.mark.model


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CHAOS_MM_AGENT_BOARD", "CHAOS_MM_AGENT_NONCE"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("CHAOS_MM_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("CHAOS_MM_AGENT", "1")
    monkeypatch.setenv("CHAOS_MM_AGENT_CONTROL_URL", "http://127.0.0.1:0")
    monkeypatch.setenv("CHAOS_MM_TOKEN_FILE", str(tmp_path / "token"))
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    return tmp_path


@pytest.fixture
def engine(state: Path) -> Iterator[Engine]:
    board = make_board()
    runtime = Runtime.from_environment("engine", FAULTS)
    made = Engine(runtime)
    runtime.watch(made.guard)
    made.board = board  # type: ignore[attr-defined]
    yield made
    runtime.close()
    board.close()


def served(engine: Engine, **more: Any) -> AgentPoint:
    point = start_agent(engine, engine.board, faults=FAULTS, **more)  # type: ignore[attr-defined]
    assert point is not None
    return point


def test_the_agent_answers_what_it_is(engine: Engine):
    point = served(engine, measures=lambda: {"entropy": {"value": float("inf"), "unit": "nats"}})
    client = ControlClient(point.url, TOKEN)
    until(lambda: client.get("/agent")["seams"]["kv"]["proven"])
    until(lambda: client.get("/agent")["workers"][0]["last_step_age_seconds"] is not None)
    found = client.get("/agent")
    assert found["loaded"] and found["engine"] == {"name": "miniature", "version": "1", "backend": "torch"}
    assert found["seams"]["kv"]["fired"] > 0
    assert found["seams"]["kv_load"] == {
        "available": False,
        "proven": False,
        "reason": "miniature has no such seam",
        "fired": 0,
    }
    (worker,) = found["workers"]
    assert (worker["process"], worker["pid"], worker["alive"]) == ("engine", os.getpid(), True)
    assert worker["steps"] > 0 and worker["last_step_age_seconds"] >= 0 and worker["pending_undo"] == 0
    assert found["memory"]["used_bytes"] is None and found["memory"]["host_available_bytes"] > 0
    assert found["kv"] == {"usage_ratio": None, "hit_ratio": None, "blocks_total": None, "blocks_free": None}
    assert found["measures"] == {"entropy": {"value": None, "unit": "nats"}}
    declared = {fault["name"]: fault for fault in client.faults()}
    assert declared["attention_break"]["fatal"].startswith("restart needed") and not declared["kv_add"]["fatal"]
    point.close()


def test_nobody_without_the_token_is_told(engine: Engine):
    point = served(engine)
    with pytest.raises((Unauthorized, ChaosMMError)):
        ControlClient(point.url, "x" * 43).get("/agent")
    point.close()


def test_it_is_served_at_a_private_socket_too(engine: Engine, state: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CHAOS_MM_AGENT_CONTROL_URL", f"unix://{state}/agent.sock")
    point = served(engine)
    assert (state / "agent.sock").stat().st_mode & 0o777 == 0o600
    point.close()
    assert not (state / "agent.sock").exists()


def test_a_second_one_in_the_same_process_does_not_bind(engine: Engine, caplog: pytest.LogCaptureFixture):
    point = served(engine)
    assert start_agent(engine, engine.board, faults=FAULTS) is None  # type: ignore[attr-defined]
    point.close()
    again = served(engine)
    again.close()


@pytest.mark.parametrize("how", ["missing", "open", "link"])
def test_without_a_private_token_it_is_inert_and_says_so(
    engine: Engine, state: Path, how: str, caplog: pytest.LogCaptureFixture
):
    token = state / "token"
    if how == "open":
        token.chmod(0o644)
    else:
        token.rename(state / "elsewhere")
    if how == "link":
        token.symlink_to(state / "elsewhere")
    assert start_agent(engine, engine.board, faults=FAULTS) is None  # type: ignore[attr-defined]
    assert not token.exists() or how != "missing"  # it never makes one
    assert "chaos_mm agent is not served: " in caplog.text and TOKEN not in caplog.text
    assert Runtime.from_environment("worker", FAULTS).inert


def test_an_address_that_is_taken_leaves_the_service_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    point = served(engine)
    monkeypatch.setenv("CHAOS_MM_AGENT_CONTROL_URL", point.url)
    point.mirror.board.path.with_name(point.mirror.board.path.name + ".serving").unlink()
    assert start_agent(engine, engine.board, faults=FAULTS) is None  # type: ignore[attr-defined]
    point.close()


def test_the_first_process_makes_the_board_and_children_find_it(state: Path):
    first = make_board()
    assert first.path.parent == state / "state" and os.environ["CHAOS_MM_AGENT_BOARD"] == str(first.path)
    second = make_board()
    assert second.in_place and second.path == first.path
    first.close()
    second.close()


def test_boards_of_the_dead_are_swept_and_others_stay(state: Path):
    (state / "state").mkdir(mode=0o700)
    dead, alive, foreign = (state / "state" / f"agent-{name}.board" for name in ("dead", "alive", "foreign"))
    board = Board.create(dead, new_nonce())
    board.words[6] = 1  # its creator started another time
    board.close()
    Board.create(alive, new_nonce()).close()
    foreign.write_text("not a page")
    foreign.chmod(0o600)
    make_board().close()
    assert not dead.exists() and alive.exists() and foreign.exists()


def test_a_lock_of_a_dead_process_is_taken_over_and_a_foreign_file_is_not(tmp_path: Path):
    board = tmp_path / "board"
    lock = tmp_path / "board.serving"
    lock.write_text(json.dumps({"pid": os.getpid(), "start": 1}))
    release = take_lock(board)
    assert release is not None and json.loads(lock.read_text())["start"] != 1
    assert take_lock(board) is None
    release()
    assert not lock.exists()
    lock.write_text("somebody's notes")
    assert take_lock(board) is None and lock.read_text() == "somebody's notes"


def test_settings_are_read_and_a_bad_one_is_named(state: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CHAOS_MM_AGENT_ALLOW_LIVE", "1")
    monkeypatch.setenv("CHAOS_MM_AGENT_MAX_RATE", "0.25")
    assert (agent_settings().allow_live, agent_settings().max_rate) == (True, 0.25)
    monkeypatch.setenv("CHAOS_MM_AGENT_MAX_RATE", "2")
    with pytest.raises(InvalidParams, match="CHAOS_MM_AGENT_MAX_RATE='2' is not allowed; it must be a number in"):
        agent_settings()


def test_every_seam_has_a_line_of_evidence(engine: Engine):
    point = served(engine)
    assert set(ControlClient(point.url, TOKEN).get("/agent")["seams"]) == {seam.value for seam in Seam}
    point.close()
