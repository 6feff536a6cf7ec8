"""The agent's own canary: small zeros through a model's parts, to see that the seams there are passed at all."""

import inspect
from collections.abc import Iterator
from typing import Any, Final

from chaos_mm.agent.transformers.roles import Place, Roles
from chaos_mm.agent.who import OWN_PREFIX
from chaos_mm.core import serving

__all__ = ["exercise_decoder", "exercise_place"]
_OWN_ID: Final = OWN_PREFIX + "canary"
_TOKENS: Final = 4


def exercise_decoder(roles: Roles) -> None:
    """A prompt of four tokens and one step more, with a cache of its own. Raises what the model raises."""
    import torch
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache

    decoder = roles.decoder.module
    weight = next(decoder.parameters())
    cache: Any = DynamicCache()
    if getattr(decoder.config, "is_encoder_decoder", False):
        cache = EncoderDecoderCache(cache, DynamicCache())
    named = {"cache" if "cache" in inspect.signature(decoder.forward).parameters else "past_key_values": cache}
    with torch.inference_mode(), serving.running([_OWN_ID]):
        for length in (_TOKENS, 1):
            ids = torch.zeros((1, length), dtype=torch.long, device=weight.device)
            decoder(input_ids=ids, use_cache=True, **named)


def exercise_place(place: Place) -> str:
    """Zeros through one encoder, projector or Q-Former; empty when it took them, else why it did not."""
    import torch

    weight = next(place.module.parameters(), None)
    if weight is None:
        return f"{place.path} has no parameters"
    problem = "no input is known for it"
    for named, given in _inputs(place, weight):
        try:
            with torch.inference_mode(), serving.running([_OWN_ID]):
                place.module(*given, **named)
        except Exception as error:  # a model may refuse an input in any way; the next shape is tried
            problem = f"{type(error).__name__}: {error}"
        else:
            return ""
    return problem


def _inputs(place: Place, weight: Any) -> Iterator[tuple[dict[str, Any], tuple[Any, ...]]]:
    """(keyword arguments, positional ones) of each shape that modules of that role take."""
    config = getattr(place.module, "config", None)

    def zeros(*shape: int) -> Any:
        return weight.new_zeros(shape)

    if place.role == "vision":
        yield from _pictures(config, weight)
    elif place.role == "audio":
        mels, frames = getattr(config, "num_mel_bins", 80), 2 * getattr(config, "max_source_positions", 1500)
        yield {"input_features": zeros(1, mels, frames)}, ()
    elif place.role == "qformer":
        width = getattr(config, "encoder_hidden_size", 0) or getattr(config, "hidden_size", 1)
        queries = zeros(1, _TOKENS, getattr(config, "hidden_size", width))
        yield {"query_embeds": queries, "encoder_hidden_states": zeros(1, _TOKENS, width)}, ()
    else:
        inner = next((m.in_features for m in place.module.modules() if hasattr(m, "in_features")), 0)
        yield {}, (zeros(1, _TOKENS, inner),)
        yield {}, (zeros(_TOKENS, inner // _TOKENS),)


def _pictures(config: Any, weight: Any) -> Iterator[tuple[dict[str, Any], tuple[Any, ...]]]:
    import torch

    size = getattr(config, "image_size", 0) or 0
    width, height = (size, size) if isinstance(size, int) else tuple(size)[:2]
    channels = getattr(config, "num_channels", 3)
    if width:
        yield {"pixel_values": weight.new_zeros((1, channels, height, width))}, ()
    patch, frames = getattr(config, "patch_size", 14), getattr(config, "temporal_patch_size", 1)
    flat = weight.new_zeros((_TOKENS, getattr(config, "in_channels", channels) * frames * patch * patch))
    yield {"grid_thw": torch.tensor([[1, 2, 2]], device=weight.device)}, (flat,)
