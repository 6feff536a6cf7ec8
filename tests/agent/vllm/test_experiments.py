"""The experiments that need vLLM, by ``chaos run`` against a real one with a load of canaries and bystanders.

Those that end the engine are the ones to see: the run ends well only when somebody brings the server back and the new
process answers canaries as the one before did. How long that takes is up to whoever brings it back, so the length of
the fault and the bounds of the outage follow the start of the very server; nothing else is changed about the files.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.vllm.conftest import Pool
from tests.agent.vllm.playing import Ran, Stage, bounds, stage
from tests.agent.vllm.schedules import lease, text, wait_until_proven
from tests.agent.vllm.server import Server
from tests.agent.vllm.supervisor import Supervisor
from tests.agent.vllm.test_worker_connector import CONNECTOR

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
LATE = 1
WITH_CONNECTOR = ("--kv-transfer-config", json.dumps(CONNECTOR))
# Of a phase in which the server is away most of the time, at least so much is answered, and rightly.
OUTAGE = bounds(window_seconds=900, least=0.15)
RESTART = "restart needed"


def restart_seconds(server: Server) -> float:
    """What a fault that ends the server must last, so that another one answers before its release."""
    return 1.5 * server.start_seconds + 10


@pytest.fixture
def played(server: Server, tmp_path: Path) -> Iterator[Stage]:
    wait_until_proven(server, "attention", "embedding")
    with stage(server, tmp_path) as made:
        yield made


@pytest.fixture
def with_connector(pool: Pool, tmp_path: Path) -> Iterator[Stage]:
    """Prompts of more than one block, as less than that is never loaded; and more of them than the blocks hold, as what
    stands in the prefix cache is neither loaded nor merged again."""
    server = pool.get(WITH_CONNECTOR, {})
    wait_until_proven(server, "kv_load", "embedding")
    with stage(server, tmp_path, padding="6", canary_set="56") as made:
        yield made


def ended_the_server_and_another_took_over(ran: Ran, supervisor: Supervisor) -> None:
    """What is true of a passed run of a fatal fault."""
    assert (ran.word, ran.outcome.status) == ("passed", 0), ran
    assert ran.verdict["target_replaced"] is True and len(supervisor.deaths) == 1
    assert f"{RESTART}: vLLM" in ran.outcome.output.partition("Action: inject")[0], "it is said before anything happens"
    assert ran.lease["engine"]["fatal"].startswith(RESTART)
    assert ran.lease["applied"] == 1, ran.lease
    assert ran.value("baseline", "ok_ratio") > 0.9 > ran.value("fault", "ok_ratio"), "there was an outage"
    # Each canary of the recovery was answered, by another process, as its twin of the baseline.
    assert ran.value("recovery", "canary_exact") == ran.value("recovery", "ok_ratio") == 1.0, ran


def test_an_attention_error_ends_the_server_and_the_run_passes_once_another_answers(
    server: Server, tmp_path: Path
) -> None:
    wait_until_proven(server, "attention")
    (said,) = (fault for fault in server.control().faults() if fault["name"] == "attention_error")
    assert said["fatal"].startswith(RESTART)
    with lease(server, "attention_error") as evidence:
        assert server.client.chat(text(2), tokens=4).status == 200, "no canary, no error"
    assert evidence["found"]["applied"] == 0
    changed = {"short-outage": OUTAGE, "text-answers": OUTAGE}
    with stage(server, tmp_path) as played, Supervisor(server) as supervisor:
        ran = played.run("attention-error", changed=changed, seconds=(8, restart_seconds(server), 8))
    ended_the_server_and_another_took_over(ran, supervisor)
    server.wait_ready()  # it serves the modules that come


@pytest.mark.long
def test_requests_queue_and_none_is_lost_when_blocks_run_short(played: Stage) -> None:
    ran = played.run("kv-cache-pressure")
    assert (ran.word, ran.outcome.status) == ("passed", 0), ran
    assert ran.lease["applied"] == 1 and ran.lease["undo"]["proven"]
    assert ran.lease["achieved"]["held_blocks"]["max"] > 0


@pytest.mark.long
def test_a_preempted_answer_is_that_of_its_twin(played: Stage) -> None:
    before = played.server.client.metrics()["vllm:num_preemptions_total"]
    ran = played.run("preemption-twin")
    assert (ran.word, ran.outcome.status) == ("passed", 0), ran
    assert ran.lease["applied"] >= 0.9 * ran.lease["matched"] > 10
    assert played.server.client.metrics()["vllm:num_preemptions_total"] - before >= ran.lease["applied"]
    assert ran.value("fault", "canary_exact") == 1.0


@pytest.mark.long
def test_where_nobody_brings_the_server_back_the_run_says_so(played: Stage) -> None:
    with Supervisor(played.server, restarts=0) as supervisor:
        ran = played.run("attention-error", changed={"short-outage": OUTAGE, "text-answers": OUTAGE})
    assert (ran.word, ran.outcome.status) == ("not_restored", 5), ran
    assert ran.verdict["target_replaced"] is None and len(supervisor.deaths) == 1
    assert ran.lease["applied"] == 1 and RESTART in str(ran.verdict["reasons"]), ran


@pytest.mark.long
def test_a_failed_load_of_blocks_costs_nobody_an_answer(with_connector: Stage) -> None:
    ran = with_connector.run("kv-load-failure")
    assert (ran.word, ran.outcome.status) == ("passed", 0), ran
    assert ran.lease["applied"] >= 0.5 * ran.lease["matched"] > 5
    assert "Recovered from KV load failure" in with_connector.server.log.read_text()


@pytest.mark.long
def test_a_silent_failure_to_load_is_a_wrong_answer(with_connector: Stage) -> None:
    ran = with_connector.run("kv-load-failure", "--var", "declared:bool=false")
    assert (ran.word, ran.outcome.status) == ("deviated", 1), ran
    assert ran.value("fault", "bystander_ok") == ran.value("recovery", "canary_exact") == 1.0, ran


@pytest.mark.long
def test_too_few_rows_end_the_server_and_the_run_passes_once_another_answers(with_connector: Stage) -> None:
    changed = {"short-outage": OUTAGE, "picture-answers": OUTAGE}
    server = with_connector.server
    with Supervisor(server) as supervisor:
        ran = with_connector.run("embedding-rows", changed=changed, seconds=(8, restart_seconds(server), 8))
    ended_the_server_and_another_took_over(ran, supervisor)
    server.wait_ready()
