"""``make bench``: every benchmark, one after the other, each in a process of its own; the worst exit code of them.

Those of vLLM run in its own environment (``make setup-vllm``), on two models: the tests' tiny one, whose steps are
almost nothing but vLLM's own Python, so that the agent's share is the largest there can be; and one of ordinary width.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
VLLM_PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
WIDTHS = (64, 768)
NAMES = ("faults", "proxy", "engine", "agent", "transformers")


def run(python: str | Path, name: str, *options: str) -> int:
    """One benchmark's exit code. In a process of its own no other's settings, threads or warm memory reach it."""
    argv = [str(python), "-m", f"benchmarks.{name}_bench", *options]
    return subprocess.run(argv, cwd=ROOT, env=os.environ, check=False).returncode


def vllm() -> dict[str, int]:
    """What the agent adds to a decode step of vLLM: the exit code for each model."""
    from tests.models import tiny_llava

    if not VLLM_PYTHON.exists():
        print("vLLM: not run, there is no .venv-vllm: make setup-vllm", file=sys.stderr)
        return {"vllm": 2}
    codes = {}
    with tempfile.TemporaryDirectory() as folder:
        for width in WIDTHS:
            model = tiny_llava(Path(folder) / str(width), clip_names=True, width=width)
            print(f"\nvLLM, a decoder {width} wide", flush=True)
            options = ("--steps", "4", "--goal-percent", "1") if width == WIDTHS[-1] else ()
            codes[f"vllm {width} wide"] = run(VLLM_PYTHON, "vllm", str(model), *options)
    return codes


def main() -> int:
    """Run all, say which did not end with 0; the worst exit code."""
    codes = {name: run(sys.executable, name) for name in NAMES} | vllm()
    missed = [f"{name} (exit {code})" for name, code in codes.items() if code]
    print(f"\nbenchmarks that did not end with 0: {', '.join(missed) or 'none'}")
    return max(abs(code) for code in codes.values())  # below zero: ended by a signal


if __name__ == "__main__":
    raise SystemExit(main())
