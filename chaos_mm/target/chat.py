"""Reading a chat request: OpenAI's JSON into text, at most one picture and one recording, and options."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from chaos_mm.target import media
from chaos_mm.target.refusal import Refusal

MAX_TOP_LOGPROBS = 20
DEFAULT_MAX_TOKENS = 16
ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True)
class ChatRequest:
    """A chat request that is well formed; media still encoded.

    The model decodes greedily: ``temperature``, ``top_p`` and ``seed`` are taken and change nothing.
    """

    model: str
    text: str = field(repr=False)
    picture: bytes | None = field(default=None, repr=False)
    speech: bytes | None = field(default=None, repr=False)
    max_tokens: int = DEFAULT_MAX_TOKENS
    stream: bool = False
    include_usage: bool = False
    logprobs: int | None = None
    """None: none asked; 0-20: that many alternatives a token."""


def read_json(body: bytes) -> dict[str, Any]:
    """A JSON object. Raises Refusal."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(f"body is not JSON: {type(error).__name__}") from error
    if not isinstance(value, dict):
        raise Refusal(f"body is a JSON {type(value).__name__}; an object is needed")
    return value


def read_chat(body: bytes) -> ChatRequest:
    """Parse a request to ``/v1/chat/completions``. Raises Refusal naming the field that is wrong."""
    fields = read_json(body)
    parts = _Parts()
    parts.read_messages(_typed(fields, "messages", list, None))
    if fields.get("n") not in (None, 1):
        raise Refusal(f"n is {fields['n']!r}; this model gives one answer", 400, "n")
    if fields.get("stop"):
        raise Refusal("stop is not supported: answers are a few words", 400, "stop")
    options = _typed(fields, "stream_options", dict, {})
    return ChatRequest(
        model=_typed(fields, "model", str, ""),
        text=" ".join(parts.texts),
        picture=parts.picture,
        speech=parts.speech,
        max_tokens=_max_tokens(fields),
        stream=_typed(fields, "stream", bool, False),
        include_usage=_typed(options, "include_usage", bool, False),
        logprobs=_logprobs(fields),
    )


def _typed(fields: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    value = fields.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Refusal(f"{name} is {_shown(value)}; {kind.__name__} is needed", 400, name)
    if isinstance(value, str):
        check_text(value, name)
    return value


def check_text(text: str, name: str) -> None:
    """Raise Refusal when a field's text holds a lone surrogate, as JSON may: such a text cannot be tokenised."""
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise Refusal(f"{name} is no valid Unicode text: it holds a lone surrogate", 400, name)


def _shown(value: Any) -> str:
    """A value's type, and the value itself only where it cannot be a user's content."""
    return repr(value) if isinstance(value, int | float | None) else f"of type {type(value).__name__}"


def _max_tokens(fields: Mapping[str, Any]) -> int:
    name = "max_completion_tokens" if fields.get("max_completion_tokens") is not None else "max_tokens"
    value: int = _typed(fields, name, int, DEFAULT_MAX_TOKENS)
    if value < 1:
        raise Refusal(f"{name} is {value}; at least 1 is needed", 400, name)
    return value


def _logprobs(fields: Mapping[str, Any]) -> int | None:
    top: int = _typed(fields, "top_logprobs", int, 0)
    if not 0 <= top <= MAX_TOP_LOGPROBS:
        raise Refusal(f"top_logprobs is {top}; allowed: 0-{MAX_TOP_LOGPROBS}", 400, "top_logprobs")
    return top if _typed(fields, "logprobs", bool, False) else None


class _Parts:
    """Collects what all messages hold."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.picture: bytes | None = None
        self.speech: bytes | None = None

    def read_messages(self, messages: list[Any]) -> None:
        if not messages:
            raise Refusal("messages is empty; at least one is needed", 400, "messages")
        for message in messages:
            if not isinstance(message, dict) or message.get("role") not in ROLES:
                raise Refusal(f"a message needs a role, one of {', '.join(ROLES)}", 400, "messages")
            for part in _content(message.get("content")):
                self._read_part(part)

    def _read_part(self, part: Mapping[str, Any]) -> None:
        kind = part.get("type")
        if kind == "text":
            self.texts.append(_typed(part, "text", str, None))
        elif kind == "image_url":
            self._once("image", self.picture)
            holder = part.get("image_url")
            holder = {"url": holder} if isinstance(holder, str) else _typed(part, "image_url", dict, None)
            self.picture = media.picture_bytes(_typed(holder, "url", str, None))
        elif kind == "input_audio":
            self._once("audio", self.speech)
            self.speech = _speech_bytes(_typed(part, "input_audio", dict, None))
        else:
            raise Refusal("a content part's type is not one of text, image_url, input_audio", 400, "messages")

    def _once(self, name: str, present: bytes | None) -> None:
        if present is not None:
            raise Refusal(f"At most 1 {name}(s) may be provided in one prompt.", 400, "messages")


def _content(content: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    elif isinstance(content, list) and all(isinstance(part, dict) for part in content):
        yield from content
    elif content is not None:
        raise Refusal("content is neither a string nor a list of parts", 400, "messages")


def _speech_bytes(holder: Mapping[str, Any]) -> bytes:
    if holder.get("format") not in media.SPEECH_FORMATS:
        raise Refusal(f"input_audio.format is not one of {', '.join(media.SPEECH_FORMATS)}", 400, "input_audio")
    return media.decode_base64(_typed(holder, "data", str, None), "input_audio")
