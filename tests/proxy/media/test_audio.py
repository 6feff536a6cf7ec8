"""Clips: coding, rate, channels, header chunks and length survive; libsndfile, a second reader, is the judge."""

import io
import struct

import numpy as np
import pytest
import soundfile

from chaos_mm.core.media import Audio
from chaos_mm.proxy.media.audio import open_audio
from chaos_mm.proxy.media.coded import compression_level
from chaos_mm.proxy.policy import Limits, Undecodable
from tests.proxy.media.samples import LIMITS, heard, hissing, tone, written

PCM = ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"]
CODED = ["ULAW", "ALAW", "IMA_ADPCM", "MS_ADPCM", "GSM610"]
STEP = {"PCM_U8": 2**-7, "PCM_S8": 2**-7, "PCM_16": 2**-15, "PCM_24": 2**-23, "PCM_32": 2**-22, "FLOAT": 0, "DOUBLE": 0}


def with_chunks(data: bytes) -> bytes:
    """A WAV with a LIST chunk before and an odd-sized chunk after its samples."""
    before, after = b"LIST\x06\0\0\0INFOhi", b"odd \x03\0\0\0abc\0"
    out = bytearray(data[:36] + before + data[36:] + after)
    struct.pack_into("<I", out, 4, len(out) - 8)
    return bytes(out)


@pytest.mark.parametrize("channels", [1, 2, 8])
@pytest.mark.parametrize(("kind", "subtype"), [("WAV", s) for s in PCM] + [("WAVEX", "PCM_24"), ("WAVEX", "FLOAT")])
def test_wav_keeps_every_byte_but_the_samples(kind: str, subtype: str, channels: int) -> None:
    data = written(tone(channels), kind, subtype)
    clip = open_audio(data, LIMITS)
    assert clip.encode(clip.value) == data
    value = hissing(clip.value)
    encoded = clip.encode(value)
    start = data.index(b"data") + 8
    assert encoded[:start] == data[:start]
    assert len(encoded) == len(data)
    samples, rate = heard(encoded)
    assert (rate, samples.shape) == (16000, value.samples.shape)
    assert np.abs(samples - value.samples).max() <= STEP[subtype] * 0.51 + 1e-9
    assert np.array_equal(clip.delivered(encoded, value).samples, samples.astype(np.float32))


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "PCM_32", "DOUBLE"])
def test_samples_that_a_fault_left_alone_are_bit_exact(subtype: str) -> None:
    data = written(np.random.default_rng(1).uniform(-1, 1, (1000, 1)), "WAV", subtype)
    clip = open_audio(data, LIMITS)
    samples = clip.value.samples.copy()
    samples[500:] = 0
    before = soundfile.read(io.BytesIO(data), dtype="int32" if subtype != "DOUBLE" else "float64")[0]
    after = soundfile.read(io.BytesIO(clip.encode(Audio(samples, 16000))), dtype=before.dtype)[0]
    assert np.array_equal(after[:500], before[:500])
    assert not after[500:].any()


def test_full_scale_is_clipped_not_wrapped() -> None:
    clip = open_audio(written(tone(), "WAV", "PCM_16"), LIMITS)
    loud = Audio(np.full((8000, 1), [2.0], np.float32) * np.where(np.arange(8000) % 2, 1, -1)[:, None], 16000)
    samples, _ = heard(clip.encode(Audio(loud.samples.astype(np.float32), 16000)))
    assert {samples.min(), samples.max()} == {-1.0, 32767 / 32768}


@pytest.mark.parametrize("claimed", [0xFFFFFFFF, 0, 10**9])
def test_a_header_that_lies_about_its_size_is_kept(claimed: int) -> None:
    data = bytearray(written(tone()))
    struct.pack_into("<I", data, 40, claimed)
    clip = open_audio(bytes(data), LIMITS)
    assert len(clip.value.samples) == 8000
    encoded = clip.encode(hissing(clip.value))
    assert encoded[:44] == data[:44]
    assert len(encoded) == len(data)


def test_half_a_sample_at_the_end_stays() -> None:
    data = written(tone())[:-1]
    clip = open_audio(data, LIMITS)
    assert len(clip.value.samples) == 7999
    encoded = clip.encode(hissing(clip.value))
    assert (len(encoded), encoded[-1]) == (len(data), data[-1])


def test_a_header_without_samples() -> None:
    clip = open_audio(written(tone())[:44], LIMITS)
    assert clip.value.samples.shape == (0, 1)
    assert clip.encode(clip.value) == written(tone())[:44]


@pytest.mark.parametrize("frames", [7777, 7778, 9001])
@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16"])
def test_another_length_mends_sizes_and_keeps_the_chunks_around(frames: int, subtype: str) -> None:
    data = with_chunks(written(tone(), "WAV", subtype))
    clip = open_audio(data, LIMITS)
    samples = np.resize(clip.value.samples, (frames, 1))
    encoded = clip.encode(Audio(samples, 16000))
    got, _ = heard(encoded)
    assert np.allclose(got, samples, atol=STEP[subtype])
    assert struct.unpack_from("<I", encoded, 4)[0] == len(encoded) - 8
    assert b"INFOhi" in encoded
    assert encoded.endswith(b"odd \x03\0\0\0abc\0")
    assert encoded.index(b"odd ") % 2 == 0


