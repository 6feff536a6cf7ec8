"""Roles in models of several families, made from configurations alone."""

from typing import Any

import pytest
import torch

from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.transformers.attention import lookup_problem
from chaos_mm.agent.transformers.canary import exercise_decoder, exercise_place
from chaos_mm.agent.transformers.engine import TransformersEngine
from chaos_mm.agent.transformers.roles import read_roles
from chaos_mm.core.errors import NotInjectable
from tests import families

pytestmark = pytest.mark.model
FOUND: dict[str, tuple[str, set[tuple[str, str, str]]]] = {
    "llava": (
        "model.language_model",
        {("vision", "model.vision_tower", "image"), ("projector", "model.multi_modal_projector", "image")},
    ),
    "blip2": (
        "language_model.model.decoder",
        {
            ("vision", "vision_model", "image"),
            ("qformer", "qformer", "image"),
            ("projector", "language_projection", "image"),
        },
    ),
    "qwen2_vl": (
        "model.language_model",
        {("vision", "model.visual", "image"), ("projector", "model.visual.merger", "image")},
    ),
    "qwen2_audio": (
        "model.language_model",
        {("audio", "model.audio_tower", "audio"), ("projector", "model.multi_modal_projector", "audio")},
    ),
    "whisper": ("model.decoder", {("audio", "model.encoder", "audio")}),
    "llama": ("model", set()),
    "omni": (
        "language_model.model",
        {
            ("vision", "vision", "image"),
            ("audio", "audio", "audio"),
            ("qformer", "qformer", "image"),
            ("qformer", "audio_qformer", "audio"),
            ("projector", "language_projection", "image"),
            ("projector", "audio_projection", "audio"),
        },
    ),
}


@pytest.fixture(scope="module", params=sorted(FOUND))
def family(request: pytest.FixtureRequest) -> tuple[str, Any]:
    torch.set_num_threads(1)
    return request.param, families.MODELS[request.param]().eval()


def test_every_part_is_found(family: tuple[str, Any]) -> None:
    name, model = family
    roles = read_roles(model)
    path, places = FOUND[name]
    assert roles.decoder.path == path
    assert {(place.role, place.path, place.modality) for place in roles.places} == places
    assert [module.layer_idx for module in roles.decoder.attention] == list(range(len(roles.decoder.attention)))


def test_the_own_canary_passes_decoder_and_places(family: tuple[str, Any]) -> None:
    roles = read_roles(family[1])
    exercise_decoder(roles)
    problems = {place.path: problem for place in roles.places if (problem := exercise_place(place))}
    # The demo target's pictures are 64 x 96, which no configuration of the library's can say.
    assert set(problems) == ({"vision"} if family[0] == "omni" else set()), problems


@pytest.mark.parametrize("name", ["sdpa", "eager"])
def test_attention_can_be_met_by_either_implementation(family: tuple[str, Any], name: str) -> None:
    roles = read_roles(family[1])
    for module in roles.decoder.attention:
        module.config._attn_implementation = name
    try:
        assert lookup_problem(roles.decoder) == ""
    finally:
        for module in roles.decoder.attention:
            module.config._attn_implementation = "sdpa"


def test_an_unknown_attention_is_refused_by_name() -> None:
    roles = read_roles(families.MODELS["llama"]())
    roles.decoder.attention[0].config._attn_implementation = "paged|unheard_of"
    assert "'paged|unheard_of' is not in the library's table" in lookup_problem(roles.decoder)


def test_a_model_without_a_decoder_is_refused_by_name() -> None:
    with pytest.raises(NotInjectable, match="CLIPModel has no decoder"):
        read_roles(families.MODELS["clip"]())


def test_a_compiled_model_is_left_alone_and_refused_by_name() -> None:
    model = families.MODELS["llama"]()
    model.model.layers[0].compile()
    engine = TransformersEngine(Runtime(None))
    engine.model(model)
    assert "is compiled by torch.compile" in engine.refused and "model.layers.0" in engine.refused
    assert engine.served == [] and not any(module._forward_pre_hooks for module in model.modules())


def test_a_module_that_has_no_role_is_named_by_its_path() -> None:
    roles = read_roles(families.MODELS["llava"]())
    assert [place.path for place in roles.named("model.vision_tower.encoder")] == ["model.vision_tower.encoder"]
    assert roles.named("model.nothing") == () and roles.named("") == ()
