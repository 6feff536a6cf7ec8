"""WAV: other samples inside the source's own header, chunks and sample coding.

Of the same length, only the bytes of the data chunk change, whatever the header claims; of another, sizes that were
true are made true again. Integer and float PCM are read here; other codings (A-law, ADPCM …) are left to libsndfile.
"""

import struct
from dataclasses import dataclass, replace
from typing import Any, Final

from chaos_mm.core.media import Audio
from chaos_mm.proxy.media.medium import Clip
from chaos_mm.proxy.media.samples import Coding, keep_untouched
from chaos_mm.proxy.policy import Limits, Undecodable

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_MAX_CHANNELS: Final = 64
_STREAMED: Final = (0, 0xFFFFFFFF)  # what a writer that cannot seek leaves in the size fields


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things lie: the fmt chunk's body and the data chunk's body, in bytes; and what fmt says."""

    fmt: int
    data: int
    size: int
    claimed: int
    coding: Coding
    channels: int
    rate: int

    @property
    def frame(self) -> int:
        """Bytes of one sample of every channel."""
        return self.coding.width * self.channels


class Wav(Clip):
    """A decoded WAV; raises Undecodable when it is too long."""

    def __init__(self, data: bytes, layout: Layout, limits: Limits) -> None:
        check_length(layout.size // layout.frame, layout.channels, layout.rate, limits)
        self._data, self._layout = data, layout
        whole = layout.size - layout.size % layout.frame
        self._codes = layout.coding.codes(data[layout.data : layout.data + whole]).reshape(-1, layout.channels)
        super().__init__(Audio(layout.coding.samples(self._codes), layout.rate))

    def written(self, value: Audio) -> bytes:
        """Put samples into the data chunk and mend the header where it has to change."""
        raw = self._layout.coding.raw(self._fresh(value))
        head, rest = self._data[: self._layout.data], self._data[self._layout.data + self._layout.size :]
        if len(raw) == self._whole:
            torn = self._data[self._layout.data + self._whole : self._layout.data + self._layout.size]
            return b"".join((self._mended(head, value, self._layout.size, 0), raw, torn, rest))
        # Chunks begin at even offsets, so an odd one is followed by a byte that its size does not count.
        rest = rest[self._layout.size % 2 :]
        padding = b"\0" * (len(raw) % 2)
        more = len(raw) + len(padding) + len(rest)
        return b"".join((self._mended(head, value, len(raw), more), raw, padding, rest))

    def delivered(self, encoded: bytes, value: Audio) -> Audio:
        """The rounded and clipped samples."""
        return replace(value, samples=self._layout.coding.samples(self._fresh(value)))

    @property
    def _whole(self) -> int:
        return self._layout.size - self._layout.size % self._layout.frame

    def _fresh(self, value: Audio) -> Any:
        fresh = self._layout.coding.quantised(value.samples)
        return keep_untouched(self.value.samples, value.samples, self._codes, fresh)

    def _mended(self, head: bytes, value: Audio, size: int, more: int) -> bytes:
        """The bytes up to the samples with rate, channels and sizes made true; `more` bytes follow them."""
        layout, channels, out = self._layout, value.samples.shape[1], bytearray(head)
        if (value.rate, channels) != (layout.rate, layout.channels):
            frame = channels * layout.coding.width
            struct.pack_into("<HIIH", out, layout.fmt + 2, channels, value.rate, value.rate * frame, frame)
        if size != layout.size and layout.claimed not in _STREAMED:
            struct.pack_into("<I", out, layout.data - 4, size)
        if size != layout.size and struct.unpack_from("<I", out, 4)[0] not in _STREAMED:
            struct.pack_into("<I", out, 4, len(head) + more - 8)
        return bytes(out)


def read_layout(data: bytes) -> Layout | None:
    """Walk the RIFF chunks. None when it is not a WAV with integer or float PCM. Raises struct.error on a torn one."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return None
    at, fmt = 12, 0
    while at + 8 <= len(data):
        name, claimed = data[at : at + 4], struct.unpack_from("<I", data, at + 4)[0]
        if name == b"fmt ":
            fmt = at + 8
        if name == b"data":
            break
        at += 8 + claimed + claimed % 2
    else:
        raise struct.error("no data chunk")
    return _layout(data, fmt, at + 8, claimed)


def _layout(data: bytes, fmt: int, start: int, claimed: int) -> Layout | None:
    tag, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", data, fmt)
    if tag == _EXTENSIBLE:
        tag = struct.unpack_from("<H", data, fmt + 24)[0]
    known = (tag == _PCM and bits in (8, 16, 24, 32)) or (tag == _FLOAT and bits in (32, 64))
    if not fmt or not known:
        return None
    if not 1 <= channels <= _MAX_CHANNELS or not rate:
        raise struct.error("no channels or no rate")
    there = len(data) - start
    size = there if claimed in _STREAMED else min(claimed, there)
    return Layout(fmt, start, size, claimed, Coding(bits, tag == _FLOAT), channels, rate)


def check_length(frames: int, channels: int, rate: int, limits: Limits) -> None:
    """Bound time and memory; a lying rate cannot lift the bound. Raises Undecodable("too_much_audio")."""
    most = limits.max_audio_seconds * 96_000
    if frames > limits.max_audio_seconds * rate or frames * channels > most:
        raise Undecodable("too_much_audio")
