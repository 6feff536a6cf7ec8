"""The contract of every transform in the catalogue, over every sample of its target: what a point relies on."""

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chaos_mm.core.fault import Fault, Outcome, Shape
from chaos_mm.core.rng import Rng
from chaos_mm.faults import catalogue, get
from tests.contract.samples import SAMPLERS, value_of

# A fault whose target has no sampler fails in test_declarations.py.
TRANSFORMS = [f for f in catalogue().values() if f.shape is Shape.TRANSFORM and f.target in SAMPLERS]
ROOT = Path(__file__).parents[2]
DOSES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)  # of the dose's range


def _settings(fault: Fault) -> Iterator[dict[str, Any]]:
    """Defaults, then each choice of each parameter, at a dose that bites."""
    strong = {} if fault.dose is None else {fault.dose: _dose(fault, 0.5)}
    yield fault.bind(strong)
    for spec in fault.params.values():
        for choice in spec.choices:
            yield fault.bind({**strong, spec.name: choice})


def _dose(fault: Fault, part: float) -> float:
    spec = fault.params[fault.dose or ""]
    assert spec.ge is not None and spec.le is not None
    return spec.ge + part * (spec.le - spec.ge)


def _rng(fault: Fault, request: str = "r-1") -> Rng:
    return Rng.derive(7, request, "0", fault.name)


CASES = [
    pytest.param(fault, label, settings, id=f"{fault.name}-{label}-{number}")
    for fault in TRANSFORMS
    for label in SAMPLERS[fault.target].values()
    for number, settings in enumerate(_settings(fault))
]


@pytest.mark.parametrize(("fault", "label", "settings"), CASES)
def test_form_is_kept_input_is_not_mutated_and_evidence_is_finite(fault: Fault, label: str, settings: dict[str, Any]):
    sampler = SAMPLERS[fault.target]
    value = sampler.values()[label]
    before, form = sampler.digest(value), sampler.form(value)
    made = fault(value, _rng(fault), **settings)
    assert sampler.digest(value) == before, "the input was mutated"
    assert sampler.form(value_of(made)) == form
    figures = made.achieved if isinstance(made, Outcome) else {}
    json.dumps(dict(figures), allow_nan=False)
    assert all(type(figure) in (int, float) and math.isfinite(figure) for figure in figures.values())


@pytest.mark.parametrize(("fault", "label", "settings"), CASES)
def test_same_request_same_result_on_any_thread_in_any_order(fault: Fault, label: str, settings: dict[str, Any]):
    sampler = SAMPLERS[fault.target]
    value = sampler.values()[label]

    def digest(request: str) -> str:
        return sampler.digest(value_of(fault(value, _rng(fault, request), **settings)))

    requests = [f"r-{n}" for n in range(12)]
    alone = {request: digest(request) for request in requests}
    with ThreadPoolExecutor(4) as pool:
        mixed = dict(zip(reversed(requests), pool.map(digest, reversed(requests)), strict=True))
    assert mixed == alone


class _Watched(Rng):
    """An Rng that knows whether it was drawn from."""

    drawn = False

    def key(self, label: str, size: int = 16) -> bytes:
        self.drawn = True
        return super().key(label, size)

    def random(self) -> float:
        self.drawn = True
        return super().random()


@pytest.mark.parametrize("fault", TRANSFORMS, ids=lambda f: f.name)
def test_requests_differ_wherever_the_fault_draws(fault: Fault):
    sampler = SAMPLERS[fault.target]
    value = next(iter(sampler.values().values()))
    settings = next(_settings(fault))
    rngs = [_Watched(Rng.derive(7, f"r-{n}", "0", fault.name).key("watched", 32)) for n in range(8)]
    digests = {sampler.digest(value_of(fault(value, rng, **settings))) for rng in rngs}
    assert len(digests) == (8 if rngs[0].drawn else 1)


@pytest.mark.parametrize("fault", TRANSFORMS, ids=lambda f: f.name)
def test_global_generators_are_neither_read_nor_advanced(fault: Fault):
    sampler = SAMPLERS[fault.target]
    results = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)
        before = random.getstate(), np.random.get_state()[1].tobytes()  # type: ignore[index,union-attr]
        results.append([sampler.digest(value_of(_hurt(fault, value))) for value in sampler.values().values()])
        assert (random.getstate(), np.random.get_state()[1].tobytes()) == before  # type: ignore[index,union-attr]
    assert results[0] == results[1]


def _hurt(fault: Fault, value: Any) -> Any:
    return fault(value, _rng(fault), **next(_settings(fault)))


GRADED = [fault for fault in TRANSFORMS if fault.dose is not None]


@pytest.mark.parametrize("fault", GRADED, ids=lambda f: f.name)
def test_dose_zero_returns_the_very_object(fault: Fault):
    for settings in _settings(fault):
        off = {**settings, fault.dose or "": _dose(fault, 0)}
        assert fault.is_noop(off)
        for value in SAMPLERS[fault.target].values().values():
            assert fault(value, _rng(fault), **off) is value


@pytest.mark.parametrize("fault", GRADED, ids=lambda f: f.name)
def test_damage_is_monotone_in_the_dose(fault: Fault):
    sampler = SAMPLERS[fault.target]
    for settings in _settings(fault):
        for label, value in sampler.values().items():
            made = [
                value_of(fault(value, _rng(fault), **{**settings, fault.dose: _dose(fault, part)})) for part in DOSES
            ]
            damage = [0.0, *(sampler.damage(value, after) for after in made)]
            slack = 1e-9 + 1e-6 * max(damage)
            assert all(low <= high + slack for low, high in zip(damage, damage[1:], strict=False)), (label, damage)
            # What damage means for a target stands in samples.py.
            assert damage[-1] > 0, f"{fault.name} on the sample {label!r}: four fifths of the dose did nothing"


_ELSEWHERE = """
import json
from tests.contract.test_transforms import digests
print(json.dumps(digests()))
"""


def digests() -> dict[str, str]:
    """Every default result by fault and sample, for comparison across processes."""
    return {
        f"{fault.name} {label}": SAMPLERS[fault.target].digest(value_of(_hurt(get(fault.name), value)))
        for fault in TRANSFORMS
        for label, value in SAMPLERS[fault.target].values().items()
    }


def test_another_process_with_another_hash_seed_gives_the_same():
    env = {**os.environ, "PYTHONHASHSEED": "123"}
    command = [sys.executable, "-c", _ELSEWHERE]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True, cwd=ROOT)
    assert json.loads(done.stdout.splitlines()[-1]) == digests()
