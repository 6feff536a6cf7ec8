"""A hole in the spectrogram of a clip."""

from functools import lru_cache
from math import log10, sqrt
from typing import Annotated, Any, Literal

from chaos_mm.core.fault import Outcome, Param, Target, fault
from chaos_mm.core.media import Audio
from chaos_mm.core.rng import Rng

_SIZE, _HOP = 512, 128  # samples of a frame and between frames: 32 ms and 8 ms at 16 kHz
_BINS, _LAPS = _SIZE // 2 + 1, _SIZE // _HOP
_FRAMES = 256  # pairs of frames transformed at a time: long clips need no more memory than this


@fault(
    Target.AUDIO,
    dose="share",
    presets={1: {"share": 0.1}, 2: {"share": 0.2}, 3: {"share": 0.3}, 4: {"share": 0.4}, 5: {"share": 0.6}},
)
def audio_spectral_mask(
    audio: Audio,
    rng: Rng,
    *,
    share: Annotated[float, Param("area of the time-frequency plane to zero", ge=0, le=1)] = 0.2,
    region: Annotated[
        Literal["block", "time", "frequency"], Param("a block, a time span or a frequency band")
    ] = "block",
    snr_db: Annotated[
        float, Param("stop growing the hole at this signal-to-noise ratio; 0 = always the whole share", ge=0, le=60)
    ] = 0.0,
) -> Audio | Outcome:
    """Zero one region of the spectrogram, as a drop-out, a dead band or an over-eager noise gate does.

    A ``block`` is sqrt(share) of the clip by sqrt(share) of the band; a ``time`` span is share of the clip with all its
    frequencies; a ``frequency`` band is share of the band throughout. Relatives: the time and frequency masks of
    SpecAugment (Park et al., 2019). The place is uniform over the whole plane, silence included, and the same in every
    channel; for one request a larger share covers the smaller hole, so damage grows with ``share``.

    With ``snr_db`` the hole grows from its place until what it removes brings 10 log10(signal / removed) down to that
    ratio, but never beyond ``share``: with share=1 the ratio decides alone. On speech a random block of 0.4 removes
    about 11 % of the energy (median 9.5 dB), a time span of 0.4 about 40 % (4 dB).

    The plane is a 512-sample Hann transform every 128 samples, frames centred, at any rate. Length, rate and delay are
    unchanged (0 samples). Reports ``masked_share``, ``snr_db`` and ``clipped_share``, the samples newly beyond full
    scale. A clip with nothing in the hole comes back as it is. Raises ValueError for samples that are not finite.
    """
    if share == 0 or audio.samples.size == 0:
        return audio
    import numpy as np

    signal = np.ascontiguousarray(audio.samples.T)
    energy, count = _energy(signal), 1 + signal.shape[1] // _HOP
    if not np.isfinite(energy):
        raise ValueError("audio_spectral_mask: the clip holds samples that are not finite, or beyond any full scale")
    place = rng.random(), rng.random()
    area = _area_for(signal, region, place, share, 10 ** (-snr_db / 10)) if snr_db else share
    hole = _hole(area, region, place, count)
    start, removed = _resynthesised(signal, hole)
    removed_energy = _energy(removed)
    if removed_energy == 0:
        return audio
    masked = signal.copy()
    masked[:, start : start + removed.shape[1]] -= removed
    achieved = {
        "masked_share": (hole[1] - hole[0]) * (hole[3] - hole[2]) / (count * _BINS),
        "snr_db": 10 * log10(energy / removed_energy),
        "clipped_share": _clipped_share(signal, masked),
    }
    return Outcome(Audio(np.ascontiguousarray(masked.T), audio.rate), achieved)


def _energy(signal: Any) -> float:
    import numpy as np

    flat = signal.reshape(-1)
    pieces = (flat[start : start + 8192] for start in range(0, flat.size, 8192))  # BLAS starts threads from 10,000 on
    return float(sum(float(np.vdot(piece, piece)) for piece in pieces))


def _clipped_share(before: Any, after: Any) -> float:
    """Share of the samples beyond full scale that were within it before."""
    if max(after.max(), -after.min()) <= 1:
        return 0.0
    return float(((abs(after) > 1) & (abs(before) <= 1)).mean())


