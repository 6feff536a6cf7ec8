"""Tiny random models from configurations alone: nothing is downloaded, each is made in a second or two.

They have ordinary shapes and no skill: their greedy answers are long, deterministic, and move with picture and text.
"""

from pathlib import Path
from typing import Any

import torch

SPECIAL = ("<s>", "</s>", "<pad>", "<image>")
SENTENCES = ("describe the image please", "a photo of a cat and a dog", "what is shown here")
CHAT = (
    "{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{% if c.type in ('image', 'image_url') %}<image>\n{% elif 'text' in c %}{{ c.text }}"
    "{% endif %}{% endfor %}{% endif %}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
IMAGE_TOKENS = 16


def tiny_llava(
    folder: Path, *, clip_names: bool = False, layers: int = 2, max_positions: int = 2048, width: int = 64
) -> Path:
    """Save a LLaVA (CLIP tower, projector, Llama decoder with one key-value head of 32) there.

    Model, tokenizer, processor and chat template; a picture is IMAGE_TOKENS placeholders. ``width`` of the decoder, a
    multiple of 32: 64 makes 0.3 M parameters.
    ``clip_names``: name the tower's weights as vLLM 0.32 looks for them, ``vision_tower.vision_model.…``.
    """
    from transformers import LlavaForConditionalGeneration

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = byte_tokenizer()
    config = llava_config(len(tokenizer), tokenizer.convert_tokens_to_ids("<image>"), layers, max_positions, width)
    model = LlavaForConditionalGeneration(config).eval()
    make_it_talk(model, len(SPECIAL))
    model.save_pretrained(folder)
    llava_processor(tokenizer).save_pretrained(folder)
    if clip_names:
        name_as_clip_did(folder / "model.safetensors")
    return folder


def llava_config(words: int, image_token: int, layers: int = 2, max_positions: int = 2048, width: int = 64) -> Any:
    """Its configuration for a vocabulary of ``words``, padded to a multiple of 64."""
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig

    vision = CLIPVisionConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        image_size=56,
        patch_size=14,
        projection_dim=32,
    )
    text = LlamaConfig(
        vocab_size=-(-words // 64) * 64,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        num_key_value_heads=1,
        max_position_embeddings=max_positions,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )
    return LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=image_token,
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
        image_seq_length=IMAGE_TOKENS,
    )


def byte_tokenizer() -> Any:
    """A byte-level BPE trained on three sentences: every text can be spelt with it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES * 20, trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        additional_special_tokens=["<image>"],
        model_max_length=2048,
    )
    wrapped.chat_template = CHAT
    return wrapped


def llava_processor(tokenizer: Any) -> Any:
    """Pictures of any size to 56 x 56, and ``<image>`` to its placeholders."""
    import transformers

    # Without torchvision the Pillow one must be asked for; older releases have a single class.
    reader = getattr(transformers, "CLIPImageProcessorPil", None) or transformers.CLIPImageProcessor
    pictures = reader(size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56})
    return transformers.LlavaProcessor(
        image_processor=pictures,
        tokenizer=tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT,
    )


def make_it_talk(model: Any, special: int, gain: float = 1.5) -> None:
    """Larger random weights, so that answers depend on the input, and heads that never choose a special token.

    With the libraries' own initialisation a random model says end-of-text at once.
    """
    draws = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() >= 2:
                fan_in = 1 if "embed_tokens" in name else weight[0].numel()
                weight.normal_(0, gain / fan_in**0.5, generator=draws)
        model.get_output_embeddings().weight[:special] = 0


def name_as_clip_did(weights: Path) -> None:
    """Rename the vision tower's tensors in a safetensors file to ``vision_tower.vision_model.…``, in place."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(weights)
    renamed = {
        name.replace("vision_tower.", "vision_tower.vision_model.")
        if "vision_tower." in name and "vision_model" not in name
        else name: tensor.contiguous()
        for name, tensor in tensors.items()
    }
    save_file(renamed, weights, metadata={"format": "pt"})
