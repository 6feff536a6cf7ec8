"""Sound and picture files for the target's tests."""

import base64
import io
from importlib import resources
from typing import Any

import numpy as np
import soundfile
from PIL import Image, ImageDraw, ImageFont

RATE = 16_000


def sound_file(samples: Any, rate: int = RATE, file_format: str = "WAV") -> bytes:
    """An encoded sound file of float samples (n,) or (n, channels)."""
    stream = io.BytesIO()
    subtype = {"MP3": "MPEG_LAYER_III", "OGG": "VORBIS"}.get(file_format, "PCM_16")
    soundfile.write(stream, samples, rate, format=file_format, subtype=subtype)
    return stream.getvalue()


def speech(code: str, voice: str = "en-us", lead_in: float = 0.05, gap: float = 0.06) -> Any:
    """A code spoken with the clips that the load ships, float32 (n,) at 16 kHz."""
    pieces = [np.zeros(int(lead_in * RATE), np.float32)]
    for digit in code:
        data = resources.files("chaos_mm.load").joinpath("clips", f"{voice}_{digit}.flac").read_bytes()
        pieces += [soundfile.read(io.BytesIO(data), dtype="float32")[0], np.zeros(int(gap * RATE), np.float32)]
    return np.concatenate(pieces[:-1])


def picture(code: str, size: tuple[int, int] = (192, 128), ink: str = "black", ground: str = "white") -> Image.Image:
    """A code in Pillow's built-in font, in the middle."""
    made = Image.new("RGB", size, ground)
    font = ImageFont.load_default(int(min(size[1] * 0.4, size[0] * 0.27)))
    ImageDraw.Draw(made).text((size[0] // 2, size[1] // 2), code, font=font, fill=ink, anchor="mm")
    return made


def picture_file(made: Image.Image, file_format: str = "PNG", **options: Any) -> bytes:
    """The picture encoded."""
    stream = io.BytesIO()
    made.save(stream, file_format, **options)
    return stream.getvalue()


def image_part(data: bytes, kind: str = "png") -> dict[str, Any]:
    """A content part with a picture."""
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{base64.b64encode(data).decode()}"}}


def audio_part(data: bytes, kind: str = "wav") -> dict[str, Any]:
    """A content part with speech."""
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": kind}}


def chat_body(content: Any, **options: Any) -> dict[str, Any]:
    """A chat request of one user message."""
    return {"model": "chaos-mm-tiny", "messages": [{"role": "user", "content": content}], **options}
