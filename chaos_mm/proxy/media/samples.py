"""Between stored sample codes and the float32 clips that faults take; full scale is ±1 on both sides."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Coding:
    """How a WAV stores a sample: `bits` 8 (unsigned), 16, 24, 32 (signed) or 32, 64 (`real`), little-endian."""

    bits: int
    real: bool

    @property
    def width(self) -> int:
        """Bytes a sample."""
        return self.bits // 8

    def codes(self, raw: bytes) -> Any:
        """Sample codes: int32 (int64 for nothing), or the stored floats. `raw` holds whole samples."""
        if self.real:
            return np.frombuffer(raw, f"<f{self.width}")
        if self.bits == 24:
            wide = np.zeros((len(raw) // 3, 4), np.uint8)
            wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
            return wide.view("<i4")[:, 0] >> 8
        if self.bits == 8:
            return np.frombuffer(raw, np.uint8).astype(np.int32) - 128
        return np.frombuffer(raw, f"<i{self.width}").astype(np.int32)

    def raw(self, codes: Any) -> bytes:
        """The inverse of `codes`."""
        if self.real:
            return bytes(codes.astype(f"<f{self.width}").tobytes())
        if self.bits == 24:
            wide = np.ascontiguousarray(codes.astype("<i4")).view(np.uint8).reshape(-1, 4)
            return bytes(wide[:, :3].tobytes())
        if self.bits == 8:
            return bytes((codes + 128).astype(np.uint8).tobytes())
        return bytes(codes.astype(f"<i{self.width}").tobytes())

    def samples(self, codes: Any) -> Any:
        """float32, full scale ±1."""
        return codes.astype(np.float32) if self.real else to_float(codes, self.bits)

    def quantised(self, samples: Any) -> Any:
        """Codes of float samples: rounded and clipped for integers, as they are for floats."""
        return samples.astype(f"<f{self.width}") if self.real else to_codes(samples, self.bits)


def to_float(codes: Any, bits: int) -> Any:
    """Signed codes of `bits` to float32: code / 2^(bits - 1), exact up to 24 bits."""
    return codes.astype(np.float32) * np.float32(2.0 ** (1 - bits))


def to_codes(samples: Any, bits: int) -> Any:
    """float32 to signed codes of `bits` as int32, rounded to nearest and clipped."""
    scale = 2.0 ** (bits - 1)
    # float64 only where float32 cannot hold the codes: half the time for 16 bits.
    wide = samples.astype(np.float64 if bits > 24 else np.float32)
    return np.clip(np.rint(wide * scale), -scale, scale - 1).astype(np.int32)


def keep_untouched(before: Any, after: Any, stored: Any, fresh: Any) -> Any:
    """Codes that a fault left alone stay what they were, so that an untouched sample is bit-exact at any depth."""
    return np.where(before == after, stored, fresh) if before.shape == after.shape else fresh
