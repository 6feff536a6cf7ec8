# Every target does its own set-up from a fresh clone and is quick when that is done.
#
#   make demo       bring up a tiny real model, hurt it four times by `chaos run`, show a report      ~6 min
#   make test-fast  no model, no engine, no second environment                                        ~6 min
#   make test       everything but the long tests; what CI runs
#   make test-long  fuzz and soak at length, retraining, a thousand kills: hours
#   make bench      ours against the known libraries, and what the agent costs an engine: tables
#   make check      ruff, mypy --strict, import-linter, README table
#   make train      train the demo target's model again from its seed

SHELL := /bin/bash
PYTHON ?= $(shell .ci/find_python 3.11 3.12 3.13 || echo python3)
PYTHON312 ?= $(shell .ci/find_python 3.12)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Python compiles what it imports; compiling all of torch and transformers beforehand takes half as long again.
export PIP_NO_COMPILE := 1
# One thread a process: the demo, the tests and the benchmarks all run several processes on few cores.
export OMP_NUM_THREADS ?= 1

BIN := .venv/bin
READY := .venv/.ready
READY_BENCH := .venv/.ready-bench
READY_TRAIN := .venv/.ready-train
READY312 := .venv312/.ready
PYTEST := $(BIN)/python -m pytest -q
# Whole files to each of two workers: most of these tests wait for processes of their own.
SIDE_BY_SIDE := -n 2 --dist loadfile
STAGE := .ci/stage
# What needs no process of the demo, no browser, no second environment.
FAST := not (long or live or model or wheel or browser or truth or runs or kills or repeats or vllm)
# Every fault against its own tests and against what the frame relies on.
CATALOGUE := tests/contract tests/faults
# The points that act without passing requests: the agent, over a miniature engine and the demo's model, and the host.
INSIDE := tests/agent tests/host
# Checks pages for accessibility inside the browser; npm brings it.
AXE := axe-core@4.14.1
# The suites that must also run on Python 3.12 with the newest toolkit; whole runs there are test-truth-312's.
SUITES312 := tests/control tests/edge tests/proxy tests/load tests/cli tests/runner tests/chaos_cli

.NOTPARALLEL:
.PHONY: demo test-fast test test-long bench check train setup setup-312 setup-browser \
  test-model test-live test-wheel test-truth test-truth-312 test-browser test-repeats test-kills test-312 \
  test-engine test-catalogue test-agent setup-vllm clean

demo: $(READY)
	$(BIN)/chaos-mm demo $(if $(BASE_PORT),--base-port $(BASE_PORT))

test-fast: $(READY)
	$(STAGE) test-fast 280 $(PYTEST) $(SIDE_BY_SIDE) -m "$(FAST)" $(addprefix --ignore ,$(CATALOGUE) $(INSIDE))

test-catalogue: $(READY)
	$(STAGE) test-catalogue 80 $(PYTEST) $(SIDE_BY_SIDE) -m "$(FAST)" $(CATALOGUE)

test-agent: $(READY)
	$(STAGE) test-agent 130 $(PYTEST) $(SIDE_BY_SIDE) -m "$(FAST) or (model and not (live or long or vllm))" $(INSIDE)

test-model: $(READY)
	$(STAGE) test-model 130 $(PYTEST) -m "model and not live and not long" $(addprefix --ignore ,$(INSIDE))

test-live: $(READY)
	$(STAGE) test-live 280 $(PYTEST) -m "live and not long and not wheel"

test-wheel: $(READY)
	$(STAGE) test-wheel 50 $(PYTEST) -m "wheel and not long"

# Real runs mostly wait for phases to pass, so there are more workers than cores.
TRUTH := -n 6 --dist worksteal tests/truth
# Beside the rows of the table: whole runs by `chaos run` against bare points, marked `runs`.
RUNS := tests/edge/test_runs.py tests/edge/test_endings.py

test-truth: $(READY)
	$(STAGE) test-truth 180 $(PYTEST) -m "(truth or runs) and not long" $(TRUTH) $(RUNS)

test-truth-312: setup-312
ifneq ($(PYTHON312),)
	$(STAGE) test-truth-312 110 .venv312/bin/python -m pytest -q -p no:cacheprovider \
	  -m "(truth or runs) and not long" $(TRUTH) $(RUNS)
