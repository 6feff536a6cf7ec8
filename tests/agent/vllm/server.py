"""Starts real vLLM servers of the tiny model with the agent in them, and ends them again by pid, children too."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from chaos_mm.control.client import ControlClient
from chaos_mm.control.token import load_or_create_token
from tests.agent.vllm.client import Canaries, Client
from tests.ports import free_ports

__all__ = ["BLOCKS", "BLOCK_TOKENS", "ROOT", "Server", "start_server", "vllm_python"]

ROOT = Path(__file__).parents[3]
BLOCKS = 64
BLOCK_TOKENS = 128
"""Tokens of a key-value block: vLLM's choice on a CPU."""
START_SECONDS = 600.0
_FLAGS = ("--enforce-eager", "--enable-prompt-tokens-details")


def vllm_python() -> Path:
    """The interpreter of the environment that ``make setup-vllm`` builds, or the one in CHAOS_MM_VLLM_PYTHON."""
    path = Path(os.environ.get("CHAOS_MM_VLLM_PYTHON") or ROOT / ".venv-vllm" / "bin" / "python")
    assert path.exists(), f"no vLLM environment at {path}: make setup-vllm"
    return path


@dataclass
class Server:
    """A running server: the API server process ``process`` has EngineCore and Worker below it."""

    process: subprocess.Popen[bytes]
    url: str
    control_url: str
    state: Path
    log: Path
    token: str = field(repr=False)
    family: dict[int, psutil.Process] = field(default_factory=dict, repr=False)

    @property
    def client(self) -> Client:
        """As a user."""
        return Client(self.url)

    def control(self, timeout: float = 10.0) -> ControlClient:
        """As an operator, at the agent's control point."""
        return ControlClient(self.control_url, self.token, timeout=timeout)

    def agent(self) -> dict[str, Any]:
        """What ``GET /agent`` answers."""
        found = self.control().get("/agent")
        assert isinstance(found, dict)
        return found

    def canaries(self) -> Canaries:
        """Ids of a fresh run."""
        return Canaries(self.token)

    def processes(self) -> list[psutil.Process]:
        """Every living process of it, the API server first; remembered, so that orphans are found later."""
        if self.process.poll() is None:
            parent = psutil.Process(self.process.pid)
            for found in (parent, *parent.children(recursive=True)):
                self.family.setdefault(found.pid, found)
        return [p for p in self.family.values() if _lives(p)]

    def named(self, word: str) -> psutil.Process:
        """The one process whose title holds ``word``: ``EngineCore`` or ``Worker``."""
        (found,) = (p for p in self.processes() if word in " ".join(p.cmdline()))
        return found

    def tail(self, lines: int = 60) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """Until /health answers 200. Fails with the end of the log."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            if self.client.healthy():
                self.processes()
                return
            time.sleep(0.25)
        raise AssertionError(f"vLLM did not start ({self.process.poll()}):\n{self.tail()}")

    def stop(self) -> None:
        """SIGTERM to the API server, then SIGKILL to whatever of it is left after 20 s; at once to orphans."""
        self.processes()
        patience = 10.0 if self.process.poll() is None else 0.0
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        _, left = psutil.wait_procs([p for p in self.family.values() if _lives(p)], timeout=patience)
        for process in left:
            process.kill()


def _lives(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def start_server(
    model: Path, folder: Path, *, arguments: Sequence[str] = (), env: Mapping[str, str] | None = None, wait: bool = True
) -> Server:
    """Serve ``model``, everything written below ``folder``; the agent in it is on unless ``env`` says otherwise."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    port = free_ports(2)
    token = load_or_create_token(folder / "token")
    control_url = f"http://127.0.0.1:{port + 1}"
    full = {**_plain_environment(), **_environment(folder, control_url), **(env or {})}
    log = folder / "vllm.log"
    command = [str(vllm_python()), "-m", "vllm.entrypoints.openai.api_server", *_arguments(model, port), *arguments]
    with log.open("w") as stream:
        process = subprocess.Popen(
            command, env=full, cwd=folder, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT
        )
    server = Server(process, f"http://127.0.0.1:{port}", control_url, folder, log, token)
    if wait:
        try:
            server.wait_ready()
        except BaseException:
            server.stop()
            raise
    return server


def _plain_environment() -> dict[str, str]:
    """Ours, without what another test or a user set for vLLM, for the points or for Python."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("VLLM_", "CHAOS_MM_", "PYTHON", "PYTEST_"))}


def _environment(folder: Path, control_url: str) -> dict[str, str]:
    return {
        "CHAOS_MM_AGENT": "1",
        "CHAOS_MM_AGENT_CONTROL_URL": control_url,
        "CHAOS_MM_AGENT_ALLOW_LIVE": "1",
        "CHAOS_MM_AGENT_MAX_RATE": "1",
        "CHAOS_MM_STATE_DIR": str(folder),
        "CHAOS_MM_TOKEN_FILE": str(folder / "token"),
        "VLLM_PLUGINS": "chaos_mm",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CACHE_ROOT": str(folder.parent / "cache"),  # what the next server need not find out again
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _arguments(model: Path, port: int) -> list[str]:
    options = {
        "model": str(model),
        "served-model-name": "tiny",
        "host": "127.0.0.1",
        "port": str(port),
        "dtype": "float32",
        "max-model-len": "1024",
        "max-num-seqs": "8",
        "num-gpu-blocks-override": str(BLOCKS),
    }
    return [word for name, value in options.items() for word in (f"--{name}", value)] + list(_FLAGS)
