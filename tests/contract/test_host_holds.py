"""The contract of every hold at the host: one set-up, one yield of finite figures, one undo, however it ends."""

import math
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import pytest

from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.fault import Fault, Point, Shape
from chaos_mm.core.rng import Rng
from chaos_mm.faults import catalogue
from chaos_mm.host.command import KINDS
from tests.contract.host_samples import HOST_SAMPLES, Remembered

HOLDS = [f for f in catalogue().values() if f.shape is Shape.HOLD and Point.HOST in f.points]
each_hold = pytest.mark.parametrize("fault", HOLDS, ids=lambda f: f.name)


def handed(fault: Fault) -> Any:
    """The annotation of what it takes first."""
    return next(iter(get_type_hints(fault.apply).values()))


def begun(fault: Fault, fails: str = "", **params: Any) -> tuple[Remembered, Iterator[Any]]:
    sample = HOST_SAMPLES[handed(fault)](fails)
    return sample, fault.apply(sample, Rng(bytes(32)), **fault.bind(params))


def settings(fault: Fault) -> list[dict[str, Any]]:
    """Defaults, then each choice of each parameter."""
    return [{}, *({spec.name: choice} for spec in fault.params.values() for choice in spec.choices)]


def test_there_are_holds_at_the_host():
    assert {"host_memory_stress", "gpu_memory_stress", "process_pause", "process_kill"} <= {f.name for f in HOLDS}


@each_hold
def test_the_host_knows_what_to_hand_it_and_there_is_a_sample(fault: Fault):
    assert handed(fault) in KINDS and handed(fault) in HOST_SAMPLES
    assert fault.selectable is False, "nothing beside the engine sees requests"


@each_hold
def test_it_yields_once_and_undoes_once(fault: Fault):
    for given in settings(fault):
        sample, steps = begun(fault, **given)
        figures = next(steps)
        assert figures and all(math.isfinite(value) for value in figures.values())
        assert (sample.events.count("begin"), sample.events.count("undo")) == (1, 0)
        assert next(steps, "over") == "over"
        assert (sample.events.count("begin"), sample.events.count("undo")) == (1, 1)


def _close(steps: Any) -> None:
    steps.close()


def _throw(steps: Any) -> None:
    with pytest.raises(KeyError):
        steps.throw(KeyError("x"))


@pytest.mark.parametrize("end", [_close, _throw])
@each_hold
def test_it_undoes_when_it_is_closed_or_broken(fault: Fault, end: Callable[[Any], None]):
    sample, steps = begun(fault)
    next(steps)
    end(steps)
    assert sample.events.count("undo") == 1


@each_hold
def test_a_set_up_that_fails_is_told_and_never_yields(fault: Fault):
    sample, steps = begun(fault, fails="begin")
    with pytest.raises(ChaosMMError, match="begin fails"):
        next(steps)
    assert "begin" not in sample.events


@each_hold
def test_an_undo_that_fails_is_told(fault: Fault):
    _, steps = begun(fault, fails="undo")
    next(steps)
    with pytest.raises(ChaosMMError, match="undo fails"):
        next(steps)


@each_hold
def test_a_lease_that_ends_on_the_way_up_is_undone(fault: Fault):
    sample, steps = begun(fault)
    sample.lives = False
    next(steps, None)
    next(steps, None)
    assert sample.events.count("undo") == 1
