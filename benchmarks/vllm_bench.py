"""What the disarmed agent adds to a decode step of a real vLLM.

``.venv-vllm/bin/python -m benchmarks.vllm_bench MODEL [--blocks N] [--steps N] [--goal-percent P]`` runs vLLM 0.32 on
the CPU in this one process, engine core and worker together, with the agent's seams in it and nothing armed. Blocks of
decode steps with the seams in and out alternate in random order; CPU time of the stepping thread per step is compared
pair by pair, with a 95 % bootstrap interval. Wall clock cannot resolve this. MODEL is a folder such as
``tests.models.tiny_llava`` writes: the smaller its steps, the larger the share. Exit code 1 where the whole interval
lies above the goal.
"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

REQUESTS = 8
TOKENS = 900


class Seams:
    """Everything that the agent has put into this process, to be taken out and put back."""

    def __init__(self, engine: Any) -> None:
        """``engine``: vLLM's ``LLMEngine``, which has stepped once, so that the worker's agent is built."""
        from vllm.v1.core.kv_cache_coordinator import KVCacheCoordinator
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.worker.worker_base import WorkerWrapperBase

        from chaos_mm.agent.vllm.core import CoreAgent

        core = engine.engine_core.engine_core
        worker = core.model_executor.driver_worker.worker
        self.agent, self.model = worker.__dict__["chaos_mm_agent"], worker.model_runner.get_model()
        assert self.agent is not None, "the agent is inert here"
        self.core = CoreAgent(core)
        doors = ((WorkerWrapperBase, "execute_model"), (KVCacheCoordinator, "cache_blocks"), (Scheduler, "schedule"))
        self._doors = [(owner, name, getattr(owner, name)) for owner, name in doors]
        patch = self.agent.attention[1]
        self._attention = {kind: (kind.forward, real) for kind, real in patch._real.items()}
        self._merge = self.model.__dict__["embed_input_ids"]

    @contextmanager
    def out(self) -> Iterator[None]:
        """As if the agent had never been there."""
        for owner, name, ours in self._doors:
            setattr(owner, name, ours.__wrapped__)
        for kind, (_, real) in self._attention.items():
            kind.forward = real
        del self.model.__dict__["embed_input_ids"]
        try:
            yield
        finally:
            for owner, name, ours in self._doors:
                setattr(owner, name, ours)
            for kind, (ours, _) in self._attention.items():
                kind.forward = ours
            self.model.__dict__["embed_input_ids"] = self._merge

    def book(self) -> None:
        """Requests that came or went while the seams were out are unknown to the worker's book: begin it anew."""
        self.agent.book.live.clear()


def engine(model: Path) -> Any:
    """A small engine in this process."""
    from vllm import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    arguments = EngineArgs(
        model=str(model),
        dtype="float32",
        max_model_len=1024,
        max_num_seqs=REQUESTS,
        enforce_eager=True,
        num_gpu_blocks_override=128,
    )
    return LLMEngine.from_engine_args(arguments, enable_multiprocessing=False)


def fill(made: Any, serial: int) -> None:
    """Keep REQUESTS requests in flight; their prompts take one step each."""
    from vllm import SamplingParams

    sampling = SamplingParams(max_tokens=TOKENS, ignore_eos=True, temperature=0.0)
    for number in range(REQUESTS):
        made.add_request(f"bench-{serial}-{number}", {"prompt_token_ids": [10 + number, 11, 12, 13]}, sampling)


def block(step: Callable[[], Any], steps: int) -> float:
    """CPU seconds of this thread for each of so many steps."""
    began = time.thread_time()
    for _ in range(steps):
        step()
    return (time.thread_time() - began) / steps


def measure(made: Any, seams: Seams, blocks: int, steps: int) -> np.ndarray:
    """(blocks, 2): CPU seconds a step with the seams in, and out; which comes first is drawn."""

    def with_core() -> None:
        seams.core.before_step()
        made.step()

    found, serial, left = np.zeros((blocks, 2)), 0, 0
    for row in range(blocks):
        if left < 2 * steps + 10:
            while made.has_unfinished_requests():
                made.step()
            seams.book()
            fill(made, serial := serial + 1)
            block(with_core, 8)
            left = TOKENS - 8
        for arm in random.sample((0, 1), 2):
            if arm == 0:
                found[row, 0] = block(with_core, steps)
            else:
                with seams.out():
                    found[row, 1] = block(made.step, steps)
        left -= 2 * steps
    return found


def interval(pairs: np.ndarray, draws: int = 10_000) -> tuple[float, float, float]:
    """Ratio of the arms' means less one, and its 95 % bootstrap interval over pairs."""
    picks = np.random.default_rng(0).integers(0, len(pairs), (draws, len(pairs)))
    means = pairs[picks].mean(axis=1)
    low, high = np.percentile(means[:, 0] / means[:, 1] - 1, [2.5, 97.5])
    return float(pairs[:, 0].mean() / pairs[:, 1].mean() - 1), float(low), float(high)


def nanoseconds(call: Callable[[], Any], times: int = 100_000) -> float:
    """CPU time of one call."""
    began = time.thread_time_ns()
    for _ in range(times):
        call()
    return (time.thread_time_ns() - began) / times


def prepare() -> tempfile.TemporaryDirectory[str]:
    """A state folder with a token and a board, and vLLM in one process with our plugin."""
    from chaos_mm.agent.control import make_board
    from chaos_mm.control.token import load_or_create_token

    folder = tempfile.TemporaryDirectory()
    state = Path(folder.name) / "state"
    state.mkdir(mode=0o700)
    os.environ |= {
        "CHAOS_MM_AGENT": "1",
        "CHAOS_MM_STATE_DIR": str(state),
        "CHAOS_MM_TOKEN_FILE": str(state / "token"),
        "VLLM_PLUGINS": "chaos_mm",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    load_or_create_token(state / "token")
    make_board()
    return folder


def main() -> int:
    """Measure and print; 1 where the goal is missed beyond doubt."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--blocks", type=int, default=400)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--goal-percent", type=float, default=float("inf"))
    options = parser.parse_args()
    with prepare():
        made = engine(options.model)
        fill(made, 0)
        made.step()
        seams = Seams(made)
        pairs = measure(made, seams, options.blocks, options.steps)
        assert seams.agent.errors == 0
        ratio, low, high = interval(pairs)
        inside, outside = pairs.mean(axis=0) * 1e6
        total = options.blocks * options.steps
        print(f"decode step of {REQUESTS} requests, {total} steps an arm, CPU time of the stepping thread:")
        print(f"  seams in {inside:.1f} us, out {outside:.1f} us: {ratio:+.2%} [{low:+.2%}, {high:+.2%}]")
        print(f"  gate, disarmed: {nanoseconds(seams.agent.runtime.armed):.0f} ns a call")
        print(f"  engine core before a step, disarmed: {nanoseconds(seams.core.before_step):.0f} ns")
    return int(low * 100 > options.goal_percent)


if __name__ == "__main__":
    raise SystemExit(main())
