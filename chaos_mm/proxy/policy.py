"""What the proxy does with what it cannot decode: declared, counted by reason, never a crash.

The vocabulary of reasons is fixed so that it can label a metric; no reason quotes anything of a request.
"""

from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, Literal

OnUndecodable = Literal["pass", "refuse"]

REASONS: Final = {
    "content_encoding": "the body is compressed (Content-Encoding)",
    "body_too_large": "the body is above --max-body-bytes",
    "memory_budget": "too many bodies are being held at once (--max-held-bytes)",
    "invalid_json": "the body is not strict JSON",
    "not_understood": "the body is not what this path takes",
    "bad_data_uri": "the URL is no base64 data URI",
    "bad_base64": "the base64 is broken",
    "remote_media": "the medium is a remote URL, which passes untouched",
    "unknown_format": "the medium's format is not one of those decoded here",
    "broken_media": "the medium is damaged",
    "too_many_pixels": "the picture is above --max-pixels",
    "too_much_audio": "the clip is above --max-audio-seconds",
    "animated": "the picture has several frames",
    "non_finite": "the clip holds NaN or infinity",
    "no_codec": "a codec is not installed here",
    "not_encodable": "what the fault returned cannot be written in the source's format",
}
_TOO_LARGE: Final = frozenset({"body_too_large", "memory_budget", "too_many_pixels", "too_much_audio"})


class Undecodable(Exception):
    """A body or a part that the proxy cannot perturb; `reason` is one of REASONS."""

    def __init__(self, reason: str) -> None:
        super().__init__(REASONS[reason])
        self.reason = reason


class Refused(Exception):
    """By policy, the request is answered here instead of being forwarded."""

    def __init__(self, reason: str, part: str = "") -> None:
        super().__init__(f"chaos-mm proxy (--on-undecodable refuse): {REASONS[reason]}")
        self.reason, self.part = reason, part
        self.status = 413 if reason in _TOO_LARGE else 400


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what one request may cost; bytes, pixels and seconds."""

    max_body_bytes: int = 64 * 1024**2
    max_held_bytes: int = 512 * 1024**2
    max_pixels: int = 50_000_000
    max_audio_seconds: float = 600.0


def whereabouts(error: BaseException) -> str:
    """An error's class and line for the log; never its text, which may quote a user's request."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    return f"{type(error).__name__} at {PurePath(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
