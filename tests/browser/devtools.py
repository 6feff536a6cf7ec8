"""Chromium without a window, spoken to over a pair of pipes: no port, no driver, nothing else to install."""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = (
    "no Chromium: `make test-browser` installs it where it may; else install the package chromium, "
    "or name the program in CHAOS_MM_CHROMIUM"
)
FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    # Nothing has a name, so that not even what a page asks for in vain leaves the machine.
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-features=OptimizationHints,MediaRouter",
)
# Chromium reads commands from descriptor 3 and answers on 4; Python cannot give a child descriptors of its choice.
WITH_PIPES = 'commands=$1 answers=$2; shift 2; exec "$@" 3<&"$commands" 4>&"$answers"'


def program() -> str:
    """The browser's path. Raises RuntimeError that says what to install."""
    named = os.environ.get("CHAOS_MM_CHROMIUM", "")
    found = [path for name in ((named,) if named else NAMES) if (path := shutil.which(name))]
    if not found:
        raise RuntimeError(f"CHAOS_MM_CHROMIUM={named} is not a program" if named else MISSING)
    return found[0]


class DevtoolsError(RuntimeError):
    """Chromium refused a command, ended, or did not answer in time."""


class Chromium:
    """One browser process with an empty profile of its own; use it in a ``with`` block."""

    def __init__(self) -> None:
        browser = program()
        self._profile = tempfile.TemporaryDirectory(prefix="chaos-mm-browser-", ignore_cleanup_errors=True)
        self._log = Path(self._profile.name, "log")
        commands, self._out = os.pipe()
        self._in, answers = os.pipe()
        argv = [browser, *FLAGS, f"--user-data-dir={self._profile.name}/profile"]
        if os.geteuid() == 0:
            argv.append("--no-sandbox")  # it has none to give to root
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", WITH_PIPES, "chromium", str(commands), str(answers), *argv],
                pass_fds=(commands, answers),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        os.close(commands)
        os.close(answers)
        self._unread = b""
        self._last_id = 0
        self._events: list[dict[str, Any]] = []

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.call("Browser.close", seconds=5)
            self._process.wait(10)
        except (DevtoolsError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait(10)
        os.close(self._out)
        os.close(self._in)
        self._profile.cleanup()

    def call(self, method: str, session: str = "", seconds: float = 60.0, **params: Any) -> dict[str, Any]:
        """The answer to one command. Raises DevtoolsError."""
        self._last_id += 1
        number = self._last_id
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        self._send(json.dumps(message).encode() + b"\0", method)
        deadline = time.monotonic() + seconds
        while (answer := self._read(deadline, method)).get("id") != number:
            self._events.append(answer)
        if "error" in answer:
            raise DevtoolsError(f"{method}: {answer['error'].get('message')} {answer['error'].get('data', '')}")
        return dict(answer["result"])

    def wait(self, session: str, event: str, seconds: float = 60.0) -> dict[str, Any]:
        """The first event of that name of a session, one that came already included. Raises DevtoolsError."""
        deadline = time.monotonic() + seconds
        while True:
            for one in self._events:
                if one.get("method") == event and one.get("sessionId") == session:
                    return one
            self._events.append(self._read(deadline, event))

    def events(self, session: str) -> list[dict[str, Any]]:
        """All that a session said so far, in order."""
        return [one for one in self._events if one.get("sessionId") == session]

    def forget(self, session: str) -> None:
        self._events = [one for one in self._events if one.get("sessionId") != session]

    def _send(self, message: bytes, method: str) -> None:
        try:
            while message:
                message = message[os.write(self._out, message) :]
        except BrokenPipeError:
            raise DevtoolsError(f"{method}: {self._ended()}") from None

    def _read(self, deadline: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise DevtoolsError(f"{what}: no answer in time")
            piece = os.read(self._in, 1 << 20)
            if not piece:
                raise DevtoolsError(f"{what}: {self._ended()}")
            self._unread += piece
        message, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(message))

    def _ended(self) -> str:
        return "Chromium ended: " + self._log.read_text(encoding="utf-8", errors="replace")[-2000:]