def _lay(out: Any, signal: Any, left: int, right: int) -> None:
    """Copy the samples under frames left to right - 1; frame 0 is centred on sample 0, around is silence."""
    start = left * _HOP - _SIZE // 2
    stop = min(start + out.shape[1], (right - 1) * _HOP + _SIZE // 2, signal.shape[1])
    out[:, max(-start, 0) : stop - start] = signal[:, max(start, 0) : stop]


def _frames(samples: Any, interleaved: int) -> Any:
    """The overlapping frames (channels, frames, 512 * interleaved) of contiguous float32 samples, as a view."""
    import numpy as np

    size, hop, (step, item) = interleaved * _SIZE, interleaved * _HOP, samples.strides
    shape = len(samples), 1 + (samples.shape[1] - size) // hop, size
    return np.lib.stride_tricks.as_strided(samples, shape, (step, hop * item, item), writeable=False)


def _hole(share: float, region: str, place: tuple[float, float], count: int) -> tuple[int, int, int, int]:
    """First and past-the-last frame and bin. Growing the share only ever adds cells to it."""
    part = {"block": (sqrt(share), sqrt(share)), "time": (share, 1.0), "frequency": (1.0, share)}[region]
    wide, tall = max(1, round(part[0] * count)), max(1, round(part[1] * _BINS))
    left, low = int(place[0] * (count - wide + 1)), int(place[1] * (_BINS - tall + 1))
    return left, left + wide, low, low + tall


def _area_for(signal: Any, region: str, place: tuple[float, float], limit: float, energy_share: float) -> float:
    """The least area at that place that holds the share of the energy, by bisection over a cumulative energy table."""
    import numpy as np
    from scipy import fft

    count = 1 + signal.shape[1] // _HOP
    padded = np.zeros((len(signal), (count + _LAPS - 1) * _HOP), np.float32)
    _lay(padded, signal, 0, count)
    frames = _frames(padded, 1)
    table = np.zeros((count + 1, _BINS + 1))
    for first in range(0, count, _FRAMES):
        spectrum = fft.rfft(frames[:, first : first + _FRAMES] * _window(), axis=-1, overwrite_x=True)
        power = np.square(spectrum.real).sum(axis=0) + np.square(spectrum.imag).sum(axis=0)
        power[:, 1:-1] *= 2  # the negative frequencies
        rows = table[first + 1 : first + 1 + len(power), 1:]
        np.cumsum(np.cumsum(power, axis=1), axis=0, out=rows)
        rows += table[first, 1:]
    low, high = 0.0, limit
    for _ in range(24):
        middle = (low + high) / 2
        left, right, bottom, top = _hole(middle, region, place, count)
        held = table[right, top] - table[left, top] - table[right, bottom] + table[left, bottom]
        low, high = (middle, high) if held < energy_share * table[-1, -1] else (low, middle)
    return high


def _resynthesised(signal: Any, hole: tuple[int, int, int, int]) -> tuple[int, Any]:
    """What the hole holds, as samples from a start: the transform is linear, so masking is subtracting this.

    Its frames go through complex transforms in pairs, one of the first half as the real and one of the second as the
    imaginary part: a mask that is even in frequency keeps the two apart.
    """
    import numpy as np

    left, right, low, high = hole
    count, half = right - left, (right - left + 1) // 2
    pairs = np.zeros((len(signal), (half + _LAPS - 1) * _HOP), np.complex64)
    _lay(pairs.real, signal, left, right)
    _lay(pairs.imag, signal, left + half, right)
    both = _band_of(pairs, half, low, high, count % 2 == 1)
    out = np.zeros((len(signal), count + _LAPS - 1, _HOP), np.float32)
    out[:, : half + _LAPS - 1] = both.real
    out[:, half:] += both.imag[:, : count - half + _LAPS - 1]
    for hop, factor in _edge_factors(1 + signal.shape[1] // _HOP).items():
        if left <= hop < left + out.shape[1]:
            out[:, hop - left] *= factor
    start = left * _HOP - _SIZE // 2
    return max(start, 0), out.reshape(len(signal), -1)[:, max(-start, 0) : signal.shape[1] - start]


def _band_of(pairs: Any, count: int, low: int, high: int, lone: bool) -> Any:
    """Bins low to high - 1 of a complex signal, as (channels, hops, 128); ``lone``: the last frame has no partner."""
    import numpy as np
    from scipy import fft

    analysis, synthesis = _twin_windows()
    frames = _frames(pairs.view(np.float32), 2)
    out = np.zeros((len(pairs), count + _LAPS - 1, 2 * _HOP), np.float32)
    scratch = np.empty((len(pairs), min(_FRAMES, count), 2 * _SIZE), np.float32)
    for first in range(0, count, _FRAMES):
        last = min(first + _FRAMES, count)
        grains = np.multiply(frames[:, first:last], analysis, out=scratch[:, : last - first])
        if lone and last == count:
            grains[:, -1, 1::2] = 0
        if high - low < _BINS:
            spectrum = fft.fft(grains.view(np.complex64), axis=-1, overwrite_x=True)
            spectrum[..., :low], spectrum[..., high : _SIZE + 1 - high], spectrum[..., _SIZE + 1 - low :] = 0, 0, 0
            grains = fft.ifft(spectrum, axis=-1, overwrite_x=True).view(np.float32)
        grains *= synthesis
        for lap in range(_LAPS):
            out[:, first + lap : last + lap] += grains[:, :, 2 * lap * _HOP : 2 * (lap + 1) * _HOP]
    return out.view(np.complex64)


@lru_cache(maxsize=64)
def _edge_factors(count: int) -> dict[int, Any]:
    """For the first and last three hops, where frames are missing: 1.5 over the sum of the squared windows there."""
    import numpy as np

    laps, hops = np.square(_window()).reshape(_LAPS, _HOP), count + _LAPS - 1
    edges = {*range(min(_LAPS - 1, hops)), *range(max(0, hops - _LAPS + 1), hops)}
    sums = {hop: laps[max(0, hop - count + 1) : hop + 1].sum(axis=0) for hop in edges}
    # In the outermost half frame, which is cut off, the sum is zero.
    return {hop: 1.5 / np.maximum(total, np.float32(1e-6)) for hop, total in sums.items()}


@lru_cache(maxsize=1)
def _window() -> Any:
    """The periodic Hann window, float32."""
    import numpy as np

    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_SIZE) / _SIZE)).astype(np.float32)


@lru_cache(maxsize=1)
def _twin_windows() -> tuple[Any, Any]:
    """The window for interleaved real and imaginary parts, and the same over 1.5, the sum of four squared laps."""
    import numpy as np

    twin = np.repeat(_window(), 2)
    return twin, twin / np.float32(1.5)
