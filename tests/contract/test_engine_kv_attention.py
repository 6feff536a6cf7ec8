"""The contract of every fault on key-value caches and attention: what an adapter and its undo rely on."""

import json
import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from chaos_mm.core.engine import NOT_NOW, Raise
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.fault import Effect, Fault, Outcome, Shape
from chaos_mm.core.rng import Rng
from chaos_mm.faults import catalogue
from tests.contract.engine_samples import SampleAttentionCall, SampleKvCache, name_of
from tests.contract.engine_subjects import SUBJECTS, Subject

FAULTS = [f for f in catalogue().values() if f.shape is Shape.IN_PLACE and f.seam in SUBJECTS]
GRADED = [f for f in FAULTS if f.dose is not None]
PLACED = [f for f in FAULTS if SUBJECTS[f.seam].place]
DOSES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)  # of the dose's range


def _subject(fault: Fault) -> Subject:
    assert fault.seam is not None
    return SUBJECTS[fault.seam]


def _dose(fault: Fault, part: float) -> float:
    spec = fault.params[fault.dose or ""]
    assert spec.ge is not None and spec.le is not None
    return spec.ge + part * (spec.le - spec.ge)


def _settings(fault: Fault) -> Iterator[dict[str, Any]]:
    """Defaults, then each choice of each parameter and each truth, at a dose that bites, in every layer."""
    strong: dict[str, Any] = {} if fault.dose is None else {fault.dose: _dose(fault, 0.5)}
    strong |= {"layers": "all"} if "layers" in fault.params else {}
    yield fault.bind(strong)
    for spec in fault.params.values():
        for choice in spec.choices or ((True, False) if spec.type is bool else ()):
            yield fault.bind({**strong, spec.name: choice})


def _rng(fault: Fault, request: str = "r-1") -> Rng:
    return Rng.derive(7, request, "", fault.name)


def _strike(fault: Fault, value: Any, settings: dict[str, Any], request: str = "r-1") -> Any:
    """The answer, or None where the fault refuses a number format by name, which must leave no trace."""
    try:
        return fault(value, _rng(fault, request), **settings)
    except InvalidParams as error:
        refusal = str(error)
    assert isinstance(value, SampleKvCache) and not value.undo, "refused after something was written"
    assert name_of(next(iter(value.store.values())).dtype) in refusal
    return None


CASES = [
    pytest.param(fault, label, settings, id=f"{fault.name}-{label}-{number}")
    for fault in FAULTS
    for label in _subject(fault).labels
    for number, settings in enumerate(_settings(fault))
]


def test_every_seam_of_these_targets_has_a_subject():
    prefixes = ("kv_cache_", "attention_")
    seams = {f.seam for f in catalogue().values() if f.name.startswith(prefixes) and f.shape is Shape.IN_PLACE}
    assert seams == set(SUBJECTS)


@pytest.mark.parametrize(("fault", "label", "settings"), CASES)
def test_figures_are_finite_form_is_kept_and_the_undo_sees_everything(
    fault: Fault, label: str, settings: dict[str, Any]
):
    subject = _subject(fault)
    value, before = subject.make(label, "r-1"), subject.state(subject.make(label, "r-1"))
    form = _form(value)
    made = _strike(fault, value, settings)
    if made is None or made is NOT_NOW:
        assert subject.state(value) == before, "nothing was struck and something changed"
        return
    assert isinstance(made, (Outcome, Raise)) and _form(value) == form
    assert isinstance(made, Raise) or (made.value is value and subject.state(value) != before)
    assert made.achieved, "a fault says what it achieved"
    json.dumps(dict(made.achieved), allow_nan=False)
    assert all(type(figure) is float and math.isfinite(figure) for figure in made.achieved.values())
    if fault.seam is not None and fault.seam.value != "kv_load":
        subject.undo(value)
        assert subject.state(value) == before, "what was written and put back is not what stood there"


def _form(value: Any) -> Any:
    if isinstance(value, SampleKvCache):
        return {place: (tensor.shape, tensor.dtype, tensor.data_ptr()) for place, tensor in value.store.items()}
    return value.launch().shape if isinstance(value, SampleAttentionCall) else None


