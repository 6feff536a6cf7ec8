"""The plugins' entry points as vLLM loads them, in its own environment: inert unless asked for, refused by version."""

import os
import subprocess

import pytest

from tests.agent.vllm.server import vllm_python

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(300)]
LOAD = """
import asyncio, importlib.metadata as metadata, sys, threading
if FAKE:
    real = metadata.version
    metadata.version = lambda name: FAKE if name.startswith("vllm") else real(name)
general, = metadata.entry_points(group="vllm.general_plugins", name="chaos_mm")
endpoint, = metadata.entry_points(group="vllm.endpoint_plugins", name="chaos_mm")
general.load()()
made = endpoint.load()()
asyncio.run(made.init_state(object(), object(), object()))
print("vllm" in sys.modules, made.point, threading.active_count(), made.name)
"""


def load(fake_version: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("CHAOS_MM_", "VLLM_"))}
    script = LOAD.replace("FAKE", repr(fake_version))
    return subprocess.run(
        [str(vllm_python()), "-c", script], env=env | environment, capture_output=True, text=True, timeout=120
    )


def test_without_the_switch_nothing_is_touched_and_nothing_is_said():
    found = load(CHAOS_MM_TOKEN_FILE="/nowhere")
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["False", "None", "1", "chaos_mm"] and found.stderr == ""


@pytest.mark.parametrize("version", ["0.32.1", "0.33.0", "0.31.9"])
def test_another_version_is_refused_loudly_by_name(version: str, tmp_path):
    token = tmp_path / "token"
    token.write_text("x" * 43)
    token.chmod(0o600)
    found = load(version, CHAOS_MM_AGENT="1", CHAOS_MM_TOKEN_FILE=str(token))
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["False", "None", "1", "chaos_mm"]
    assert f"vLLM {version}" in found.stderr and "0.32.0" in found.stderr and "inert" in found.stderr


def test_without_a_token_it_is_refused_loudly():
    found = load(CHAOS_MM_AGENT="1", CHAOS_MM_TOKEN_FILE="/nowhere/token")
    assert found.stdout.split() == ["False", "None", "1", "chaos_mm"]
    assert "/nowhere/token does not exist" in found.stderr
