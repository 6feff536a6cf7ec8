"""``make bench``: every benchmark, one after the other; the worst exit code of them.

Those of vLLM run in its own environment (``make setup-vllm``), on two models: the tests' tiny one, whose steps are
almost nothing but vLLM's own Python, so that the agent's share is the largest there can be; and one of ordinary width.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import agent_bench, engine_bench, faults_bench, proxy_bench, transformers_bench

ROOT = Path(__file__).parents[1]
VLLM_PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
WIDTHS = (64, 768)


def vllm() -> int:
    """What the agent adds to a decode step of vLLM; the worst exit code over the models."""
    from tests.models import tiny_llava

    if not VLLM_PYTHON.exists():
        print("vLLM: not run, there is no .venv-vllm: make setup-vllm", file=sys.stderr)
        return 2
    worst = 0
    with tempfile.TemporaryDirectory() as folder:
        for width in WIDTHS:
            model = tiny_llava(Path(folder) / str(width), clip_names=True, width=width)
            print(f"\nvLLM, a decoder {width} wide", flush=True)
            argv = [str(VLLM_PYTHON), "-m", "benchmarks.vllm_bench", str(model)]
            if width == WIDTHS[-1]:
                argv += ["--steps", "4", "--goal-percent", "1"]
            worst = max(worst, subprocess.run(argv, cwd=ROOT, env=os.environ, check=False).returncode)
    return worst


def main() -> int:
    """Run all; the worst exit code."""
    ours = (agent_bench.main, transformers_bench.main)
    peers = (faults_bench.main, proxy_bench.main, engine_bench.main)
    return max(*(run([]) for run in peers), *(run() for run in ours), vllm())


if __name__ == "__main__":
    raise SystemExit(main())