endif

test-browser: $(READY) setup-browser
	$(STAGE) test-browser 80 $(PYTEST) $(SIDE_BY_SIDE) -m "browser and not long"

# Each worker has a demo of its own; more of them at once would starve each other's models.
test-repeats: $(READY)
	$(STAGE) test-repeats 190 $(PYTEST) -n 2 --dist worksteal -m "repeats and not long" tests/repeats

test-kills: $(READY)
	$(STAGE) test-kills 190 $(PYTEST) -n 3 --dist worksteal -m "kills and not long" tests/kills

# One real vLLM server at a time: each is three processes on few cores, and takes most of a minute to start.
test-engine: $(READY) setup-vllm
	$(STAGE) test-engine 380 $(PYTEST) -m "vllm and not long" tests/agent/vllm

test-312: setup-312
ifneq ($(PYTHON312),)
	$(STAGE) test-312 200 .venv312/bin/python -m pytest -q -p no:cacheprovider $(SIDE_BY_SIDE) \
	  -m "$(FAST)" $(SUITES312)
endif

test: test-fast test-catalogue test-agent test-model test-live test-wheel test-truth test-truth-312 test-browser test-repeats test-kills test-312 \
  test-engine

test-long: $(READY) setup-312
	$(PYTEST) -m "long and not repeats and not kills" --timeout 0
	$(PYTEST) -n 2 --dist worksteal -m "repeats and long" --timeout 0 tests/repeats
	$(PYTEST) -n 3 --dist worksteal -m "kills and long" --timeout 0 tests/kills
ifneq ($(PYTHON312),)
	.venv312/bin/python -m pytest -q -p no:cacheprovider -m "truth or runs" $(TRUTH) $(RUNS)
	.venv312/bin/python -m pytest -q -p no:cacheprovider -m "$(FAST)" tests/core tests/faults tests/sli
endif

bench: $(READY_BENCH) setup-vllm
	$(BIN)/python -m benchmarks

check: $(READY)
	$(BIN)/ruff check --output-format concise .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/chaos-mm faults table --check README.md

train: $(READY_TRAIN)
	$(BIN)/python -m training

setup: $(READY)

setup-browser:
	@.ci/setup_browser $(AXE)

setup-vllm:
	@.ci/setup_vllm $(PYTHON)

setup-312:
ifneq ($(PYTHON312),)
	$(MAKE) $(READY312)
else
	@echo "NOT RUN: no Python 3.12"
endif

# torch is named by its plain version: pip takes a CPU wheel from the local disk where it is set up to find one, and
# else what the package index has for this platform (on Linux a CUDA build; README says how to get the CPU one first).
$(READY): pyproject.toml constraints.txt
	@echo 'setting up .venv: one to five minutes'
	@exec 9>.venv.lock; flock 9; [ $@ -nt pyproject.toml -a $@ -nt constraints.txt ] || { \
	  set -e; [ -x $(BIN)/python ] || $(PYTHON) -m venv .venv; \
	  $(BIN)/python -m pip install -q -c constraints.txt hatchling torch==2.13.0; \
	  $(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[demo,dev,serve]'; \
	  touch $@; }

$(READY_BENCH): $(READY)
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[bench]'
	touch $@

$(READY_TRAIN): $(READY)
	command -v espeak-ng >/dev/null || apt-get install -y -q espeak-ng || { echo "install espeak-ng first"; exit 1; }
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[train]'
	touch $@

$(READY312): pyproject.toml constraints.txt
	@exec 9>.venv312.lock; flock 9; [ $@ -nt pyproject.toml -a $@ -nt constraints.txt ] || { \
	  set -e; [ -x .venv312/bin/python ] || $(PYTHON312) -m venv .venv312; \
	  .venv312/bin/python -m pip install -q -c constraints.txt hatchling; \
	  .venv312/bin/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[proxy,load,dev]'; \
	  touch $@; }

clean:
	rm -rf .venv .venv312 .venv.lock .venv312.lock .browser .browser.lock .venv-vllm .venv-vllm.lock dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
