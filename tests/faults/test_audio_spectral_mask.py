"""audio_spectral_mask against librosa's and scipy's full transforms, pure tones and closed forms."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal as scipy_signal

import chaos_mm
from chaos_mm.core.media import Audio
from chaos_mm.core.rng import Rng
from chaos_mm.faults.audio_spectral_mask import audio_spectral_mask
from tests.contract.samples import value_of

LSB = 1 / 32768
RATE = 16000
REGIONS = ("block", "time", "frequency")


class _Placed(Rng):
    """An Rng whose draws are given: where the hole lies, as a share of the room there is in time and in frequency."""

    def __init__(self, *draws: float) -> None:
        super().__init__(b"\0" * 32)
        self._draws = list(draws)

    def random(self) -> float:
        return self._draws.pop(0)


def _clip(samples: Any, rate: int = RATE) -> Audio:
    array = np.asarray(samples, np.float32)
    return Audio(array.reshape(len(array), -1), rate)


def _noise(frames: int, channels: int = 1, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(0, 0.1, (frames, channels)).astype(np.float32)


def _tone(hertz: float, seconds: float = 2.0) -> Any:
    return 0.3 * np.sin(2 * np.pi * hertz * np.arange(int(RATE * seconds)) / RATE)


def _documented_hole(frames: int, share: float, region: str, time: float, frequency: float) -> tuple[slice, slice]:
    """(bins, frames) of the hole as the documentation describes it."""
    count = 1 + frames // 128
    wide = max(1, round(count * {"block": math.sqrt(share), "time": share, "frequency": 1}[region]))
    tall = max(1, round(257 * {"block": math.sqrt(share), "time": 1, "frequency": share}[region]))
    left, low = int(time * (count - wide + 1)), int(frequency * (257 - tall + 1))
    return slice(low, low + tall), slice(left, left + wide)


def _by_librosa(samples: Any, hole: tuple[slice, slice]) -> Any:
    librosa = pytest.importorskip("librosa")
    spectrum = librosa.stft(samples, n_fft=512, hop_length=128)
    spectrum[hole] = 0
    return librosa.istft(spectrum, hop_length=128, n_fft=512, length=len(samples))


@pytest.mark.filterwarnings("ignore:n_fft=512 is too large")
@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("frames", [1, 127, 128, 129, 300, 512, 1000, 16000, 160000])
@pytest.mark.parametrize("place", [(0.0, 0.0), (0.37, 0.61), (0.9999, 0.9999)])
def test_equals_masking_the_full_transform_of_librosa(frames: int, region: str, place: tuple[float, float]):
    clip = _clip(_noise(frames))
    made = value_of(audio_spectral_mask(clip, _Placed(*place), share=0.4, region=region))
    wanted = _by_librosa(clip.samples[:, 0], _documented_hole(frames, 0.4, region, *place))
    assert abs(made.samples[:, 0] - wanted).max() < LSB / 10


@pytest.mark.parametrize("region", REGIONS)
def test_equals_masking_the_full_transform_of_scipy(region: str):
    clip = _clip(_noise(RATE))
    made = value_of(audio_spectral_mask(clip, _Placed(0.3, 0.2), share=0.2, region=region))
    options = {"window": "hann", "nperseg": 512, "noverlap": 384}
    spectrum = scipy_signal.stft(clip.samples[:, 0], **options)[2]
    spectrum[_documented_hole(RATE, 0.2, region, 0.3, 0.2)] = 0
    wanted = scipy_signal.istft(spectrum, **options)[1][:RATE]
    inner = slice(0, RATE - 512)  # scipy pads one frame more at the end
    assert abs(made.samples[inner, 0] - wanted[inner]).max() < LSB


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 6000), st.integers(1, 3), st.floats(0.001, 1), st.sampled_from(REGIONS), st.sampled_from([0.0, 6.0])
)
def test_length_rate_channels_and_evidence_for_any_clip(
    frames: int, channels: int, share: float, region: str, snr_db: float
):
    clip = _clip(_noise(frames, channels), 8000)
    rng = Rng.derive(1, "r", "0", "audio_spectral_mask")
    made = audio_spectral_mask(clip, rng, share=share, region=region, snr_db=snr_db)
    after = made.value
    assert after.rate == 8000 and after.samples.shape == (frames, channels) and after.samples.dtype == np.float32
    removed = np.square(clip.samples.astype(float) - after.samples).sum()
    wanted = 10 * math.log10(np.square(clip.samples.astype(float)).sum() / removed)
    assert made.achieved["snr_db"] == pytest.approx(wanted, abs=0.01)
    cells = made.achieved["masked_share"] * (1 + frames // 128) * 257
    assert round(cells) >= 1 and cells == pytest.approx(round(cells), abs=1e-6)


def test_every_channel_has_the_same_hole():
    left, right = _noise(9000, seed=1), _noise(9000, seed=2)
    both = value_of(audio_spectral_mask(_clip(np.hstack([left, right])), _Placed(0.4, 0.3), share=0.3))
    for channel, alone in enumerate((left, right)):
        single = value_of(audio_spectral_mask(_clip(alone), _Placed(0.4, 0.3), share=0.3))
        assert abs(both.samples[:, channel] - single.samples[:, 0]).max() < 1e-7


@pytest.mark.parametrize("region", REGIONS)
def test_white_noise_loses_the_share_of_its_energy(region: str):
    made = audio_spectral_mask(_clip(_noise(160000)), _Placed(0.5, 0.5), share=0.4, region=region)
    assert made.achieved["masked_share"] == pytest.approx(0.4, abs=0.003)
    assert made.achieved["snr_db"] == pytest.approx(-10 * math.log10(0.4), abs=0.15)


def test_a_band_takes_the_tones_within_and_leaves_the_others():
    inside, outside = _tone(1000), _tone(5000)
    mixed = _clip(inside + outside)
    # The lowest 40 % of the band reach from 0 to 3,200 Hz.
    made = value_of(audio_spectral_mask(mixed, _Placed(0.0, 0.0), share=0.4, region="frequency"))
    assert abs(made.samples[512:-512, 0] - outside[512:-512]).max() < 0.003


def test_a_span_is_silent_within_and_untouched_a_frame_away():
    clip = _clip(_noise(RATE))
    made = value_of(audio_spectral_mask(clip, _Placed(0.5, 0.0), share=0.4, region="time"))
    frames = _documented_hole(RATE, 0.4, "time", 0.5, 0.0)[1]
    first, last = frames.start * 128, (frames.stop - 1) * 128
    assert abs(made.samples[first + 128 : last - 128]).max() < LSB
    assert np.array_equal(made.samples[: first - 256], clip.samples[: first - 256])
    assert np.array_equal(made.samples[last + 256 :], clip.samples[last + 256 :])


def _chirps(seconds: float = 2.56) -> Any:
    """Half a clip of silence, then sweeps: most of the plane is empty, as with one spoken code in a window."""
    time = np.arange(int(RATE * seconds)) / RATE
    sweep = scipy_signal.chirp(time % 0.2, 200, 0.2, 3000) * (time > seconds / 2)
    return 0.4 * sweep + np.random.default_rng(3).normal(0, 1e-3, len(time))


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("wanted", [3.0, 6.0, 9.7, 15.0])
def test_the_hole_grows_until_the_ratio_is_reached_wherever_it_lies(region: str, wanted: float):
    clip = _clip(_chirps())
    for number in range(12):
        rng = Rng.derive(number, "r", "0", "audio_spectral_mask")
        made = audio_spectral_mask(clip, rng, share=1.0, region=region, snr_db=wanted)
        removed = np.square(clip.samples - made.value.samples).sum()
        snr = 10 * math.log10(np.square(clip.samples).sum() / removed)
        assert snr == pytest.approx(wanted, abs=1.0), (number, made.achieved)


def _spoken_codes(count: int) -> list[Audio]:
    """Four spoken digits each, with half a window of silence around: what the load sends."""
    soundfile = pytest.importorskip("soundfile")
    clips = Path(chaos_mm.__file__).parent / "load" / "clips"
    digits = [soundfile.read(clips / f"en-us_{digit}.flac", dtype="float32")[0] for digit in range(10)]
    codes = np.random.default_rng(6).integers(0, 10, (count, 4))
    return [_clip(np.pad(np.concatenate([digits[d] for d in code]), 6000)) for code in codes]


def test_on_speech_the_ratios_are_those_measured_for_random_holes():
    """Medians over 400 random holes in continuous synthetic speech, shares of 40 %: block 9.5 dB, time span 4.0 dB."""
    medians = {}
    for region in ("block", "time"):
        made = [
            audio_spectral_mask(clip, Rng.derive(n, "r", "0", "audio_spectral_mask"), share=0.4, region=region)
            for n, clip in enumerate(_spoken_codes(150))
        ]
        medians[region] = float(np.median([m.achieved["snr_db"] for m in made]))
    assert medians["block"] == pytest.approx(9.5, abs=1.5)
    assert medians["time"] == pytest.approx(4.0, abs=1.5)  # less here: the silence around is part of the plane


def test_the_hole_never_grows_beyond_its_share():
    clip = _clip(_noise(RATE))
    made = audio_spectral_mask(clip, _Placed(0.5, 0.5), share=0.1, snr_db=1.0)
    plain = audio_spectral_mask(clip, _Placed(0.5, 0.5), share=0.1)
    assert made.achieved == pytest.approx(plain.achieved)
    assert np.array_equal(made.value.samples, plain.value.samples)


def test_samples_newly_beyond_full_scale_are_reported():
    square = np.sign(np.sin(2 * np.pi * 220 * np.arange(RATE) / RATE))
    made = audio_spectral_mask(_clip(square), _Placed(0.0, 0.9999), share=0.8, region="frequency")
    beyond = float((abs(made.value.samples) > 1).mean())
    assert beyond > 0.05  # cutting a square wave's harmonics makes it overshoot
    assert made.achieved["clipped_share"] == pytest.approx(beyond)


@pytest.mark.parametrize("frames", [1, 100, RATE])
def test_silence_comes_back_as_it_is(frames: int):
    silence = _clip(np.zeros(frames))
    for snr_db in (0.0, 6.0):
        assert audio_spectral_mask(silence, _Placed(0.5, 0.5), share=0.5, snr_db=snr_db) is silence


def test_an_empty_clip_comes_back_as_it_is():
    empty = Audio(np.zeros((0, 1), np.float32), RATE)
    assert audio_spectral_mask(empty, _Placed(0.5, 0.5), share=0.5) is empty


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38])
def test_samples_that_are_no_numbers_are_refused(bad: float):
    samples = _noise(RATE)
    samples[777] = bad
    with pytest.raises(ValueError, match="not finite"):
        audio_spectral_mask(_clip(samples), _Placed(0.5, 0.5), share=0.5)


def test_presets_are_shares_of_the_plane():
    shares = [audio_spectral_mask.bind({}, severity)["share"] for severity in range(1, 6)]
    assert shares == [0.1, 0.2, 0.3, 0.4, 0.6]
