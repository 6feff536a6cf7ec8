"""The contract of faults on embeddings and gradients, and of holds on an engine's caches, queue and memory."""

import json
import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.fault import Effect, Fault, Outcome, Shape, Target
from chaos_mm.core.rng import Rng
from chaos_mm.faults import catalogue
from tests.contract.engine_samples_embedding import HOLDS, embedding, gradient

FAULTS = [f for f in catalogue().values() if f.target in (Target.EMBEDDING, Target.GRADIENT)]
GRADED = [f for f in FAULTS if f.dose is not None]
HELD = [f for f in catalogue().values() if f.shape is Shape.HOLD and f.seam in HOLDS]
DOSES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)  # of the dose's range


def _settings(fault: Fault) -> Iterator[dict[str, Any]]:
    """Defaults, then each choice of each parameter."""
    yield fault.bind({})
    for spec in fault.params.values():
        for choice in spec.choices:
            yield fault.bind({spec.name: choice})


def _rng(fault: Fault, request: str = "r-1") -> Rng:
    return Rng.derive(7, request, "0", fault.name)


def _after(value: Any) -> Any:
    """What the engine goes on with."""
    return value.new if hasattr(value, "new") else value.tap.handed_on.get("r-1")


def _value(fault: Fault, dtype: torch.dtype = torch.float32) -> Any:
    return gradient() if fault.target is Target.GRADIENT else embedding(dtype=dtype)


CASES = [
    pytest.param(fault, settings, id=f"{fault.name}-{number}")
    for fault in FAULTS
    for number, settings in enumerate(_settings(fault))
]


@pytest.mark.parametrize(("fault", "settings"), CASES)
def test_the_clean_tensor_is_not_mutated_form_is_kept_and_evidence_is_finite(fault: Fault, settings: dict[str, Any]):
    value = _value(fault)
    before = value.tensor.clone()
    made = fault(value, _rng(fault), **settings)
    assert torch.equal(value.tensor, before)
    assert isinstance(made, Outcome) and made.value is value
    new = _after(value)
    assert new.dtype is before.dtype and new.shape[-1] == before.shape[-1]
    assert (new.shape == before.shape) == (fault.effect is not Effect.ROWS)
    assert new.data_ptr() != before.data_ptr() and not torch.equal(new, before)
    assert made.achieved, "a fault says what it achieved"
    json.dumps(dict(made.achieved), allow_nan=False)
    assert all(type(figure) is float and math.isfinite(figure) for figure in made.achieved.values())


@pytest.mark.parametrize(("fault", "settings"), CASES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_keeps_its_type(fault: Fault, settings: dict[str, Any], dtype: torch.dtype):
    if fault.target is Target.GRADIENT:
        value = gradient()
        value.tensor = value.tensor.to(dtype)
    else:
        value = embedding(dtype=dtype)
    fault(value, _rng(fault), **settings)
    assert _after(value).dtype is dtype


@pytest.mark.parametrize(("fault", "settings"), CASES)
def test_same_request_same_result_and_no_global_generator(fault: Fault, settings: dict[str, Any]):
    results = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        before = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state()  # type: ignore[index,union-attr]
        value = _value(fault)
        fault(value, _rng(fault), **settings)
        results.append(_after(value))
        assert before[:2] == (random.getstate(), np.random.get_state()[1].tobytes())  # type: ignore[index,union-attr]
        assert torch.equal(before[2], torch.get_rng_state())
    assert torch.equal(results[0].view(torch.int32), results[1].view(torch.int32))


@pytest.mark.parametrize("fault", GRADED, ids=lambda f: f.name)
def test_dose_zero_lets_pass_and_hands_nothing_on(fault: Fault):
    for settings in _settings(fault):
        off = {**settings, fault.dose or "": 0}
        value = _value(fault)
        assert fault.is_noop(off)
        assert fault(value, _rng(fault), **off) is NOT_NOW and _after(value) is None


@pytest.mark.parametrize("fault", GRADED, ids=lambda f: f.name)
def test_damage_is_monotone_in_the_dose(fault: Fault):
    spec = fault.params[fault.dose or ""]
    assert spec.ge is not None and spec.le is not None
    for settings in _settings(fault):
        damage = [0.0]
        for part in DOSES:
            value = _value(fault)
            dose = spec.type(spec.ge + part * (spec.le - spec.ge))
            if fault(value, _rng(fault), **{**settings, fault.dose: dose}) is not NOT_NOW:
                damage.append(_damage(value.tensor, _after(value)))
        assert len(damage) >= 4 and damage[-1] > 0
        slack = 1e-9 + 1e-6 * max(damage)
        assert all(low <= high + slack for low, high in zip(damage, damage[1:], strict=False)), (settings, damage)


def _damage(before: Any, after: Any) -> float:
    """Rows too many or too few, else elements that are no numbers, else rows in another's place, else squares."""
    if before.shape != after.shape:
        return float(abs(len(before) - len(after)))
    bad = int((~torch.isfinite(after)).sum())
    if bad:
        return float(bad)
    if torch.equal(before.sort(0).values, after.sort(0).values):
        return float((before != after).any(-1).sum())
    return float((after - before).double().square().mean())


@pytest.mark.parametrize("fault", HELD, ids=lambda f: f.name)
@pytest.mark.parametrize("how", ["next", "close"])
def test_a_hold_yields_its_figures_once_and_its_end_leaves_the_engine_as_it_was(fault: Fault, how: str):
    sample = HOLDS[fault.seam]  # type: ignore[index]
    value = sample.make()
    before = sample.state(value)
    hold = sample.begin(fault, value)
    figures = next(hold)
    json.dumps(dict(figures), allow_nan=False)
    assert figures and all(type(figure) is float and math.isfinite(figure) for figure in figures.values())
    if how == "close":
        hold.close()
    else:
        with pytest.raises(StopIteration):
            next(hold)
    assert sample.state(value) == before


@pytest.mark.parametrize("fault", [f for f in HELD if f.name != "encoder_cache_evict"], ids=lambda f: f.name)
def test_while_it_holds_the_engine_is_not_as_it_was(fault: Fault):
    """Evicting is done when it has begun; the others last."""
    sample = HOLDS[fault.seam]  # type: ignore[index]
    value = sample.make()
    before = sample.state(value)
    hold = sample.begin(fault, value)
    next(hold)
    try:
        assert sample.state(value) != before
    finally:
        hold.close()
    assert sample.state(value) == before


@pytest.mark.parametrize("fault", HELD, ids=lambda f: f.name)
def test_an_end_by_exception_undoes_it_too(fault: Fault):
    sample = HOLDS[fault.seam]  # type: ignore[index]
    value = sample.make()
    before = sample.state(value)
    hold = sample.begin(fault, value)
    next(hold)
    with pytest.raises(KeyboardInterrupt):
        hold.throw(KeyboardInterrupt())
    assert sample.state(value) == before
