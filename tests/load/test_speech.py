"""Spoken codes fit the window, start after the lead-in, and hold the digits in order."""

import io
from importlib import resources

import numpy as np
import pytest
import soundfile

from chaos_mm.core.errors import BadRequest
from chaos_mm.core.rng import Rng
from chaos_mm.load import speech


def rng(n: int = 0) -> Rng:
    return Rng.derive(7, str(n), "speech", "test")


def clip(voice: str, digit: str) -> np.ndarray:
    data = resources.files("chaos_mm.load").joinpath("clips", f"{voice}_{digit}.flac").read_bytes()
    samples, rate = soundfile.read(io.BytesIO(data), dtype="float32")
    assert rate == 16_000
    return np.asarray(samples)


def place_of(wanted: np.ndarray, samples: np.ndarray) -> tuple[int, float]:
    """Where a clip correlates best, and its normalised correlation there (an oracle that knows nothing of gaps)."""
    scores = np.correlate(samples, wanted, "valid")
    best = int(np.argmax(scores))
    part = samples[best : best + len(wanted)]
    return best, float(scores[best] / (np.linalg.norm(part) * np.linalg.norm(wanted)))


def test_the_digits_are_there_in_order() -> None:
    samples = speech.speak("4072", "joe_6", rng())
    places = [place_of(clip("joe_6", digit), samples) for digit in "4072"]
    assert [place for place, _ in places] == sorted(place for place, _ in places)
    assert min(score for _, score in places) > 0.99


@pytest.mark.parametrize("voice", speech.VOICES)
def test_every_code_fits_the_demo_window(voice: str) -> None:
    for n, code in enumerate(f"{digit}" * 4 for digit in range(10)):
        samples = speech.speak(code, voice, rng(n), window_seconds=speech.DEMO_WINDOW_SECONDS)
        assert samples.dtype == np.float32
        assert len(samples) <= round(speech.DEMO_WINDOW_SECONDS * speech.RATE)
        assert 0.05 < np.abs(samples).max() <= 1.0


def test_the_longest_code_is_known() -> None:
    longest = max(len(speech.speak(f"{d}" * 4, v, rng(n))) for n in range(5) for v in speech.VOICES for d in range(10))
    assert 0.9 * speech.longest_seconds() < longest / speech.RATE <= speech.longest_seconds()


def test_a_lead_in_is_silence() -> None:
    samples = speech.speak("4072", "en-us", rng(), lead_in_seconds=0.6)
    assert not samples[: round(0.6 * speech.RATE)].any()
    assert samples[round(0.6 * speech.RATE) :][:1600].any()


def test_what_does_not_fit_is_refused_with_both_lengths() -> None:
    with pytest.raises(BadRequest, match=r"speech of \d\.\d\d s does not fit the window of 2.56 s"):
        speech.speak("5050", "en-us_f2", rng(), lead_in_seconds=0.6, window_seconds=2.56)


@pytest.mark.parametrize(("file_format", "name"), [("wav", "WAV"), ("flac", "FLAC"), ("mp3", "MP3")])
def test_files_are_what_they_say(file_format: str, name: str) -> None:
    samples = speech.speak("4072", "en-gb_m3", rng())
    data = speech.encode(samples, file_format)
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        assert (file.format, file.samplerate, file.channels) == (name, 16_000, 1)
        again = file.read(dtype="float32")
    if file_format != "mp3":
        assert np.abs(again[: len(samples)] - samples).max() < 1e-4
    assert place_of(clip("en-gb_m3", "7"), again)[1] > 0.95


def test_the_same_draw_gives_the_same_sound() -> None:
    assert np.array_equal(speech.speak("4072", "en-us", rng(3)), speech.speak("4072", "en-us", rng(3)))
    assert not np.array_equal(
        speech.speak("4072", "en-us", rng(3))[:8000], speech.speak("4072", "en-us", rng(4))[:8000]
    )


def test_the_clip_bank_ships_with_its_licence() -> None:
    folder = resources.files("chaos_mm.load").joinpath("clips")
    names = {entry.name for entry in folder.iterdir()}
    assert {f"{voice}_{digit}.flac" for voice in speech.VOICES for digit in range(10)} | {"README.md"} == names
    assert "Licence" in folder.joinpath("README.md").read_text()
