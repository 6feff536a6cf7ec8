"""The contract of every declaration in the catalogue: what the frame, the docs and the chaos process rely on."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import chaos_mm.faults
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.fault import FRAME_WORDS, Fault, Point, Shape, Target
from chaos_mm.core.params import ParamSpec
from chaos_mm.faults import catalogue
from tests.contract.engine_samples_embedding import HOLDS
from tests.contract.engine_subjects import SUBJECTS
from tests.contract.samples import SAMPLERS

FAULTS = list(catalogue().values())
PARAMS = [(fault, spec) for fault in FAULTS for spec in fault.params.values()]
NUMBERS = [(fault, spec) for fault, spec in PARAMS if spec.type in (int, float)]


def _named(pairs: list[tuple[Fault, ParamSpec]]) -> dict[str, Any]:
    return {"argvalues": pairs, "ids": [f"{fault.name}-{spec.name}" for fault, spec in pairs]}


def test_every_file_of_the_folder_is_a_fault_of_that_name():
    stems = {path.stem for path in Path(chaos_mm.faults.__file__).parent.glob("*.py")} - {"__init__"}
    assert stems <= set(catalogue())


# Inside an engine, and at the host, a name begins with what people call the thing that is struck.
FIRST_WORDS = {
    Target.KV_CACHE: ("kv_cache_",),
    Target.ATTENTION: ("attention_",),
    Target.EMBEDDING: ("embedding_", "qformer_"),
    Target.GRADIENT: ("gradient_", "qformer_gradient_"),
    Target.CACHE: ("encoder_budget_", "encoder_cache_", "media_key_"),
    Target.SCHEDULER: ("forced_preemption", "kv_cache_"),
    Target.MEMORY: ("allocation_", "gpu_memory_", "host_memory_", "memory_"),
    Target.PROCESS: ("process_",),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_name_begins_with_its_target_and_documentation_says_what_happens(fault: Fault):
    assert fault.name.startswith(FIRST_WORDS.get(fault.target, (f"{fault.target}_",)))
    first = fault.doc.splitlines()[0]
    assert first.endswith(".")
    assert len(fault.doc) > len(first), "one line alone does not document a fault"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_contract_holds_it(fault: Fault):
    """What acts at the host hurts processes and devices, of which there is no sample; its own tests start real ones."""
    if fault.seam is None:
        at_the_host = fault.shape is Shape.HOLD and Point.HOST in fault.points
        assert at_the_host or fault.target in SAMPLERS, f"{fault.name}: add {fault.target} to tests/contract/samples.py"
        return
    by_value = fault.target in (Target.EMBEDDING, Target.GRADIENT)  # tests/contract/test_engine_embedding.py
    assert by_value or fault.seam in SUBJECTS or fault.seam in HOLDS, f"{fault.name}: add a sample of {fault.seam}"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_no_parameter_is_a_word_of_the_frame(fault: Fault):
    assert not FRAME_WORDS & set(fault.params)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_schema_is_strict_json_and_complete(fault: Fault):
    schema = json.loads(json.dumps(fault.schema(), allow_nan=False))
    assert schema["name"] == fault.name
    assert [p["name"] for p in schema["params"]] == list(fault.params)
    assert all(p["doc"] and p["default"] is not None for p in schema["params"])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_presets_are_valid_and_grow_with_severity(fault: Fault):
    assert fault.dose is not None or not fault.presets
    doses = [fault.bind({}, severity)[fault.dose] for severity in sorted(fault.presets)]
    assert all(low < high for low, high in zip(doses, doses[1:], strict=False))
    assert all(dose > 0 for dose in doses)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_misspelt_parameter_is_refused_with_those_there_are(fault: Fault):
    first = next(iter(fault.params))
    with pytest.raises(InvalidParams) as caught:
        fault.bind({f"{first}x": 0.1})
    assert repr(f"{first}x") in str(caught.value)
    assert all(repr(name) in str(caught.value) for name in fault.params)


@pytest.mark.parametrize(("fault", "spec"), **_named(NUMBERS))
def test_every_number_is_bounded_on_both_sides(fault: Fault, spec: ParamSpec):
    assert spec.ge is not None and spec.le is not None, f"{fault.name}: {spec.name} needs ge and le"


@pytest.mark.parametrize("wrong", ["10%", "", None, True, [0.1], math.nan, math.inf, -1e18, 1e18, "nan"], ids=repr)
@pytest.mark.parametrize(("fault", "spec"), **_named(NUMBERS))
def test_what_is_no_number_within_bounds_is_refused_by_name_value_and_range(fault: Fault, spec: ParamSpec, wrong: Any):
    with pytest.raises(InvalidParams) as caught:
        fault.bind({spec.name: wrong})
    text = str(caught.value)
    assert text.startswith(f"{fault.name}: {spec.name}={wrong!r} is not allowed")
    low, high = text[text.rindex("[") + 1 : text.rindex("]")].split(", ")
    assert (float(low), float(high)) == pytest.approx((spec.ge, spec.le), rel=1e-5)


@pytest.mark.parametrize(("fault", "spec"), **_named(NUMBERS))
def test_just_beyond_either_bound_is_refused_and_the_bound_itself_taken(fault: Fault, spec: ParamSpec):
    assert spec.ge is not None and spec.le is not None
    step = 1 if spec.type is int else 1e-9
    for bound, beyond in ((spec.ge, spec.ge - step), (spec.le, spec.le + step)):
        assert fault.bind({spec.name: bound})[spec.name] == bound
        with pytest.raises(InvalidParams):
            fault.bind({spec.name: beyond})


@pytest.mark.parametrize(("fault", "spec"), **_named(NUMBERS))
def test_a_number_as_text_counts_as_the_number(fault: Fault, spec: ParamSpec):
    assert spec.ge is not None and spec.le is not None
    wanted = spec.type((spec.ge + spec.le) / 4)
    bound = fault.bind({spec.name: str(wanted)})[spec.name]
    assert bound == wanted and type(bound) is spec.type


@pytest.mark.parametrize(("fault", "spec"), **_named([(f, s) for f, s in PARAMS if s.choices]))
def test_a_choice_outside_the_list_is_refused_with_the_list(fault: Fault, spec: ParamSpec):
    with pytest.raises(InvalidParams) as caught:
        fault.bind({spec.name: "sideways"})
    assert all(repr(choice) in str(caught.value) for choice in spec.choices)
    assert all(fault.bind({spec.name: choice}) for choice in spec.choices)
