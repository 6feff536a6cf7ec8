"""The demo target started through ``chaos-mm agent run``: standing by, serving, hurt by lease over HTTP, in batches."""

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.agent.transformers.server import Server, ready_line, serving, wait_for

pytestmark = [pytest.mark.model, pytest.mark.live, pytest.mark.timeout(400)]
WORDS = ["chaos-mm", "target", "--host", "127.0.0.1", "--port", "{port}", "--standby"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Promoted from standing by, as the demo's supervisor does it."""
    folder = tmp_path_factory.mktemp("target")
    with serving(folder, WORDS, "chaos-mm-tiny", stdin=subprocess.PIPE) as made:
        standard_output, standard_input = made.process.stdout, made.process.stdin
        assert standard_output is not None and standard_input is not None
        assert json.loads(standard_output.readline()) == {"standby": "target", "pid": made.process.pid}
        with pytest.raises(httpx.TransportError):
            made.agent("GET", "/health")  # a spare does not hold the control address
        standard_input.write("go\n")
        standard_input.flush()
        assert json.loads(standard_output.readline())["ready"] == "target"
        wait_for(made)
        yield made


def test_the_agent_is_in_the_very_process_that_serves(server: Server) -> None:
    assert ready_line(server) == {"ready": "agent", "control_url": server.control, "pid": server.process.pid}
    evidence = server.evidence()
    assert evidence["engine"]["runner"] == "chaos-mm target" and evidence["engine"]["model"] == "OmniModel"
    assert evidence["seams"]["media_key"]["available"] and not evidence["seams"]["block_pool"]["available"]


def test_victims_of_a_crowd_are_hurt_and_bystanders_of_their_batches_are_not(server: Server) -> None:
    names = [server.canary(n) if n % 3 == 0 else f"bystander-{n}" for n in range(12)]

    def answers() -> dict[str, list[tuple[str, float]]]:
        found: dict[str, list[tuple[str, float]]] = {}

        def ask(place: int, name: str) -> None:
            answer = server.ask(name, text=f"repeat the code {1000 + 37 * place}", logprobs=True)
            assert answer.status_code == 200, answer.text
            scores = answer.json()["choices"][0]["logprobs"]["content"]
            found[name] = [(score["token"], score["logprob"]) for score in scores]

        threads = [threading.Thread(target=ask, args=given) for given in enumerate(names)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    clean = answers()
    steps = server.evidence()["workers"][0]["steps"]
    server.put("kv_cache_noise", sigma=2.0)
    hurt = answers()
    shared = server.evidence()["workers"][0]["steps"] - steps
    shown = server.release()
    again = answers()

    def apart(one: list[tuple[str, float]], other: list[tuple[str, float]]) -> bool:
        """Logits of a row move in their last bits with the shape of its batch; damage is far larger."""
        return [t for t, _ in one] != [t for t, _ in other] or max(
            abs(a - b) for (_, a), (_, b) in zip(one, other, strict=True)
        ) > 1e-3

    assert shown["matched"] == shown["applied"] == 4 and shown["errored"] == 0, shown
    assert [name for name in names if apart(hurt[name], clean[name])] == names[::3]
    assert not any(apart(again[name], clean[name]) for name in names)
    assert 0 < shared < sum(len(scores) for scores in hurt.values())  # rows were computed together


def test_a_failed_allocation_answers_500_and_the_server_goes_on(server: Server) -> None:
    clean = server.text("someone", 77)
    server.put("allocation_failure", selector="live", site="kv_growth")
    statuses = [server.ask("another", 77).status_code for _ in range(40)]
    server.release()
    assert statuses.count(500) == 1 and set(statuses) == {200, 500}
    assert server.text("someone", 77) == clean and server.evidence()["workers"][0]["pending_undo"] == 0


def test_a_picture_seen_again_counts_as_a_hit(server: Server) -> None:
    def hits() -> float:
        lines = httpx.get(server.url + "/metrics", timeout=10).text.splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith("vllm:mm_cache_hits_total{"))

    server.text("one", 500)
    before = hits()
    server.text("two", 500)
    assert hits() == before + 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["no-such-server-at-all"], "was not found"),
        (["python", "-c", "pass"], "only 'python -m MODULE"),
        (["missing.py"], "missing.py is no file"),
        (["sleep", "1"], "is not a console script of this Python"),
    ],
)
def test_what_is_no_python_program_is_refused_by_name(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from chaos_mm.agent.command import command

    for name in ("CHAOS_MM_AGENT", "CHAOS_MM_AGENT_BOARD", "CHAOS_MM_AGENT_NONCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CHAOS_MM_STATE_DIR", str(tmp_path))
    result = CliRunner().invoke(command, ["run", "--", *words])
    assert result.exit_code == 1 and says in result.output, result.output


def test_without_a_token_file_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from chaos_mm.agent.command import command

    monkeypatch.setenv("CHAOS_MM_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("CHAOS_MM_TOKEN_FILE", raising=False)
    monkeypatch.delenv("CHAOS_MM_AGENT", raising=False)
    result = CliRunner().invoke(command, ["run", "--", "python", "-m", "this"])
    assert result.exit_code == 1 and "no token at" in result.output
