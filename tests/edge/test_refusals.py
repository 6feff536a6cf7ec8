"""What the control refuses before anything runs, beyond values: here names that lead nowhere."""

from pathlib import Path
from typing import Any

from chaos_mm.controls.command_line import CommandLine
from chaos_mm.controls.facts import Reason
from chaos_mm.controls.refusals import refusals
from chaos_mm.core.fault import Fault
from chaos_mm.core.lease import Lease
from tests.edge.chaos import Chaos, experiment, injection
from tests.edge.conftest import CLOSED, BarePoint


def _asks_for(objective: str) -> dict[str, Any]:
    provider = {"type": "python", "module": "chaos_mm.probes", "func": "sli", "arguments": {"objective": objective}}
    return {"steady-state-hypothesis": {"title": "t", "probes": [{"type": "probe", "name": "p", "provider": provider}]}}


def refused(experiment: dict[str, Any], configuration: dict[str, Any] | None = None) -> list[str]:
    """In words, of a file whose strategies are as they should be and that needs no load."""
    found = refusals(experiment, configuration or {}, {}, False, CommandLine(rollbacks="always"))
    assert {one.word for one in found} <= {"error"}
    return [one.reason for one in found]


def test_a_misspelt_objective_is_refused_with_the_nearest() -> None:
    assert refused(_asks_for("picture-answer")) == ["no objective 'picture-answer'; did you mean 'picture-answers'?"]


def test_an_objective_like_no_other_is_refused_with_those_there_are() -> None:
    (reason,) = refused(_asks_for("zzz"))
    assert reason.startswith("no objective 'zzz'; there are: agreement-answers, availability")


def test_a_variable_is_looked_into() -> None:
    assert refused(_asks_for("${which}"), {"which": "picture-answers"}) == []
    (reason,) = refused(_asks_for("${which}"), {"which": "picture-answer"})
    assert "did you mean" in reason


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere")
    (reason,) = refused(_asks_for("picture-answers"), {"objectives_dir": missing})
    assert missing in reason


def _injects(**arguments: Any) -> dict[str, Any]:
    return experiment(injection(**arguments))


def test_a_dry_run_asks_no_point(chaos: Chaos) -> None:
    nowhere = {"proxy_control_url": CLOSED}
    command = CommandLine(rollbacks="always", dry="activities")
    assert refusals(_injects(), nowhere, {}, True, command) == []
    wrong = refusals(_injects(sigma=5), nowhere, {}, True, command)
    assert [one.word for one in wrong] == ["error"]


def test_a_point_that_is_absent_or_anothers_is_not_applied(point: BarePoint, token: str) -> None:
    command, secrets = CommandLine(rollbacks="always"), {"token": token}
    there = {"proxy_control_url": point.url}
    assert refusals(_injects(), there, secrets, False, command) == []
    point.client.put_lease("theirs", {"owner": "somebody", "reason": "a game day", "fault": "image_noise"})
    (held,) = refusals(_injects(), there, secrets, False, command)
    assert held.word == "not_applied"
    assert f"{point.url} is held by somebody (a game day): lease 'theirs' has" in held.reason
    (absent,) = refusals(_injects(), {"proxy_control_url": CLOSED}, secrets, False, command)
    assert absent == Reason("not_applied", absent.reason)
    assert CLOSED in absent.reason


def test_strategies_come_first() -> None:
    reasons = refusals(_asks_for("picture-answers"), {}, {}, False, CommandLine())
    assert [one.word for one in reasons] == ["error"]
    assert "strategy" in reasons[0].reason


class Refusing:
    """A point that runs nothing, and says what is fatal."""

    def __init__(self, why: str) -> None:
        self.why = why

    def refusal(self, fault: Fault) -> str:
        return self.why

    def selectable(self, fault: Fault) -> bool:
        return True

    def describe(self, fault: Fault) -> dict[str, Any]:
        return {"fatal": "restart needed: it exits"}

    def begin(self, lease: Lease) -> None:
        """Nothing."""

    renew = finish = begin


def test_what_the_point_says_it_cannot_is_not_applied_and_what_is_fatal_is_known(point: BarePoint, token: str) -> None:
    command, secrets = CommandLine(rollbacks="always"), {"token": token}
    there, fatal = {"proxy_control_url": point.url}, dict[str, str]()
    point.book.actuator = Refusing("")
    assert refusals(_injects(), there, secrets, False, command, None, fatal) == []
    assert fatal == {"image_noise": "restart needed: it exits"}
    point.book.actuator = Refusing("no NVIDIA device: NVML counts none")
    (refused,) = refusals(_injects(), there, secrets, False, command)
    assert refused == Reason("not_applied", "inject_image_noise: no NVIDIA device: NVML counts none")


def test_a_fault_that_the_point_does_not_have_is_not_applied(point: BarePoint, token: str) -> None:
    point.book.catalogue = {}
    there = {"proxy_control_url": point.url}
    (refused,) = refusals(_injects(), there, {"token": token}, False, CommandLine(rollbacks="always"))
    assert refused == Reason("not_applied", f"inject_image_noise: the point at {point.url} cannot run it")
