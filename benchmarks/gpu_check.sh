#!/usr/bin/env bash
# The CUDA paths on one NVIDIA GPU, in five minutes at most, as one table: fill, spike, fragment, out of memory, delay and
# hang of a real flash-attention call, restore. Needs a checkout, Python >= 3.11 with torch for CUDA, and nvidia-ml-py:
#
#   pip install -e '.[gpu,agent]' && benchmarks/gpu_check.sh | tee docs/gpu-check.log
#
# Exit status: 0 every row is ok, 1 one is not, 3 there is no NVIDIA GPU here (said in words, and nothing is run).
set -u
cd "$(dirname "$0")/.." || exit 1
PYTHON=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
exec timeout --kill-after=10 300 "$PYTHON" -m benchmarks.gpu_check "$@"
