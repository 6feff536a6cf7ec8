"""What a file must hold to, whatever the services say."""

from typing import Any

import pytest

from chaos_mm.controls.rules import broken_rules, injections, lease_of
from tests.edge.chaos import activity, experiment, injection

INJECT = injection()


def rules(*method: dict[str, Any], configuration: dict[str, Any] | None = None, **more: Any) -> list[str]:
    return list(broken_rules(experiment(*method, **more), configuration or {}, {}))


def test_a_file_of_ours_breaks_none() -> None:
    assert rules(INJECT, activity("hold", seconds=1)) == []
    assert rules(activity("hold", seconds=1), rollbacks=[]) == []


def test_an_injection_says_when_it_ends() -> None:
    (reason,) = rules(activity("inject_image_noise"))
    assert reason.startswith("inject_image_noise: no ttl_seconds is given")


@pytest.mark.parametrize(
    ("lease", "rollbacks", "fine"),
    [
        ("", [], False),
        ("", [activity("release", lease="another")], False),
        ("", [activity("release", lease="image_noise")], True),
        ("mine", [activity("release", lease="image_noise")], False),
        ("mine", [activity("release", lease="mine")], True),
        ("${name}", [activity("release", lease="mine")], True),
        ("mine", [activity("release", lease="${name}")], True),
        ("mine", [activity("release_all")], True),
        ("mine", [{**activity("release_all"), "provider": {"module": "another", "func": "release_all"}}], False),
    ],
)
def test_every_injection_is_released_in_the_rollbacks(lease: str, rollbacks: list[Any], fine: bool) -> None:
    given = {"lease": lease} if lease else {}
    found = rules(injection(**given), rollbacks=rollbacks, configuration={"name": "mine"})
    assert (found == []) == fine
    assert all("no rollback releases the lease" in reason for reason in found)


def test_an_injection_does_not_pause_afterwards() -> None:
    (reason,) = rules({**INJECT, "pauses": {"after": 1}})
    assert "pauses.after holds up a signal" in reason
    assert rules({**INJECT, "pauses": {"before": 1}}) == []
    assert rules(INJECT, {**activity("hold", seconds=1), "pauses": {"after": 1}}) == []


def test_one_activity_alone_cannot_be_dry() -> None:
    (reason,) = rules(INJECT, {**activity("hold"), "dry": "actions"})
    assert reason.startswith("hold: a 'dry' key")
    assert (
        len(rules({"type": "action", "name": "x", "provider": {"type": "process", "path": "true"}, "dry": True})) == 1
    )


def test_the_name_of_a_lease_is_its_fault_s_unless_given() -> None:
    (one,) = injections(experiment(INJECT))
    assert lease_of(one, {}, {}) == "image_noise"
    (other,) = injections(experiment(injection(lease="${name}")))
    assert lease_of(other, {"name": "mine"}, {}) == "mine"


def test_a_lease_is_injected_once() -> None:
    (reason,) = rules(INJECT, activity("release", lease="image_noise"), INJECT)
    assert "the lease 'image_noise' is injected twice" in reason
    assert rules(INJECT, injection(lease="another"), rollbacks=[activity("release_all")]) == []
    (reason,) = rules(INJECT, {"ref": "inject_image_noise"})
    assert "is repeated by 'ref'" in reason
    assert rules(INJECT, {"ref": "somebody-else"}) == []


def test_an_injection_stands_in_the_method() -> None:
    (reason,) = rules(activity("hold", seconds=1), rollbacks=[INJECT, activity("release_all")])
    assert "an injection stands in the method" in reason
    probe = {**INJECT, "type": "probe", "tolerance": True}
    (reason,) = rules(activity("hold"), **{"steady-state-hypothesis": {"title": "t", "probes": [probe]}})
    assert "an injection stands in the method" in reason
