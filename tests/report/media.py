"""Real pictures and sound of a canary before and after a fault, made by the faults themselves."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from PIL import Image

from chaos_mm.core.media import Audio
from chaos_mm.core.media import Image as Pixels
from chaos_mm.core.rng import Rng
from chaos_mm.faults.audio_spectral_mask import audio_spectral_mask
from chaos_mm.faults.image_noise import image_noise
from chaos_mm.load.pictures import draw
from chaos_mm.load.speech import RATE, speak

_ANCHORS = np.array([(8, 6, 28), (70, 18, 98), (150, 38, 98), (221, 81, 58), (252, 165, 10), (252, 250, 164)], float)


def pictures(folder: Path, sigma: float, seed: int = 3) -> dict[str, Any]:
    """Writes before and after as PNG below ``folder``/samples; returns what verdict.json says of them."""
    rng = Rng.derive(seed, f"cmm-sample-{seed}", "image-0", "image_noise")
    clean = draw("4071", "blue", (384, 256), rng)
    noisy, achieved = image_noise(Pixels(np.asarray(clean), "RGB"), rng, sigma=sigma)
    step = np.asarray(clean, float) - noisy.pixels
    psnr = 20 * np.log10(255 / max(1e-9, float(np.sqrt(np.mean(step * step)))))
    (folder / "samples").mkdir()
    clean.save(folder / "samples/image_noise-0-before.png")
    Image.fromarray(noisy.pixels).save(folder / "samples/image_noise-0-after.png")
    return {
        "lease": "image_noise",
        "fault": "image_noise",
        "kind": "image",
        "request_id": f"cmm-1c4fd7e20b91-{seed}-9f31c2aa",
        "before": "samples/image_noise-0-before.png",
        "after": "samples/image_noise-0-after.png",
        "achieved": {"psnr_db": round(psnr, 2), **achieved},
    }


def spectrograms(folder: Path, share: float, seed: int = 5) -> dict[str, Any]:
    """As ``pictures``: two spectrograms on one scale, and both clips as WAV."""
    rng = Rng.derive(seed, f"cmm-sample-{seed}", "audio-0", "audio_spectral_mask")
    clean = speak("2958", "en-us", rng, window_seconds=2.56)
    clean = np.pad(clean, (0, max(0, round(2.56 * RATE) - len(clean))))
    heard, achieved = audio_spectral_mask(Audio(clean[:, None], RATE), rng, share=share)
    names = {}
    (folder / "samples").mkdir()
    for key, clip in (("before", clean), ("after", heard.samples[:, 0])):
        names[key] = f"samples/audio_spectral_mask-0-{key}.png"
        (folder / names[key]).write_bytes(spectrogram(clip))
        names[f"media_{key}"] = f"samples/audio_spectral_mask-0-{key}.wav"
        soundfile.write(folder / names[f"media_{key}"], clip, RATE, subtype="PCM_16")
    return {
        "lease": "audio_spectral_mask",
        "fault": "audio_spectral_mask",
        "kind": "audio",
        "request_id": f"cmm-77aa01de3c44-{seed}-17be0d4c",
        "achieved": achieved,
        "axes": {"seconds": 2.56, "hz_max": 8000.0, "db_min": -80.0, "db_max": 0.0},
        **names,
    }


def spectrogram(clip: Any) -> bytes:
    """A PNG of the clip's power, 70 dB deep, low frequencies at the bottom."""
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(clip, 256), 512)[::64] * np.hanning(512)
    power = np.abs(np.fft.rfft(frames)) ** 2
    level = np.clip((10 * np.log10(power + 1e-9) + 50) / 70, 0, 1).T[::-1]
    at = level * (len(_ANCHORS) - 1)
    low = np.minimum(at.astype(int), len(_ANCHORS) - 2)
    colours = _ANCHORS[low] + (at - low)[..., None] * (_ANCHORS[low + 1] - _ANCHORS[low])
    out = io.BytesIO()
    Image.fromarray(colours.astype(np.uint8)).resize((640, 256)).save(out, "PNG")
    return out.getvalue()


def texts(folder: Path) -> dict[str, Any]:
    """As ``pictures``: a canary's prompt, and what was left of it."""
    prompt = "Here is a note for you. The code in it is 7316. Say the code in this note, digits only, nothing else."
    (folder / "samples").mkdir()
    for name, said in (("before", prompt), ("after", prompt.partition(", digits")[0])):
        (folder / f"samples/text_token_truncation-1-{name}.txt").write_text(said, encoding="utf-8")
    return {
        "lease": "text_token_truncation",
        "fault": "text_token_truncation",
        "kind": "text",
        "part": "messages[0]",
        "request_id": "cmm-3d0ef2b6c8aa-12-5b1fd0a7",
        "before": "samples/text_token_truncation-1-before.txt",
        "after": "samples/text_token_truncation-1-after.txt",
        "achieved": {"tokens_cut": 7.0},
    }
