"""FLAC, MP3 and WAV codings beyond plain PCM, through libsndfile, which is loaded when the first such clip arrives.

FLAC keeps bit depth and every metadata block but the seek table, whose offsets would be wrong. MP3 keeps an ID3v2 tag
and the mean bit rate, as a constant one of at least what LAME's own tag needs to fit a frame (40 kbit/s at 16 kHz):
without that tag decoders cannot trim the encoder's delay, and the clip would start 1105 frames late. Other WAV codings
lose chunks beyond fmt and data.
"""

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from chaos_mm.core.media import Audio
from chaos_mm.proxy.media.medium import Clip
from chaos_mm.proxy.media.samples import keep_untouched, to_codes, to_float
from chaos_mm.proxy.media.wav import check_length
from chaos_mm.proxy.policy import Limits, Undecodable

_FLAC_BITS: Final = {"PCM_S8": 8, "PCM_16": 16, "PCM_24": 24}
_STREAMINFO, _SEEKTABLE = 0, 3
_LAST_BLOCK = 0x80
_TAG_BYTES: Final = 176  # frames from this size on hold LAME's tag (measured for every rate from 8 to 48 kHz)


class Flac(Clip):
    """A decoded FLAC."""

    def __init__(self, data: bytes, limits: Limits) -> None:
        found = _read(data, "FLAC", "int32", limits)
        self._bits, self._subtype = _FLAC_BITS[found.subtype], found.subtype
        self._blocks = [block for block in _blocks(data) if block[0] & 0x7F not in (_STREAMINFO, _SEEKTABLE)]
        self._codes = found.samples >> (32 - self._bits)
        super().__init__(Audio(to_float(self._codes, self._bits), found.rate))

    def written(self, value: Audio) -> bytes:
        """Compress losslessly at the source's depth, between the source's metadata blocks."""
        fresh = _written(self._fresh(value) << (32 - self._bits), value.rate, "FLAC", self._subtype)
        blocks = list(_blocks(fresh))
        frames = fresh[4 + sum(map(len, blocks)) :]
        return b"".join((b"fLaC", *_chained([blocks[0], *self._blocks]), frames))

    def delivered(self, encoded: bytes, value: Audio) -> Audio:
        """The rounded and clipped samples."""
        return replace(value, samples=to_float(self._fresh(value), self._bits))

    def _fresh(self, value: Audio) -> Any:
        return keep_untouched(self.value.samples, value.samples, self._codes, to_codes(value.samples, self._bits))


class Mp3(Clip):
    """A decoded MP3."""

    def __init__(self, data: bytes, limits: Limits) -> None:
        found = _read(data, "MP3", "float32", limits)
        self._tag = data[: _id3_size(data)]
        seconds = max(1, len(found.samples)) / found.rate
        self._kilobits = (len(data) - len(self._tag)) * 8 / seconds / 1000
        super().__init__(Audio(found.samples, found.rate))

    def written(self, value: Audio) -> bytes:
        """Compress at the source's mean bit rate."""
        level = compression_level(self._kilobits, value.rate)
        options = {"compression_level": level, "bitrate_mode": "CONSTANT"}
        return self._tag + _written(value.samples, value.rate, "MP3", "MPEG_LAYER_III", **options)

    def delivered(self, encoded: bytes, value: Audio) -> Audio:
        """Decode it again."""
        found = _read(encoded, "MP3", "float32", Limits(max_audio_seconds=float("inf")))
        return replace(value, samples=found.samples)


class CodedWav(Clip):
    """A WAV in a coding that only libsndfile reads: A-law, µ-law, ADPCM, GSM."""

    def __init__(self, data: bytes, limits: Limits) -> None:
        found = _read(data, "WAV", "float32", limits)
        self._subtype = found.subtype
        super().__init__(Audio(found.samples, found.rate))

    def written(self, value: Audio) -> bytes:
        """Encode in the source's coding."""
        return _written(value.samples, value.rate, "WAV", self._subtype)

    def delivered(self, encoded: bytes, value: Audio) -> Audio:
        """Decode it again: these codings are lossy."""
        found = _read(encoded, "WAV", "float32", Limits(max_audio_seconds=float("inf")))
        return replace(value, samples=found.samples)


def compression_level(kilobits: float, rate: int) -> float:
    """libsndfile's 0-1 scale between LAME's highest and lowest constant bit rate for this sample rate."""
    per_frame = 144 if rate >= 32_000 else 72
    kilobits = max(kilobits, 8 * math.ceil(_TAG_BYTES * rate / per_frame / 8000))
    high, low = (320, 32) if rate >= 32_000 else (160, 8) if rate >= 16_000 else (64, 8)
    return min(0.9999, max(0.0, (high - kilobits) / (high - low)))


@dataclass(frozen=True, slots=True)
class _Found:
    samples: Any
    rate: int
    subtype: str


def _soundfile() -> Any:
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: the package is there, its library is not
        raise Undecodable("no_codec") from None
    return soundfile


def _read(data: bytes, kind: str, dtype: str, limits: Limits) -> _Found:
    """Decode with a cap on what is decoded: a header may claim less than the stream holds."""
    with _soundfile().SoundFile(io.BytesIO(data)) as file:
        if file.format not in (kind, "WAVEX" if kind == "WAV" else kind):
            raise Undecodable("unknown_format")
        check_length(file.frames, file.channels, file.samplerate, limits)
        most = int(min(2**31, limits.max_audio_seconds * file.samplerate))
        samples = file.read(min(most, file.frames), dtype, always_2d=True)
        if kind == "MP3" and not len(samples):
            raise Undecodable("broken_media")
        return _Found(samples, file.samplerate, file.subtype)


def _written(samples: Any, rate: int, kind: str, subtype: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    _soundfile().write(buffer, np.ascontiguousarray(samples), rate, format=kind, subtype=subtype, **options)
    return buffer.getvalue()


def _blocks(data: bytes) -> Iterator[bytes]:
    """FLAC metadata blocks with their headers (RFC 9639 §8.1)."""
    at = 4
    while True:
        end = at + 4 + int.from_bytes(data[at + 1 : at + 4], "big")
        yield data[at:end]
        if data[at] & _LAST_BLOCK:
            return
        at = end


def _chained(blocks: list[bytes]) -> Iterator[bytes]:
    """Blocks with the last-block flag on the last alone."""
    for index, block in enumerate(blocks):
        last = _LAST_BLOCK if index == len(blocks) - 1 else 0
        yield bytes((block[0] & 0x7F | last,)) + block[1:]


def _id3_size(data: bytes) -> int:
    """Bytes of an ID3v2 tag in front: its size is 28 bits in four 7-bit bytes."""
    if data[:3] != b"ID3" or len(data) < 10:
        return 0
    size = data[6] << 21 | data[7] << 14 | data[8] << 7 | data[9]
    return min(len(data), 10 + size)
