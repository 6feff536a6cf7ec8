"""``chaos-mm demo up|down|status``: start the supervisor, end it, say how it is. Progress and troubles are words for a
person; what goes wrong is a DemoError, and after one nothing of ours runs.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos_mm.control.state import state_dir
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.demo.ports import Ports
from chaos_mm.demo.state import DemoState, is_running

__all__ = ["SUPERVISOR", "Demo", "DemoError", "down", "logs_dir", "read", "up"]

SUPERVISOR = (sys.executable, "-P", "-m", "chaos_mm.demo.supervisor")
_END_WITHIN_SECONDS = 20.0
_LOCK_WITHIN_SECONDS = 180.0


class DemoError(ChaosMMError):
    """The demo cannot do what was asked."""

    kind = "demo"


@dataclass
class Demo:
    """A demo that is up. ``mine`` when this call started it; ``lifeline`` keeps an attached one alive."""

    state: DemoState
    mine: bool
    lifeline: "subprocess.Popen[str] | None" = None

    def let_go(self) -> None:
        """Drop the lifeline: an attached demo ends now, if it has not."""
        if self.lifeline is not None:
            _let_go(self.lifeline)


def read() -> DemoState | None:
    """The demo's state as last written, whether or not it still runs."""
    return DemoState.read(_path())


def logs_dir() -> Path:
    """Where every process of the demo writes, one file each."""
    folder = state_dir() / "logs"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def up(
    base_port: int, say: Callable[[str], None], attached: bool = False, supervisor: Sequence[str] = SUPERVISOR
) -> Demo:
    """Bring the demo up, or find it up. ``attached``: it ends when this process does; ``supervisor``: its command.

    Raises DemoError: up already at other ports, ports taken, a part that does not start.
    """
    with _alone(say):
        found = _settled(say)
        if found is not None and found.supervised:
            return _already(found, base_port, say)
        if found is not None:
            _clean(found, say)
        taken = Ports(base_port).taken()
        if taken:
            raise DemoError(
                f"port {', '.join(taken)} is taken by another program; "
                "end it, or take other ports with --base-port N (N to N + 5)"
            )
        return _start([*supervisor, "--base-port", str(base_port)], say, attached)


def down(say: Callable[[str], None]) -> bool:
    """Bring the demo down, whatever is left of it; False when there was none."""
    with _alone(say):
        found = read()
        if found is None:
            return False
        if found.supervised:
            _end(found, say)
        else:
            _clean(found, say)
        _path().unlink(missing_ok=True)
        return True


def _settled(say: Callable[[str], None]) -> DemoState | None:
    """The state once it is up or nobody supervises it: one found starting or stopping may be on its way down."""
    end = time.monotonic() + _LOCK_WITHIN_SECONDS
    told = False
    while (found := read()) is not None and found.supervised and found.state != "up":
        if time.monotonic() > end:
            raise DemoError(
                f"the demo (supervisor {found.pid}) is {found.state} for more than {_LOCK_WITHIN_SECONDS:g} s; "
                "end it: chaos-mm demo down"
            )
        if not told:
            say(f"A demo is {found.state} (supervisor {found.pid}); waiting for it.")
        told = True
        time.sleep(0.05)
    return found


def _already(found: DemoState, base_port: int, say: Callable[[str], None]) -> Demo:
    if found.base_port != base_port:
        raise DemoError(
            f"the demo is up at ports from {found.base_port}; use that one, with "
            f'eval "$(chaos-mm demo up --base-port {found.base_port})", or end it first: chaos-mm demo down'
        )
    say(f"The demo is up already (supervisor {found.pid}).")
    return Demo(found, mine=False)


def _start(argv: list[str], say: Callable[[str], None], attached: bool) -> Demo:
    logs = logs_dir()
    for old in logs.glob("*.log"):
        old.replace(old.with_suffix(".log.previous"))
    with (logs / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(
            [*argv, *(["--attached"] if attached else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=logs,
            env=_environment(),
            text=True,
            start_new_session=True,
        )
    try:
        _await_up(process, say)
    except BaseException:
        _abandon(process)
        raise
    if not attached:
        _let_go(process)
    state = read()
    if state is None:
        raise DemoError(f"the demo ended as soon as it was up; see {logs / 'supervisor.log'}")
    return Demo(state, mine=True, lifeline=process if attached else None)


def _environment() -> dict[str, str]:
    """Ours, with the paths made absolute: the supervisor works in another folder."""
    found = {**os.environ, "CHAOS_MM_STATE_DIR": str(state_dir())}
    for name in ("CHAOS_MM_TOKEN_FILE", "CHAOS_MM_OBJECTIVES"):
        if found.get(name):
            found[name] = str(Path(found[name]).absolute())
    return found


def _await_up(process: "subprocess.Popen[str]", say: Callable[[str], None]) -> None:
    """Follow the supervisor's lines until it is up."""
    assert process.stdout is not None
    seen: dict[str, str] = {}
    for line in process.stdout:
        told: dict[str, Any] = json.loads(line)
        for name, state in told["services"].items():
            if state != "waiting" and seen.get(name) != state:
                seen[name] = state
                say(f"  {name}: {state}")
        if told["state"] == "up":
            return
        if told["state"] == "failed":
            raise DemoError(f"the demo did not start, and nothing of it was left running: {told['reason']}")
    raise DemoError(f"the supervisor ended before the demo was up; see {logs_dir() / 'supervisor.log'}")


def _abandon(process: "subprocess.Popen[str]") -> None:
    """End a supervisor that is not up; what it started dies with it."""
    process.terminate()
    try:
        process.wait(_END_WITHIN_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _let_go(process)
    _path().unlink(missing_ok=True)


def _let_go(process: "subprocess.Popen[str]") -> None:
    """Close our ends of its pipes and forget it: it is meant to outlive us."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    # Popen warns about a child that still runs when it is collected; this one should.
    process.returncode = process.returncode if process.returncode is not None else 0


def _end(found: DemoState, say: Callable[[str], None]) -> None:
    os.kill(found.pid, signal.SIGTERM)
    if not _gone(found, _END_WITHIN_SECONDS):
        say(f"The supervisor {found.pid} did not end within {_END_WITHIN_SECONDS:g} s; killing it.")
        os.kill(found.pid, signal.SIGKILL)
    _clean(found, say)


def _clean(found: DemoState, say: Callable[[str], None]) -> None:
    """See the supervisor gone; its children die with it."""
    if not _gone(found, 5.0):
        raise DemoError(f"the supervisor {found.pid} cannot be ended; look at it with ps -p {found.pid}")
    _path().unlink(missing_ok=True)
    left = Ports(found.base_port).taken()
    if left:
        say(f"Note: port {', '.join(left)} is still taken, by something that is not the demo's or is just ending.")


def _gone(found: DemoState, within_seconds: float) -> bool:
    end = time.monotonic() + within_seconds
    while is_running(found.pid, found.pid_started):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@contextlib.contextmanager
def _alone(say: Callable[[str], None]) -> Iterator[None]:
    """One ``up`` or ``down`` at a time."""
    with (state_dir() / "demo.lock").open("w", encoding="utf-8") as lock:
        end = time.monotonic() + _LOCK_WITHIN_SECONDS
        told = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise DemoError("another chaos-mm demo command is still at work; try again later") from None
                if not told:
                    say("Another chaos-mm demo command is at work; waiting for it.")
                told = True
                time.sleep(0.2)
        yield


def _path() -> Path:
    return state_dir() / "demo.json"
