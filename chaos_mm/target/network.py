"""The demo model's network: CLIP and Whisper encoders, a Q-Former each, a Llama decoder (transformers' classes).

The parts have the names an engine adapter looks for: ``vision``, ``audio``, ``qformer``, ``audio_qformer``,
``language_model``.
"""

import math
from typing import Any

import torch
from torch import nn
from transformers.models.blip_2.configuration_blip_2 import Blip2QFormerConfig
from transformers.models.blip_2.modeling_blip_2 import Blip2QFormerModel
from transformers.models.clip.configuration_clip import CLIPVisionConfig
from transformers.models.clip.modeling_clip import CLIPVisionModel
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers.models.whisper.configuration_whisper import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from chaos_mm.target import front_end, tokens

DIM = 128
HEADS = 4
STRIDE = 8
AUDIO_FRAMES = front_end.FRAMES // 2
MAX_POSITIONS = 256
INIT_STD = 0.06  # transformers' default of 0.02 is far too small at width 128


def _positions_2d(rows: int, columns: int) -> torch.Tensor:
    row, column = torch.meshgrid(torch.arange(float(rows)), torch.arange(float(columns)), indexing="ij")
    waves = torch.arange(1, DIM // 4 + 1) / 4
    angles = [axis.flatten()[:, None] * waves * math.pi / size for axis, size in ((row, rows), (column, columns))]
    return 0.5 * torch.cat([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], 1)


def _convolution(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


class ConvStemEmbeddings(nn.Module):
    """In place of CLIP's patch embeddings: a convolutional stem of stride 8, so 8 x 12 tokens and no class token.

    A fourth input channel holds each pixel's distance to the picture's mean colour: dark on light equals light on dark.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _convolution(4, 32, 5, 2),
            _convolution(32, 64, 3, 2),
            _convolution(64, 64, 3, 1),
            nn.Conv2d(64, DIM, 3, 2, 1),
        )
        self.position_embedding = nn.Parameter(_positions_2d(front_end.HEIGHT // STRIDE, front_end.WIDTH // STRIDE))

    def forward(self, pixel_values: torch.Tensor, **_: Any) -> torch.Tensor:
        """Tokens (n, 96, 128) of pictures (n, 3, 64, 96) in 0-1."""
        x = pixel_values
        contrast = (x - x.mean((2, 3), keepdim=True)).pow(2).sum(1, keepdim=True).add(1e-6).sqrt()
        contrast = (contrast - contrast.mean((2, 3), keepdim=True)) / (contrast.std((2, 3), keepdim=True) + 1e-3)
        grid: torch.Tensor = self.stem(torch.cat([x * 2 - 1, contrast * 0.5], 1))
        return grid.flatten(2).transpose(1, 2) + self.position_embedding


def _vision() -> CLIPVisionModel:
    config = CLIPVisionConfig(
        hidden_size=DIM,
        intermediate_size=2 * DIM,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        image_size=front_end.WIDTH,
        patch_size=STRIDE,
        hidden_act="gelu",
    )
    model = CLIPVisionModel(config)
    model.embeddings = ConvStemEmbeddings()
    return model


def _audio() -> WhisperEncoder:
    config = WhisperConfig(
        d_model=DIM,
        encoder_layers=2,
        encoder_attention_heads=HEADS,
        encoder_ffn_dim=2 * DIM,
        num_mel_bins=front_end.MELS,
        max_source_positions=AUDIO_FRAMES,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        pad_token_id=0,
        init_std=INIT_STD,
    )
    model = WhisperEncoder(config)
    with torch.no_grad():
        model.embed_positions.weight.mul_(0.5)
    return model


def _qformer() -> Blip2QFormerModel:
    config = Blip2QFormerConfig(
        hidden_size=DIM,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=2 * DIM,
        encoder_hidden_size=DIM,
        cross_attention_frequency=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=INIT_STD,
        layer_norm_eps=1e-6,
    )
    return Blip2QFormerModel(config)


def _language_model() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=len(tokens.vocabulary_words()),
        hidden_size=DIM,
        intermediate_size=3 * DIM,
        num_hidden_layers=3,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        initializer_range=INIT_STD,
        pad_token_id=tokens.PAD,
        bos_token_id=tokens.BOS,
        eos_token_id=tokens.EOS,
    )
    return LlamaForCausalLM(config)


def _merged(embedded: torch.Tensor, places: torch.Tensor, rows: torch.Tensor, modality: str) -> torch.Tensor:
    placeholders, given = int(places.sum()), rows.numel() // DIM
    if given != placeholders:  # surplus rows would be left over, and every later prompt of the batch read another's
        raise RuntimeError(f"{modality}: {given} rows for {placeholders} placeholders")
    return embedded.masked_scatter(places[..., None], rows)


class OmniModel(nn.Module):
    """Pictures, speech and text in, text out."""

    def __init__(self) -> None:
        super().__init__()
        self.vision, self.audio = _vision(), _audio()
        self.qformer, self.audio_qformer = _qformer(), _qformer()
        self.query_tokens = nn.Parameter(torch.randn(1, tokens.IMAGE_TOKENS, DIM))
        self.audio_query_tokens = nn.Parameter(torch.randn(1, tokens.AUDIO_TOKENS, DIM))
        self.language_projection, self.audio_projection = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.language_model = _language_model()

    def see(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Vision tokens (n, 96, 128) and Q-Former queries (n, 6, 128) of pictures (n, 3, 64, 96) in 0-1."""
        features = self.vision(pixels).last_hidden_state
        queries = self.query_tokens.expand(len(pixels), -1, -1)
        return features, self.qformer(queries, encoder_hidden_states=features).last_hidden_state

    def hear(self, mel: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Audio tokens (n, 80, 128) and Q-Former queries (n, 6, 128) of log-mel planes (n, 40, 160)."""
        features = self.audio(mel).last_hidden_state
        queries = self.audio_query_tokens.expand(len(mel), -1, -1)
        return features, self.audio_qformer(queries, encoder_hidden_states=features).last_hidden_state

    def embed(self, ids: torch.Tensor, image: torch.Tensor | None, audio: torch.Tensor | None) -> torch.Tensor:
        """Decoder inputs (n, length, 128): word embeddings, the placeholders replaced by projected queries in order.

        Raises RuntimeError where there are fewer or more queries than placeholders.
        """
        embedded: torch.Tensor = self.language_model.get_input_embeddings()(ids)
        if image is not None and len(image):
            embedded = _merged(embedded, ids == tokens.IMG, self.language_projection(image), "image")
        if audio is not None and len(audio):
            embedded = _merged(embedded, ids == tokens.AUD, self.audio_projection(audio), "audio")
        return embedded

    def shipped_state(self) -> dict[str, torch.Tensor]:
        """The tensors that the weights file holds: all but the output head, which is the tied word embedding."""
        return {key: value for key, value in self.state_dict().items() if key != "language_model.lm_head.weight"}
