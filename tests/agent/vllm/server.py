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

from chaos_mm.agent.vllm.kv_seam import VERIFY
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
    """A server: the API server process ``process`` has EngineCore and Worker below it.

    ``start_seconds``: how long it took until /health answered, the last time that somebody waited for it.
    """

    command: tuple[str, ...] = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)
    url: str
    control_url: str
    state: Path
    log: Path
    token: str = field(repr=False)
    process: subprocess.Popen[bytes] = field(init=False)
    family: dict[int, psutil.Process] = field(default_factory=dict, repr=False)
    launched_at: float = 0.0
    start_seconds: float = 0.0

    def launch(self) -> None:
        """Start its process, for the first time or anew: same command, same addresses; the log goes on."""
        self.launched_at = time.monotonic()
        with self.log.open("a") as stream:
            self.process = subprocess.Popen(
                self.command,
                env=dict(self.environment),
                cwd=self.state,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )

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
                self.start_seconds = time.monotonic() - self.launched_at
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
        self.sweep(patience)

    def sweep(self, patience_seconds: float) -> None:
        """SIGKILL to whatever of it is left after so long, its API server among them; then none of it is."""
        _, left = psutil.wait_procs(self.processes(), timeout=patience_seconds)
        for process in left:
            process.kill()
        psutil.wait_procs(left, timeout=10)


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
    command = (str(vllm_python()), "-m", "vllm.entrypoints.openai.api_server", *_arguments(model, port), *arguments)
    server = Server(command, full, f"http://127.0.0.1:{port}", control_url, folder, folder / "vllm.log", token)
    server.launch()
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
        VERIFY: "1",
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
