"""What a fault is handed: decoded media as small frozen records.

Arrays are ``Any`` at run time so that nothing here imports numpy; the docstrings give the true types.
A fault never changes a value in place: it returns a new record, or the very same object when nothing changed.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Image:
    """One decoded picture.

    ``pixels``: numpy array (height, width, channels), C-contiguous, uint8, or uint16 for mode ``I;16``.
    ``mode``: Pillow's name, one of ``L LA RGB RGBA CMYK I;16``; in ``LA`` and ``RGBA`` the last channel is alpha.
    """

    pixels: Any
    mode: str

    @property
    def has_alpha(self) -> bool:
        """Whether the last channel is transparency, which a fault on colours leaves alone."""
        return self.mode in ("LA", "RGBA")

    @property
    def full_scale(self) -> int:
        """The value of white: 255, or 65535 for 16-bit grey."""
        return 65535 if self.mode == "I;16" else 255


@dataclass(frozen=True, eq=False)
class Audio:
    """One decoded clip.

    ``samples``: numpy float32 (frames, channels), full scale ±1, not clipped. ``rate``: frames per second in Hz.
    """

    samples: Any
    rate: int

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return float(len(self.samples)) / self.rate
