"""Media of requests: every format and rate that is allowed, and a named refusal for everything else."""

import io
import struct
import zlib

import numpy as np
import pytest

from chaos_mm.target import front_end, media
from chaos_mm.target.refusal import Refusal
from tests.target.sounds import picture, picture_file, sound_file, speech

WINDOW = front_end.WINDOW_SAMPLES


def refused(work: object, *values: object) -> str:
    assert callable(work)
    with pytest.raises(Refusal) as caught:
        work(*values)
    assert caught.value.status == 400
    return str(caught.value)


@pytest.mark.parametrize(
    ("file_format", "options"), [("PNG", {}), ("JPEG", {"quality": 90}), ("WEBP", {"quality": 90})]
)
def test_pictures_of_every_format_look_alike(file_format: str, options: dict[str, int]) -> None:
    made = picture("4072")
    frame = media.read_picture(picture_file(made, file_format, **options))
    assert np.abs(frame.astype(int) - front_end.picture_pixels(made)).mean() < 4


@pytest.mark.parametrize("data", [b"", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"%PDF-1.4", b"\xff\xd8\xff\xe0" + b"\0" * 50])
def test_no_picture_is_refused(data: bytes) -> None:
    assert "image" in refused(media.read_picture, data)


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP"])
def test_cut_and_scrambled_pictures_never_crash(file_format: str) -> None:
    whole = picture_file(picture("4072"), file_format)
    rng, refusals = np.random.default_rng(3), 0
    for _ in range(40):
        broken = bytearray(whole[: rng.integers(1, len(whole))])
        for place in rng.integers(0, len(broken), 5):
            broken[place] = rng.integers(0, 256)
        try:
            assert media.read_picture(bytes(broken)).shape == (64, 96, 3)
        except Refusal:
            refusals += 1
    assert refusals


def png_bomb(width: int, height: int) -> bytes:
    """A PNG whose head promises ``width`` x ``height`` pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    )


def test_a_bomb_is_refused_from_its_head() -> None:
    assert "40,000,000" in refused(media.read_picture, png_bomb(30_000, 30_000))  # Pillow's own limit
    assert "8000x8000" in refused(media.read_picture, png_bomb(8_000, 8_000))


@pytest.mark.parametrize(
    "url", ["http://localhost/a.png", "file:///etc/hosts", "data:text/plain;base64,AAAA", "data:image/png,abc", ""]
)
def test_only_data_uris_of_images(url: str) -> None:
    assert "data URI" in refused(media.picture_bytes, url)


def test_broken_base64_is_named() -> None:
    assert "image_url is not valid base64" in refused(media.picture_bytes, "data:image/png;base64,@@@")
    assert "input_audio" in refused(media.decode_base64, "a", "input_audio")


@pytest.mark.parametrize("file_format", ["WAV", "FLAC", "MP3", "OGG"])
@pytest.mark.parametrize("rate", [16_000, 44_100, 8_000])
@pytest.mark.parametrize("channels", [1, 2])
def test_speech_sounds_alike_in_every_format_rate_and_channels(file_format: str, rate: int, channels: int) -> None:
    import soxr

    clean = speech("407")
    other = soxr.resample(clean, 16_000, rate)
    data = sound_file(np.stack([other] * channels, 1), rate, file_format)
    heard = media.read_speech(data)
    low_bands = slice(0, 25)  # below 4 kHz, which every rate keeps
    loud = front_end.log_mel(clean)[low_bands] > 0.3
    assert np.abs(heard[low_bands] - front_end.log_mel(clean)[low_bands])[loud].mean() < 0.12


def test_the_whole_window_passes_and_one_sample_more_does_not() -> None:
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, WINDOW + 1)
    assert media.read_speech(sound_file(noise[:WINDOW])).shape == (40, 160)
    message = refused(media.read_speech, sound_file(noise))
    assert "2.57 s long" in message and "at most 2.56 s" in message


def test_silence_at_the_ends_does_not_count() -> None:
    words = speech("123")
    padded = np.concatenate([np.zeros(20_000), words, np.zeros(30_000)])
    kept = media.fit_window(padded)
    assert len(kept) <= WINDOW
    assert np.abs(kept).sum() == pytest.approx(np.abs(words).sum(), rel=1e-3)


def test_very_long_speech_is_refused_unread() -> None:
    assert "hears at most" in refused(media.read_speech, sound_file(np.zeros(16_000 * 61), file_format="FLAC"))


def test_all_silence_is_heard_as_silence() -> None:
    assert np.isfinite(media.read_speech(sound_file(np.zeros(50_000)))).all()


@pytest.mark.parametrize("data", [b"", b"RIFF", b"fLaC\0\0", b"ID3\4" + b"\0" * 30, b"\x89PNG" * 20])
def test_no_sound_is_refused(data: bytes) -> None:
    assert "audio" in refused(media.read_speech, data)


def test_no_samples_and_odd_rates_are_refused() -> None:
    assert "no samples" in refused(media.read_speech, sound_file(np.zeros(0)))
    assert "1000 Hz" in refused(media.read_speech, sound_file(np.zeros(100), rate=1000))


def test_not_finite_and_huge_samples_stay_finite() -> None:
    import soundfile

    wild = np.sin(np.arange(20_000) * 0.3).astype(np.float32)
    wild[100], wild[200], wild[300] = np.nan, np.inf, 1e30
    stream = io.BytesIO()
    soundfile.write(stream, wild, 16_000, format="WAV", subtype="FLOAT")
    assert np.isfinite(media.read_speech(stream.getvalue())).all()


@pytest.mark.parametrize("file_format", ["WAV", "FLAC", "MP3"])
def test_cut_and_scrambled_sound_never_crashes(file_format: str) -> None:
    whole = sound_file(speech("40"), file_format=file_format)
    rng, refusals = np.random.default_rng(4), 0
    for round_ in range(30):
        broken = bytearray(whole[: rng.integers(1, len(whole))])
        for place in rng.integers(0, len(broken) if round_ % 2 else min(12, len(broken)), 5):  # or in the head
            broken[place] = rng.integers(0, 256)
        try:
            assert np.isfinite(media.read_speech(bytes(broken))).all()
        except Refusal:
            refusals += 1
    assert refusals
