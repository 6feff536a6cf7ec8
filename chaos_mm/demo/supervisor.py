"""The detached process that starts, watches and restarts the demo's services: ``python -m chaos_mm.demo.supervisor``.

Its stdin is a lifeline: end of file there before everything is up (or, with ``--attached``, at any time) means that
whoever asked is gone, and it brings everything down. On stdout it tells its progress as JSON lines, until it is up.
"""

import argparse
import json
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from chaos_mm.control.state import state_dir
from chaos_mm.control.token import load_or_create_token, token_path
from chaos_mm.demo.child import Spec
from chaos_mm.demo.ports import DEFAULT_BASE, MODEL, Ports
from chaos_mm.demo.service import Service, ServiceFailed
from chaos_mm.demo.state import DemoState, process_started

__all__ = ["Supervisor", "main", "specs"]

logger = logging.getLogger(__name__)
_LOOK_EVERY_SECONDS = 0.1
_END_WITHIN_SECONDS = 6.0
BACKGROUND_RATE = 12.0  # arrivals are random: phases of ten seconds nearly always have the samples asked for


def specs(ports: Ports, background_rate: float = BACKGROUND_RATE) -> list[Spec]:
    """Target (with the agent in it), proxy, host point and load.

    Nobody lives here, so this is the one place that allows faults on live traffic.
    """
    run = (sys.executable, "-P", "-m", "chaos_mm.cli")
    port = {use: str(number) for use, number in ports.by_use.items()}
    live = ("--allow-live", "--max-rate", "1.0")
    proxy = (*run, "proxy", "--port", port["proxy"], "--control-port", port["proxy control"])
    # Model and reference by name: what the user's environment says is about a service of theirs, not about this one.
    asked = ("--model", MODEL, "--canary-reference", "code", "--background-rate", str(background_rate))
    load = (*run, "load", "--control-port", port["load control"], "--proxy-url", ports.url("proxy"), *asked)
    agent = (*run, "agent", "run", "--control-url", ports.url("agent control"), *live, "--")
    target = ("python", "-m", "chaos_mm.cli", "target", "--port", port["target"])
    return [
        Spec("target", (*agent, *target), ports.url("target"), spare=True),
        Spec("proxy", (*proxy, "--upstream", ports.url("target"), *live), ports.url("proxy")),
        Spec("host", (*run, "host", "--control-port", port["host control"], *live), ports.url("host control")),
        Spec(
            "load",
            (*load, *live),
            ports.url("load control"),
            after=("target", "proxy"),
        ),
    ]


class Supervisor:
    """Runs the services until told to stop, and keeps ``demo.json`` true."""

    def __init__(self, services: Sequence[Service], state: DemoState, path: Path, tell: Callable[[Any], None]) -> None:
        self.services, self.state, self._path, self._tell = list(services), state, path, tell
        self.stopping = False
        self._written = self._trouble = ""
        self._known_up = False

    def run(self, wait: Callable[[bool], None]) -> int:
        """Serve until ``stopping``; ``wait(up)`` pauses one look. The exit status: 0, or 1 when a service failed."""
        try:
            self._publish()
            while not self.stopping:
                self._look()
                wait(self.state.state == "up")
            self.state.state = "stopping"
            self._publish()
            self._shut_down()
            self._path.unlink(missing_ok=True)
            return 0
        except ServiceFailed as error:
            self._shut_down()
            self.state.state, self.state.reason = "failed", str(error)
            self._publish()
            return 1
        finally:
            self._shut_down()

    def _look(self) -> None:
        for service in self.services:
            service.step({other.spec.name for other in self.services if other.up})
        if all(service.up for service in self.services):
            self.state.state = "up"
        self._publish()

    def _publish(self) -> None:
        self.state.services = [service.shown for service in self.services]
        said = json.dumps([self.state.state, [vars(s) for s in self.state.services]])
        if said == self._written:
            return
        try:
            self.state.write(self._path)
        except OSError as error:
            self._not_written(error)
            return
        self._written, self._trouble = said, ""
        self._known_up = self._known_up or self.state.state == "up"
        self._tell(self.state)

    def _not_written(self, error: OSError) -> None:
        # Who waits for a start must learn of it; a demo that serves goes on, and the next look tries again.
        if not self._known_up and self.state.state in ("starting", "up"):
            raise error
        why = error.strerror or type(error).__name__  # the error's own text names another file each time
        if why != self._trouble:
            self._trouble = why
            logger.error("%s cannot be written: %s", self._path, why)

    def _shut_down(self) -> None:
        """End everything, the load first: its requests should not fail on a target that is already gone."""
        for service in reversed(self.services):
            service.terminate()
            service.end(_END_WITHIN_SECONDS)


def main(argv: Sequence[str] | None = None, make_specs: Callable[[Ports], list[Spec]] = specs) -> int:
    """Parse the command line, take the lifeline and run; ``make_specs`` says what."""
    parser = argparse.ArgumentParser(prog="chaos_mm.demo.supervisor", description=__doc__)
    parser.add_argument("--base-port", type=int, default=DEFAULT_BASE)
    parser.add_argument("--attached", action="store_true", help="end when stdin ends, even when everything is up")
    options = parser.parse_args(argv)
    home, ports = state_dir(), Ports(options.base_port)
    logs = home / "logs"
    logs.mkdir(mode=0o700, exist_ok=True)
    load_or_create_token()  # the agent stays inert where there is none yet
    os.environ.setdefault("CHAOS_MM_AGENT_MEASURES", "embedding")  # next to no work at this model's size
    services = [Service(spec, logs, time.monotonic) for spec in make_specs(ports)]
    started = process_started(os.getpid())
    exports = {**ports.exports(), "CHAOS_MM_TOKEN_FILE": str(token_path())}
    state = DemoState("starting", os.getpid(), started, ports.base, time.time(), exports)
    supervisor = Supervisor(services, state, home / "demo.json", _tell)

    def stop(number: int, frame: object) -> None:
        supervisor.stopping = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return supervisor.run(lambda up: _wait(supervisor, held=options.attached or not up))


def _wait(supervisor: Supervisor, held: bool) -> None:
    """Sleep one look; while ``held``, end of file on stdin stops the supervisor."""
    if not held:
        time.sleep(_LOOK_EVERY_SECONDS)
        return
    readable, _, _ = select.select([sys.stdin], [], [], _LOOK_EVERY_SECONDS)
    if readable and not os.read(sys.stdin.fileno(), 1024):
        supervisor.stopping = True


def _tell(state: DemoState) -> None:
    """One line of progress; nobody reads any more once ``demo up`` has gone."""
    try:
        line = {"state": state.state, "reason": state.reason, "services": {s.name: s.state for s in state.services}}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
