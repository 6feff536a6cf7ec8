"""Where in a model the seams are: its decoder, its encoders, what stands between; by structure first, then by name.

Structure is what transformers' classes say of themselves: attention modules with a layer index and a causal mask are
the decoder's, a sub-model that takes pictures or sound alone is an encoder. Names decide what has no such mark.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chaos_mm.core.errors import NotInjectable

__all__ = ["Decoder", "Place", "Roles", "read_roles"]

_VISION = frozenset({"image", "video"})
_VISION_NAMES = frozenset({"vision", "vision_tower", "vision_model", "vision_encoder", "visual", "image_encoder"})
_AUDIO_NAMES = frozenset({"audio", "audio_tower", "audio_model", "audio_encoder", "speech_encoder"})
_BETWEEN = ("projector", "projection", "merger", "aligner", "connector", "adapter")
_MODELS = ("ForConditionalGeneration", "ForCausalLM", "Model")


@dataclass(frozen=True, eq=False)
class Place:
    """A module whose output embedding and gradient faults may change.

    ``role``: vision, audio, projector, qformer, or "" for one that was named by its path; ``modality``: image or audio.
    """

    role: str
    path: str
    module: Any
    modality: str

    def at(self, place: str) -> bool:
        """Whether ``place``, a role or a module's path, means this one."""
        return place in (self.role, self.path) and place != ""


@dataclass(frozen=True, eq=False)
class Decoder:
    """The stack of layers that writes text: ``module`` takes the cache, ``attention`` are its layers' own, in order."""

    path: str
    layers: str
    module: Any
    attention: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Roles:
    """What was found in one model."""

    model: Any
    decoder: Decoder
    places: tuple[Place, ...]

    def named(self, place: str) -> tuple[Place, ...]:
        """The places that a role or a module's path means; empty when the model has no such thing."""
        known = tuple(one for one in self.places if one.at(place))
        if known:
            return known
        modules = dict(self.model.named_modules())
        if place not in modules or place == "":
            return ()
        return (Place("", place, modules[place], _modality(place, self._modalities())),)

    def names(self) -> list[str]:
        """Every role and path of the known places, for an error's text."""
        return sorted({one.role for one in self.places} | {one.path for one in self.places})

    def _modalities(self) -> set[str]:
        return {one.modality for one in self.places}


def read_roles(model: Any) -> Roles:
    """Find the seams of a torch module. Raises NotInjectable naming it when no decoder with a cache is in it."""
    decoder = _decoder(model)
    return Roles(model, decoder, tuple(_places(model, decoder)))


def _decoder(model: Any) -> Decoder:
    stacks: dict[str, list[Any]] = {}
    for path, module in model.named_modules():
        if _is_own_attention(module):
            stacks.setdefault(_stack(path), []).append(module)
    if not stacks:
        raise NotInjectable(
            f"{type(model).__name__} has no decoder: no causal attention module with a layer index, so there is "
            "neither a key-value cache nor generation to hurt"
        )
    layers = max(stacks, key=lambda name: (_says_text(name), len(stacks[name])))
    path = layers.rpartition(".")[0]
    attention = tuple(sorted(stacks[layers], key=lambda module: module.layer_idx))
    return Decoder(path, layers, model.get_submodule(path), attention)


def _is_own_attention(module: Any) -> bool:
    """A decoder layer's attention over its own tokens; cross-attention and encoders have no causal mask."""
    index = getattr(module, "layer_idx", None)
    named = "Attention" in type(module).__name__ or "Attn" in type(module).__name__
    return named and isinstance(index, int) and bool(getattr(module, "is_causal", True))


def _stack(path: str) -> str:
    """The list of layers that a module is in: ``model.layers.3.self_attn`` is of ``model.layers``."""
    parts = path.split(".")
    place = next((i for i in range(len(parts) - 1, -1, -1) if parts[i].isdigit()), len(parts) - 1)
    return ".".join(parts[:place])


def _says_text(path: str) -> bool:
    return any(word in path for word in ("language", "text", "decoder", "thinker"))


def _places(model: Any, decoder: Decoder) -> Iterator[Place]:
    found = [(path, role) for path, module in model.named_modules() if (role := _role(path, module, decoder))]
    taken = {path for path, role in found if role != "projector"}
    modalities = {"audio" if role == "audio" else "image" for _, role in found if role in ("audio", "vision")}
    for path, role in found:
        inner = any(path.startswith(f"{other}.") for other in taken)
        # Qwen2-VL keeps its projector, the merger, inside the tower; other names of that kind in there mean nothing.
        if inner and not path.endswith(".merger"):
            continue
        modality = {"audio": "audio", "vision": "image"}.get(role) or _modality(path, modalities)
        yield Place(role, path, model.get_submodule(path), modality)


def _role(path: str, module: Any, decoder: Decoder) -> str:
    around = decoder.path == path or decoder.path.startswith(f"{path}.") or path == ""
    if around or f"{path}.".startswith(f"{decoder.layers}."):
        return ""
    leaf, kind = path.rpartition(".")[2], type(module).__name__
    if "QFormer" in kind and kind.endswith(_MODELS):
        return "qformer"
    takes = _takes(module)
    if (takes and takes <= _VISION) or leaf in _VISION_NAMES:
        return "vision"
    if takes == {"audio"} or leaf in _AUDIO_NAMES:
        return "audio"
    return "projector" if leaf.endswith(_BETWEEN) else ""


def _takes(module: Any) -> set[str]:
    """The modalities that one of transformers' models says it takes."""
    given = getattr(module, "input_modalities", ())
    return {given} if isinstance(given, str) else set(given or ())


def _modality(path: str, present: set[str]) -> str:
    """Of what has no mark of its own: audio where its name says so, or where the model hears and does not see."""
    says = any(word in path for word in ("audio", "speech", "sound"))
    return "audio" if says or present == {"audio"} else "image"
