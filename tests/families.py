"""One tiny model of each family that a role finder must know; random weights, nothing downloaded."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.models import llava_config

_TOWER = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
_PICTURES = {**_TOWER, "image_size": 56, "patch_size": 14}


def llava() -> Any:
    from transformers import LlavaForConditionalGeneration

    return LlavaForConditionalGeneration(llava_config(300, 3))


def llama() -> Any:
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM(llava_config(300, 3).text_config)


def qwen2_vl() -> Any:
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    text = {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]},
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
    }
    vision = {
        "depth": 2,
        "embed_dim": 64,
        "num_heads": 4,
        "hidden_size": 64,
        "mlp_ratio": 2,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    tokens = {"image_token_id": 3, "video_token_id": 4, "vision_start_token_id": 5, "vision_end_token_id": 6}
    return Qwen2VLForConditionalGeneration(Qwen2VLConfig(text_config=text, vision_config=vision, **tokens))


def blip2() -> Any:
    from transformers import (
        Blip2Config,
        Blip2ForConditionalGeneration,
        Blip2QFormerConfig,
        Blip2VisionConfig,
        OPTConfig,
    )

    text = OPTConfig(
        vocab_size=320,
        hidden_size=64,
        ffn_dim=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=512,
        word_embed_proj_dim=64,
    )
    config = Blip2Config(
        vision_config=Blip2VisionConfig(**_PICTURES).to_dict(),
        qformer_config=Blip2QFormerConfig(**_TOWER, encoder_hidden_size=64, vocab_size=300).to_dict(),
        text_config=text.to_dict(),
        num_query_tokens=8,
        image_token_index=3,
    )
    return Blip2ForConditionalGeneration(config)


def qwen2_audio() -> Any:
    from transformers import Qwen2AudioConfig, Qwen2AudioForConditionalGeneration

    sound = {
        "model_type": "qwen2_audio_encoder",
        "num_mel_bins": 16,
        "encoder_layers": 2,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 128,
        "d_model": 64,
        "max_source_positions": 100,
    }
    text = {
        "model_type": "qwen2",
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    }
    return Qwen2AudioForConditionalGeneration(Qwen2AudioConfig(audio_config=sound, text_config=text))


def whisper() -> Any:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=300,
        num_mel_bins=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        d_model=64,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=100,
        max_target_positions=64,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=1,
        begin_suppress_tokens=None,
        suppress_tokens=None,
    )
    return WhisperForConditionalGeneration(config)


def clip() -> Any:
    from transformers import CLIPConfig, CLIPModel

    text = {**_TOWER, "vocab_size": 300, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    return CLIPModel(CLIPConfig(text_config=text, vision_config=_PICTURES, projection_dim=32))


def omni() -> Any:
    from chaos_mm.target.network import OmniModel

    return OmniModel()


MODELS: Mapping[str, Callable[[], Any]] = {
    "llava": llava,
    "llama": llama,
    "qwen2_vl": qwen2_vl,
    "blip2": blip2,
    "qwen2_audio": qwen2_audio,
    "whisper": whisper,
    "clip": clip,
    "omni": omni,
}