@pytest.mark.parametrize(("fault", "label", "settings"), CASES)
def test_same_request_same_result_in_any_order_without_a_global_generator(
    fault: Fault, label: str, settings: dict[str, Any]
):
    subject, requests = _subject(fault), [f"r-{n}" for n in range(4)]

    def results(order: list[str], seed: int) -> dict[str, bytes]:
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        before = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()  # type: ignore[index,union-attr]
        state: dict[str, Any] = {}
        found = {}
        for request in order:
            value = subject.make(label, request)
            if isinstance(value, SampleAttentionCall):
                value.state = state  # one lease: what it keeps of one request must not show in another
            _strike(fault, value, settings, request)
            found[request] = subject.state(value)
        assert before == (
            random.getstate(),
            np.random.get_state()[1].tobytes(),
            torch.get_rng_state().numpy().tobytes(),
        )  # type: ignore[index,union-attr]
        return found

    assert results(requests, 1) == results(requests[::-1], 2)


@pytest.mark.parametrize("fault", GRADED, ids=lambda f: f.name)
def test_dose_zero_lets_pass_and_changes_nothing(fault: Fault):
    subject = _subject(fault)
    for settings in _settings(fault):
        off = {**settings, fault.dose or "": 0.0}
        assert fault.is_noop(off)
        for label in subject.labels:
            value, before = subject.make(label, "r-1"), subject.state(subject.make(label, "r-1"))
            assert _strike(fault, value, off) in (NOT_NOW, None)
            assert subject.state(value) == before


@pytest.mark.parametrize("fault", GRADED, ids=lambda f: f.name)
def test_damage_is_monotone_in_the_dose(fault: Fault):
    subject = _subject(fault)
    for settings in _settings(fault):
        for label in subject.labels:
            clean, damage, refused = subject.make(label, "r-1"), [0.0], False
            for part in DOSES:
                value = subject.make(label, "r-1")
                refused |= _strike(fault, value, {**settings, fault.dose: _dose(fault, part)}) is None
                damage.append(subject.damage(clean, value))
            slack = 1e-9 + 1e-6 * max(damage)
            assert all(low <= high + slack for low, high in zip(damage, damage[1:], strict=False)), (label, damage)
            assert refused or damage[-1] > 0, f"{fault.name} on {label!r}: four fifths of the dose did nothing"


@pytest.mark.parametrize("fault", PLACED, ids=lambda f: f.name)
def test_what_is_not_selected_is_untouched(fault: Fault):
    subject = _subject(fault)
    for settings in _settings(fault):
        if "which" in fault.params and settings.get("what") == "halves":
            continue  # exchanges both by definition; its own test looks at places
        placed = {**settings, **{name: word for name, word in subject.place.items() if name in fault.params}}
        for label in [label for label in subject.labels if "one token" not in label]:
            value, fresh = subject.make(label, "r-1"), subject.make(label, "r-1")
            before, outside = subject.state(fresh), subject.outside(fresh)
            made = _strike(fault, value, placed)
            assert subject.outside(value) == outside
            struck = made is not None and fault.target.value == "kv_cache"
            assert (subject.state(value) != before) == struck, "the selection itself was passed over"


@pytest.mark.parametrize("fault", PLACED, ids=lambda f: f.name)
def test_before_its_time_nothing_happens(fault: Fault):
    subject = _subject(fault)
    if "after_tokens" not in fault.params:
        return
    for label in subject.labels:
        value = subject.make(label, "r-1")
        subject.early(value)
        before = subject.state(value)
        assert fault(value, _rng(fault), **fault.bind({"layers": "all"})) is NOT_NOW
        assert subject.state(value) == before


def test_what_raises_is_declared_and_what_an_engine_would_not_survive_is_not_raised():
    for fault in [f for f in FAULTS if f.seam is not None and f.seam.value == "attention"]:
        for label in _subject(fault).labels:
            value, raised = _subject(fault).make(label, "r-1"), False
            for step in range(8):
                value.output_index, value.change = step, None
                raised |= isinstance(_strike(fault, value, fault.bind({"layers": "all"})), Raise)
            if "dies" in label:
                assert raised == (fault.effect is Effect.RAISES), "an undeclared exception would end this engine"
