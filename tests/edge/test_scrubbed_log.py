"""Real ``chaos run`` processes with secrets all over: none stands in the toolkit's log, on the console, or in the
folder."""

from pathlib import Path
from typing import Any

import pytest

from tests.edge.chaos import Chaos, activity, experiment

OF_ENVIRONMENT = "Mk9+of/the=environment"
OF_FILE = "Mk9-inline-of-the-file"
BY_FORM = "Mk9abcDEF123456"
MARKS = (OF_ENVIRONMENT, OF_FILE, BY_FORM, "Mk9")

SHOUT = """
import base64, logging
from urllib.parse import quote_plus

logger = logging.getLogger("chaostoolkit")

def shout(text: str, secrets=None):
    token = secrets["token"]
    logger.info("loud %s %s", text, secrets)
    logger.debug(f"quoted {quote_plus(token)} and {base64.b64encode(b'x' + token.encode()).decode()}")
    try:
        raise ValueError(f"broken {token} {secrets['inline']}")
    except ValueError:
        logger.error("trouble", exc_info=True)
    raise RuntimeError(f"at http://me:{token}@h/p?key={text} Bearer Mk9abcDEF123456")
"""


@pytest.fixture
def noisy(chaos: Chaos, tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "shout.py").write_text(SHOUT)
    chaos.environment["PYTHONPATH"] += f":{tmp_path}"
    chaos.environment["MARK_API_KEY"] = OF_ENVIRONMENT
    chaos.environment["CHAOS_MM_REPORTS"] = str(tmp_path / "reports")
    shouting = {
        "type": "action", "name": "shout",
        "provider": {"type": "python", "module": "shout", "func": "shout", "secrets": ["mine"],
                     "arguments": {"text": "${text}"}},
    }  # fmt: skip
    echoing = {
        "type": "action", "name": "echo",
        "provider": {"type": "process", "path": "echo", "arguments": ["${text}"]},
    }  # fmt: skip
    return experiment(
        activity("inject_image_noise", sigma=0.3, ttl_seconds=30.0),
        echoing,
        shouting,
        configuration={"text": {"type": "env", "key": "MARK_API_KEY"}},
        secrets={"mine": {"token": {"type": "env", "key": "MARK_API_KEY"}, "inline": OF_FILE}},
    )


def leaks(folder: Path) -> list[str]:
    given = {"shout.py", "token", "experiment-1.json"}
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in given and path.suffix != ".pyc"]
    assert len(files) > 3
    return [
        f"{path.name}: {line.strip()[:200]}"
        for path in files
        for line in path.read_text(errors="replace").splitlines()
        if any(mark in line for mark in MARKS)
    ]


def test_nothing_that_a_run_writes_holds_a_secret(chaos: Chaos, noisy: dict[str, Any], tmp_path: Path) -> None:
    outcome = chaos.run(noisy)
    log = (tmp_path / "chaos-1.log").read_text()
    assert "loud <secret> {'token': '<secret>', 'inline': '<secret>'}" in outcome.output
    assert "quoted <secret> and " in log
    assert "ValueError: broken <secret> <secret>" in log
    assert "RuntimeError: at http://<hidden>@h/p?key=<hidden> Bearer <secret>" in outcome.output
    assert leaks(tmp_path) == []


def test_a_file_that_is_refused_leaks_nothing_either(chaos: Chaos, noisy: dict[str, Any], tmp_path: Path) -> None:
    noisy["method"][0]["provider"]["arguments"]["reason"] = "${text}"
    noisy["method"][0]["provider"]["arguments"]["sigma"] = "${text}"
    outcome = chaos.run(noisy, "--var", f"text={OF_ENVIRONMENT}")
    assert outcome.status == 4
    assert "refuses to begin" in outcome.output
    assert leaks(tmp_path) == []
