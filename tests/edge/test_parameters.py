"""A bad parameter is refused by ``chaos validate``, by the control once substituted, and always by the point.

Every refusal names parameter, value and range, and nothing has run before it.
"""

import math
from collections.abc import Iterator
from typing import Any

import pytest

from chaos_mm.core.errors import InvalidParams
from tests.edge.chaos import Chaos, activity, experiment, hold, injection
from tests.edge.conftest import BarePoint

BAD = [
    ({"sigma": "10%"}, ("sigma='10%'", "[0, 1]")),
    ({"sigma": -1}, ("sigma=-1", "[0, 1]")),
    ({"sigma": math.nan}, ("sigma=nan", "[0, 1]")),
    ({"sigma": 1e9}, ("sigma=1000000000.0", "[0, 1]")),
    ({"sigma": True}, ("sigma=True", "a number")),
    ({"sgima": 0.1}, ("sgima",)),
    ({"rate": 1.5}, ("rate=1.5", "[0, 1]")),
    ({"keepalive_seconds": 1}, ("keepalive_seconds=1", "[5, 600]")),
    ({"selector": "everyone"}, ("everyone", "canary")),
    ({"point": "kubernetes"}, ("point='kubernetes'", "proxy")),
    ({"severity": 9}, ("severity=9", "[0, 5]")),
]
IDS = ["-".join(f"{k}={v}" for k, v in bad.items()) for bad, _ in BAD]


@pytest.mark.parametrize(("arguments", "words"), BAD, ids=IDS)
def test_validate_refuses(chaos: Chaos, arguments: dict[str, Any], words: tuple[str, ...]) -> None:
    got = chaos.validate(experiment(activity("inject_image_noise", **arguments)))
    assert got.status == 1
    assert all(word in got.output for word in words), got.output


@pytest.mark.parametrize("arguments", [{"sigma": "0.1"}, {"sigma": 0.1, "severity": 3}, {"sigma": "${dose}"}])
def test_validate_accepts(chaos: Chaos, arguments: dict[str, Any]) -> None:
    got = chaos.validate(experiment(activity("inject_image_noise", **arguments), configuration={"dose": 0.1}))
    assert got.status == 0, got.output


@pytest.mark.parametrize(("arguments", "words"), BAD[:6], ids=IDS[:6])
def test_without_validation_the_control_refuses(
    chaos: Chaos, point: BarePoint, arguments: dict[str, Any], words: tuple[str, ...]
) -> None:
    got = chaos.run(experiment(activity("inject_image_noise", **arguments)), "--no-validation")
    assert (got.status, got.word) == (4, "error")
    assert all(word in got.output for word in words), got.output
    assert got.journal is not None
    assert (got.journal["status"], got.journal["run"]) == ("interrupted", [])
    assert point.book.leases() == []


@pytest.mark.parametrize(
    ("var", "words"),
    [
        ("dose:float=1e9", ("sigma=1000000000.0", "[0, 1]")),
        ("dose:float=nan", ("sigma=nan", "[0, 1]")),
        ("dose=10%", ("sigma='10%'", "[0, 1]")),
        ("dose:int=-1", ("sigma=-1", "[0, 1]")),
    ],
)
def test_a_variable_is_judged_before_anything_runs(
    chaos: Chaos, point: BarePoint, var: str, words: tuple[str, ...]
) -> None:
    body = experiment(
        activity("hold", seconds=0), activity("inject_image_noise", sigma="${dose}"), configuration={"dose": 0.1}
    )
    got = chaos.run(body, "--var", var)
    assert (got.status, got.word) == (4, "error")
    assert all(word in got.output for word in words), got.output
    assert got.journal is not None
    assert got.journal["run"] == []
    assert point.book.leases() == []


def test_a_good_variable_reaches_the_point(chaos: Chaos, point: BarePoint) -> None:
    body = experiment(injection(sigma="${dose}"), hold(0.3), configuration={"dose": 0.1})
    assert chaos.run(body, "--var", "dose=0.4").status == 0
    assert [lease.spec.params for lease in point.book.leases()] == [{"sigma": 0.4}]


def test_a_variable_without_a_value_is_refused(chaos: Chaos) -> None:
    got = chaos.run(experiment(activity("inject_image_noise", sigma="${nowhere}")))
    assert (got.status, got.word) == (4, "error")
    assert "that variable has no value" in got.output


@pytest.mark.parametrize("func", ["sli", "hold"])
def test_probes_and_waits_have_bounds_too(chaos: Chaos, func: str) -> None:
    bad = (
        activity("hold", seconds=-1)
        if func == "hold"
        else activity("sli", type="probe", module="probes", phase_seconds="soon")
    )
    got = chaos.validate(experiment(bad))
    assert got.status == 1
    assert f"{func}: " in got.output


def test_a_misspelt_control_argument_is_refused(chaos: Chaos) -> None:
    body = experiment(activity("hold", seconds=0))
    body["controls"] = [
        {**body["controls"][0], "provider": {**body["controls"][0]["provider"], "arguments": {"lod_rate": 4}}}
    ]
    got = chaos.validate(body)
    assert got.status == 1
    assert "unknown argument 'lod_rate'" in got.output
    ran = chaos.run(body, "--no-validation")
    assert (ran.status, ran.word) == (4, "error")
    assert "unknown argument 'lod_rate'" in ran.output


def _bodies() -> Iterator[Any]:
    for (arguments, words), label in zip(BAD[:6], IDS[:6], strict=True):
        value = arguments.get("sigma")
        if not (isinstance(value, float) and math.isnan(value)):  # no strict JSON can carry it to a point
            yield pytest.param(arguments, words, id=label)


@pytest.mark.parametrize(("params", "words"), list(_bodies()))
def test_the_point_always_refuses(point: BarePoint, params: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidParams) as refused:
        point.client.put_lease("x", {"owner": "me", "fault": "image_noise", "params": params})
    assert all(word in str(refused.value) for word in words)
