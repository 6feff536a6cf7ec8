"""Loads of key-value blocks that fail, through the connector that a server is started with; and rows that kill it."""

import json
from typing import Any

import pytest

from chaos_mm.core.fault import Effect
from tests.agent.vllm.client import Canaries, first_change, picture, together
from tests.agent.vllm.schedules import OWNER, TOKENS, Schedule, lease, text, wait_until_proven
from tests.agent.vllm.server import Server

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]
CONNECTOR = {
    "kv_connector": "ChaosConnector",
    "kv_connector_module_path": "chaos_mm.agent.vllm.connector",
    "kv_role": "kv_both",
    "kv_load_failure_policy": "recompute",
}
ARGUMENTS = ("--kv-transfer-config", json.dumps(CONNECTOR), "--enable-prompt-tokens-details")


@pytest.fixture(scope="module", autouse=True)
def _proven(server: Server) -> None:
    wait_until_proven(server, "kv_load", "embedding")


def hurt_run(server: Server, schedule: Schedule, canaries: Canaries, **params: Any) -> tuple[Any, dict[str, Any]]:
    with lease(server, "kv_cache_load_failure", **params) as evidence:
        both = schedule.run(canaries)
    return both, evidence["found"]


def fresh(server: Server) -> Schedule:
    """Prompts that no prefix cache holds: what is loaded must be what the connector claims."""
    return Schedule.of(server, words=14)


def test_a_declared_failure_is_recomputed_and_nobody_sees_a_difference(server: Server, canaries: Canaries) -> None:
    schedule = fresh(server)
    hurt, found = hurt_run(server, schedule, canaries)
    clean = schedule.run(canaries)
    assert first_change(clean.victim, hurt.victim) is None and first_change(clean.bystander, hurt.bystander) is None
    assert found["applied"] == 1 and found["achieved"]["tokens"]["min"] >= 128, found
    assert found["undo"]["proven"] and "Recovered from KV load failure" in server.log.read_text()


def test_a_silent_failure_is_wrong_from_the_first_token_and_gone_after_release(
    server: Server, canaries: Canaries
) -> None:
    schedule = fresh(server)
    hurt, found = hurt_run(server, schedule, canaries, declared=False)
    clean, again = schedule.run(canaries), schedule.run(canaries)
    assert first_change(clean.victim, again.victim) is None
    assert first_change(clean.victim, hurt.victim) == 0
    assert first_change(clean.bystander, hurt.bystander) is None
    assert found["undo"]["proven"] and found["undo"]["figures"]["derived_blocks"] >= 2, found["undo"]


def test_a_slow_load_ends_with_its_delay(server: Server, canaries: Canaries) -> None:
    client, words = server.client, text(14)
    with lease(server, "kv_cache_load_failure", delay_seconds=2.0) as evidence:
        slow = client.chat(words, tokens=TOKENS, request_id=canaries.next())
    fast = client.chat(words, tokens=TOKENS, request_id=canaries.next())
    assert slow.seconds > 2.0 and first_change(slow, fast) is None
    assert evidence["found"]["applied"] == 1


def test_another_number_of_rows_ends_the_server_as_was_said(server: Server, canaries: Canaries) -> None:
    (said,) = (fault for fault in server.control().faults() if fault["name"] == "embedding_rows")
    assert said["effect"] == Effect.ROWS and said["fatal"].startswith("restart needed")
    body = {"owner": OWNER, "fault": "embedding_rows", "ttl_seconds": 60, "keepalive_seconds": 60}
    found = server.control().put_lease("last", {**body, "params": {"rows": 3}})
    assert found["engine"]["fatal"].startswith("restart needed")
    one, other = together(
        lambda: server.client.chat(text(2), tokens=8, request_id=canaries.next(), images=[picture(3)]),
        lambda: server.client.chat(text(2), tokens=600),
    )
    assert one.status == 500 and other.status == 500, "one bad picture is the end of everybody's request"
    assert server.process.wait(60) is not None
