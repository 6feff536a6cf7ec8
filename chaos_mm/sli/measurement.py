"""What every SLI answers: a finite number that was measured, or none and the reason why."""

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Measurement:
    """One value of one SLI over one window.

    ``value`` is always finite; it is 0.0 when ``measured`` is false, and then ``reason`` says why. ``reason`` may also
    qualify a value that was measured. ``window_seconds`` is the length of time the records stand for.
    """

    measured: bool
    value: float
    unit: str
    samples: int
    window_seconds: float
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """The probe's answer of the design: strict JSON."""
        return asdict(self)


def measured(value: float, unit: str, samples: int, window_seconds: float, reason: str = "") -> Measurement:
    """A value, or "no data" should it not be finite, so that NaN and infinity never leave."""
    if not math.isfinite(value):
        return no_data(f"the value came out as {value}", unit, samples, window_seconds)
    return Measurement(True, float(value), unit, samples, _length(window_seconds), reason)


def no_data(reason: str, unit: str, samples: int, window_seconds: float) -> Measurement:
    """Nothing to judge: fails every objective."""
    return Measurement(False, 0.0, unit, samples, _length(window_seconds), reason)


def _length(window_seconds: float) -> float:
    return float(window_seconds) if math.isfinite(window_seconds) and window_seconds > 0 else 0.0