def test_another_rate_and_channel_count_are_written_true() -> None:
    clip = open_audio(written(tone(2), "WAV", "PCM_24"), LIMITS)
    encoded = clip.encode(Audio(np.ascontiguousarray(clip.value.samples[::2, :1]), 8000))
    info = soundfile.info(io.BytesIO(encoded))
    assert (info.samplerate, info.channels, info.frames, info.subtype) == (8000, 1, 4000, "PCM_24")


@pytest.mark.parametrize("subtype", CODED)
def test_other_wav_codings_stay_what_they_are(subtype: str) -> None:
    data = written(tone(), "WAV", subtype)
    clip = open_audio(data, LIMITS)
    encoded = clip.encode(hissing(clip.value))
    before, after = soundfile.info(io.BytesIO(data)), soundfile.info(io.BytesIO(encoded))
    assert (after.format, after.subtype, after.frames) == (before.format, subtype, before.frames)
    assert clip.achieved(encoded, clip.value)["snr_db"] == pytest.approx(
        10 * np.log10((heard(data)[0] ** 2).sum() / ((heard(data)[0] - heard(encoded)[0]) ** 2).sum()), abs=0.01
    )


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("subtype", ["PCM_S8", "PCM_16", "PCM_24"])
def test_flac_is_lossless_at_its_own_depth(subtype: str, channels: int) -> None:
    data = written(tone(channels), "FLAC", subtype)
    clip = open_audio(data, LIMITS)
    assert np.array_equal(heard(clip.encode(clip.value))[0], heard(data)[0])
    value = hissing(clip.value)
    encoded = clip.encode(value)
    assert soundfile.info(io.BytesIO(encoded)).subtype == subtype
    assert np.array_equal(clip.delivered(encoded, value).samples, heard(encoded)[0].astype(np.float32))
    assert np.abs(heard(encoded)[0] - value.samples).max() <= STEP[subtype] * 0.51


def test_flac_keeps_its_metadata_blocks() -> None:
    data = written(tone(), "FLAC")
    private = b"\x02\0\0\x08chaoTEST"
    first = 4 + 4 + int.from_bytes(data[5:8], "big")
    data = data[:first] + private + data[first:]
    clip = open_audio(data, LIMITS)
    encoded = clip.encode(hissing(clip.value))
    assert private in encoded
    assert heard(encoded)[0].shape == (8000, 1)


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 24000, 44100, 48000])
@pytest.mark.parametrize("channels", [1, 2])
def test_mp3_keeps_rate_length_and_an_id3_tag(rate: int, channels: int) -> None:
    tag = b"ID3\x04\0\0\0\0\0\x0b" + b"TIT2\0\0\0\x01\0\0x"
    data = tag + written(tone(channels, rate, 1.0), "MP3", "MPEG_LAYER_III", rate)
    clip = open_audio(data, LIMITS)
    value = hissing(clip.value, 0.05)
    encoded = clip.encode(value)
    assert encoded.startswith(tag)
    samples, got = heard(encoded)
    assert (got, samples.shape) == (rate, value.samples.shape)
    lag_free = np.corrcoef(samples[:, 0], value.samples[:, 0])[0, 1]
    assert lag_free > 0.95
    assert clip.achieved(encoded, value)["snr_db"] > 5


@pytest.mark.parametrize("kilobits", [64, 128, 320])
def test_mp3_keeps_a_constant_bit_rate(kilobits: int) -> None:
    buffer, level = io.BytesIO(), (320 - kilobits) / 288
    options = {"compression_level": level, "bitrate_mode": "CONSTANT"}
    soundfile.write(buffer, tone(2, 44100, 4.0), 44100, format="MP3", subtype="MPEG_LAYER_III", **options)
    clip = open_audio(buffer.getvalue(), LIMITS)
    assert len(clip.encode(clip.value)) == pytest.approx(len(buffer.getvalue()), rel=0.05)


def test_compression_levels_are_within_libsndfiles_scale() -> None:
    levels = [compression_level(k, r) for r in (8000, 16000, 44100) for k in (0, 8, 64, 200, 1000)]
    assert 0 <= min(levels) <= max(levels) < 1


def test_silence_has_no_ratio_and_no_damage_has_the_ceiling() -> None:
    clip = open_audio(written(np.zeros(100)), LIMITS)
    assert clip.damage(hissing(clip.value)) == {}
    clip = open_audio(written(tone()), LIMITS)
    assert clip.damage(clip.value) == {"snr_db": 120.0}


@pytest.mark.parametrize("subtype", ["PCM_16", "ULAW"])
def test_length_is_bounded_in_seconds_and_in_samples(subtype: str) -> None:
    data = written(np.zeros((2000, 2)), "WAV", subtype)
    with pytest.raises(Undecodable) as caught:
        open_audio(data, Limits(max_audio_seconds=0.1))
    assert caught.value.reason == "too_much_audio"
    lying = bytearray(written(np.zeros(30_000), "WAV", subtype))
    struct.pack_into("<I", lying, 24, 4_000_000_000)  # 8 µs, says the header
    with pytest.raises(Undecodable):
        open_audio(bytes(lying), Limits(max_audio_seconds=0.1))


@pytest.mark.parametrize(
    "samples", [np.zeros((4, 1)), np.zeros(4, np.float32), np.zeros((4, 0), np.float32)], ids=["f64", "1d", "none"]
)
def test_what_a_fault_must_not_return(samples: object) -> None:
    with pytest.raises(Undecodable) as caught:
        open_audio(written(tone()), LIMITS).encode(Audio(samples, 16000))
    assert caught.value.reason == "not_encodable"
