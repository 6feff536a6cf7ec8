"""Greedy decoding of a batch of prompts with the library's key-value cache: one prefill, then one step a token."""

import inspect
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from transformers.cache_utils import DynamicCache
from transformers.models.llama.modeling_llama import LlamaModel

from chaos_mm.target import tokens
from chaos_mm.target.network import MAX_POSITIONS, OmniModel

# transformers renamed the argument within 5.x
CACHE_ARGUMENT = "cache" if "cache" in inspect.signature(LlamaModel.forward).parameters else "past_key_values"


class ModelInput(NamedTuple):
    """One prompt: token ids, pixels float (3, 64, 96) in 0-1 or None, log-mel plane float (40, 160) or None.

    The ids hold six ``<img>`` (``<aud>``) where pixels (mel) are given, else none. The keys know a picture or a
    recording again by what was decoded; b"": it is never kept.
    """

    ids: Sequence[int]
    pixels: torch.Tensor | None = None
    mel: torch.Tensor | None = None
    pixels_key: bytes = b""
    mel_key: bytes = b""

    @property
    def modalities(self) -> tuple[str, ...]:
        """What the prompt holds: text, and image or audio."""
        return ("text", *["image"] * (self.pixels is not None), *["audio"] * (self.mel is not None))


Media = tuple[torch.Tensor | None, torch.Tensor | None]


def media_states(model: OmniModel, inputs: Sequence[ModelInput]) -> Media:
    """Q-Former queries of all pictures and of all speech in the batch, in order."""
    pixels = [entry.pixels for entry in inputs if entry.pixels is not None]
    mels = [entry.mel for entry in inputs if entry.mel is not None]
    image = model.see(torch.stack(pixels))[1] if pixels else None
    audio = model.hear(torch.stack(mels))[1] if mels else None
    return image, audio


def decode(
    model: OmniModel, inputs: Sequence[ModelInput], steps: int, media: Media | None = None
) -> Iterator[torch.Tensor]:
    """Logits (n, vocabulary) of each next token, at most ``steps`` times; the token fed back is the likeliest one.

    Ends by itself where the context is full; a prompt has at most MAX_POSITIONS - 1 tokens.
    Prompts are padded on the left and the padding is masked, so a prompt's answer does not depend on the batch.
    ``media``: what ``media_states`` gives, where it is at hand already.
    """
    image, audio = media or media_states(model, inputs)
    length = max(len(entry.ids) for entry in inputs)
    ids = torch.full((len(inputs), length), tokens.PAD)
    for row, entry in enumerate(inputs):
        ids[row, length - len(entry.ids) :] = torch.tensor(entry.ids)
    mask = (ids != tokens.PAD).long()
    position = (mask.cumsum(1) - 1).clamp(min=0)
    cache = {CACHE_ARGUMENT: DynamicCache(config=model.language_model.config), "use_cache": True}
    embedded = model.embed(ids, image, audio)
    output = model.language_model(
        inputs_embeds=embedded, attention_mask=mask, position_ids=position, logits_to_keep=1, **cache
    )
    position = position[:, -1:]
    logits: torch.Tensor = output.logits[:, -1]
    yield logits
    for _ in range(1, min(steps, MAX_POSITIONS - length)):
        token = logits.argmax(-1, keepdim=True)
        position, mask = position + 1, torch.cat([mask, torch.ones_like(token)], 1)
        output = model.language_model(input_ids=token, attention_mask=mask, position_ids=position, **cache)
        logits = output.logits[:, -1]
        yield logits


@torch.inference_mode()
def answers(model: OmniModel, inputs: Sequence[ModelInput], steps: int = 6) -> list[list[int]]:
    """Token ids of each answer, without ``<eos>``."""
    columns = [logits.argmax(-1) for logits in decode(model, inputs, steps)]
    rows = torch.stack(columns, 1).tolist()
    return [row[: row.index(tokens.EOS)] if tokens.EOS in row else row for row in rows]
