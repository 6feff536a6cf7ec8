"""Decoding: the cache and the batch change nothing about an answer."""

import random
from typing import Any

import pytest
import torch

from chaos_mm.target import media, questions, tokens
from chaos_mm.target.generation import ModelInput, answers, decode
from chaos_mm.target.network import MAX_POSITIONS
from chaos_mm.target.server import model_input
from tests.target.sounds import picture, picture_file, sound_file, speech

pytestmark = pytest.mark.model


def mixed_inputs() -> list[ModelInput]:
    """Prompts of very different lengths and media."""
    shown, said = picture_file(picture("4072")), sound_file(speech("4072"))
    padding = " ".join(questions.PADDING[:6])
    return [
        model_input("repeat the code 9 3 1 5", None, None),
        model_input(f"{padding} what number is in the picture {padding}", shown, None),
        model_input("what number is in the audio", None, said),
        model_input(questions.QUESTIONS["agreement"][0], shown, said),
        model_input("what colour is the number in the picture", shown, said),
        model_input("", shown, None),
    ]


@torch.inference_mode()
def logits_of(model: Any, inputs: list[ModelInput]) -> torch.Tensor:
    return torch.stack(list(decode(model, inputs, 6)), 1)


def test_answers_do_not_depend_on_the_batch(model: Any) -> None:
    inputs = mixed_inputs()
    alone = answers(model, inputs[:1]) + [answer for entry in inputs[1:] for answer in answers(model, [entry])]
    assert answers(model, inputs) == alone
    order = list(range(len(inputs))) * 3
    random.Random(1).shuffle(order)
    assert answers(model, [inputs[i] for i in order]) == [alone[i] for i in order]


def test_first_logits_in_a_batch_equal_those_alone(model: Any) -> None:
    inputs = mixed_inputs()
    together = logits_of(model, inputs)[:, 0]
    for row, entry in enumerate(inputs):
        torch.testing.assert_close(together[row], logits_of(model, [entry])[0, 0], atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_the_cache_changes_nothing(model: Any) -> None:
    """Step logits equal those of one pass over prompt and answer without a cache."""
    for entry in mixed_inputs():
        stepped = logits_of(model, [entry])[0]
        given = stepped.argmax(-1)[:-1].tolist()
        image = model.see(entry.pixels[None])[1] if entry.pixels is not None else None
        audio = model.hear(entry.mel[None])[1] if entry.mel is not None else None
        embedded = model.embed(torch.tensor([[*entry.ids, *given]]), image, audio)
        whole = model.language_model(inputs_embeds=embedded, use_cache=False).logits[0, len(entry.ids) - 1 :]
        torch.testing.assert_close(stepped, whole, atol=1e-4, rtol=1e-4)


def test_decoding_stops_at_the_context_length(model: Any) -> None:
    entry = ModelInput([tokens.BOS, *[tokens.UNK] * (MAX_POSITIONS - 4), tokens.ANS])
    with torch.inference_mode():
        assert len(list(decode(model, [entry], 100))) == 2


@pytest.mark.parametrize("surplus", [-1, 1])
@pytest.mark.parametrize("modality", ["image", "audio"])
def test_another_number_of_rows_than_placeholders_is_refused_at_the_merge(
    model: Any, modality: str, surplus: int
) -> None:
    """Real engines refuse it too; one row too many for the first prompt would be read by the second."""
    entries = [model_input("", *media) for media in [_media(modality)] * 2]
    ids = torch.tensor([list(entry.ids) for entry in entries])
    rows = torch.zeros(1, 12 + surplus, 128)
    given = (rows, None) if modality == "image" else (None, rows)
    with pytest.raises(RuntimeError, match=f"^{modality}: {12 + surplus} rows for 12 placeholders$"):
        model.embed(ids, *given)


def _media(modality: str) -> tuple[Any, Any]:
    if modality == "image":
        return picture_file(picture("4072")), None
    return None, sound_file(speech("4072"))


def test_parts_have_the_names_an_adapter_looks_for(model: Any) -> None:
    from transformers import PreTrainedModel

    for role in ("vision", "audio", "qformer", "audio_qformer", "language_model"):
        assert isinstance(getattr(model, role), PreTrainedModel)
        assert getattr(model, role).config._attn_implementation == "sdpa"


def test_server_and_training_hear_the_same() -> None:
    """The batched log-mel of the training script equals librosa's, which serves."""
    from training.batches import log_mels

    clip = speech("905")
    padded = torch.zeros(1, 40_960)
    padded[0, : len(clip)] = torch.from_numpy(clip)
    served = torch.from_numpy(media.log_mel(clip))
    torch.testing.assert_close(log_mels(padded)[0], served, atol=1e-4, rtol=1e-4)
