"""Open a clip by what its bytes say, never by its declared format, after checks on the header alone."""

import numpy as np

from chaos_mm.proxy.media.coded import CodedWav, Flac, Mp3
from chaos_mm.proxy.media.medium import Clip
from chaos_mm.proxy.media.wav import Wav, read_layout
from chaos_mm.proxy.policy import Limits, Undecodable


def open_audio(data: bytes, limits: Limits) -> Clip:
    """Decode a WAV, FLAC or MP3.

    Raises Undecodable: unknown_format, broken_media, too_much_audio, non_finite, no_codec.
    """
    try:
        clip = _opened(data, limits)
    except Undecodable:
        raise
    except Exception:  # struct.error, LibsndfileError, ValueError: a damaged file ends here in many ways
        raise Undecodable("broken_media") from None
    if not np.isfinite(clip.value.samples).all():
        raise Undecodable("non_finite")
    return clip


def _opened(data: bytes, limits: Limits) -> Clip:
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        layout = read_layout(data)
        return CodedWav(data, limits) if layout is None else Wav(data, layout, limits)
    if data[:4] == b"fLaC":
        return Flac(data, limits)
    if data[:3] == b"ID3" or (len(data) > 1 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2):
        return Mp3(data, limits)  # a tag, or the sync word of layer III
    raise Undecodable("unknown_format")
