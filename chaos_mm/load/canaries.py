"""Canaries: requests whose right answer is known, each with its own code in the picture, the speech or the text."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos_mm.core.errors import BadRequest
from chaos_mm.core.rng import Rng
from chaos_mm.load import pictures, speech
from chaos_mm.load.codes import Codes, near_miss
from chaos_mm.load.wording import DEMO, PADDING, Wordings
from chaos_mm.sli.records import KINDS, MODALITY

DEFAULT_MIX: Mapping[str, float] = {"image": 0.3, "colour": 0.05, "audio": 0.25, "text": 0.2, "agreement": 0.2}
PADDING_PLACES = ("after", "before")


@dataclass(frozen=True, slots=True)
class Canary:
    """One question: OpenAI content parts, the right answer, and the code it carries (what a leak would show)."""

    kind: str
    code: str
    expected: str
    question: str
    content: list[dict[str, Any]] = field(repr=False)

    @property
    def modality(self) -> str:
        """The word that SLIs filter by."""
        return MODALITY[self.kind]


@dataclass(frozen=True, slots=True)
class CanarySettings:
    """How canaries look. ``speech_window_seconds`` 0 lets speech be as long as it is; ``padding`` counts sentences.

    ``picture_size`` is what the demo target sees: it shrinks a larger picture, and noise averages out with it.
    """

    picture_size: tuple[int, int] = (96, 64)
    picture_format: str = "jpeg"
    picture_quality: int = 90
    speech_format: str = "wav"
    lead_in_seconds: float = 0.0
    speech_window_seconds: float = speech.DEMO_WINDOW_SECONDS
    voices: tuple[str, ...] = speech.VOICES
    wordings: Wordings = field(default_factory=lambda: DEMO)
    padding: int = 0
    padding_place: str = "after"

    def __post_init__(self) -> None:
        _one_of("picture format", self.picture_format, tuple(pictures.FORMATS))
        _one_of("speech format", self.speech_format, speech.FORMATS)
        _one_of("padding place", self.padding_place, PADDING_PLACES)
        for voice in self.voices:
            _one_of("voice", voice, speech.VOICES)
        longest = speech.longest_seconds(self.lead_in_seconds)
        if self.speech_window_seconds and longest > self.speech_window_seconds:
            raise BadRequest(
                f"speech window is {self.speech_window_seconds} s; with a lead-in of {self.lead_in_seconds} s a code "
                f"lasts up to {longest:.2f} s: widen the window, or 0 for none"
            )


class CanaryMaker:
    """Makes the n-th canary of a seeded sequence; the same seed, name and order give the same requests, byte for byte.

    ``set_size`` above 0 makes the sequence repeat: canary n is canary n mod ``set_size`` again (canary_reference
    ``baseline``). Not thread-safe.
    """

    def __init__(self, settings: CanarySettings, seed: int, name: str, set_size: int = 0) -> None:
        self.settings, self._seed, self._name, self._set_size = settings, seed, name, set_size
        self._codes = Codes(seed, name)
        self._set: list[str] = [self._codes.next() for _ in range(set_size)]

    def index(self, n: int) -> int:
        """Which canary of the sequence the n-th is."""
        return n % self._set_size if self._set_size else n

    def kind(self, n: int, mix: Mapping[str, float]) -> str:
        """The kind of the n-th canary, drawn from a mix that ``read_mix`` made; repeats as the sequence does."""
        return choose(mix, Rng.derive(self._seed, f"{self._name}-{self.index(n)}", "mix", "canary").random())

    def make(self, n: int, kind: str) -> Canary:
        """The n-th canary, of that kind."""
        _one_of("kind", kind, KINDS)
        index = self.index(n)
        rng = Rng.derive(self._seed, f"{self._name}-{index}", kind, "canary")
        code = self._set[index] if self._set_size else self._codes.next()
        question = rng.choice(self.settings.wordings[kind]).replace("{}", " ".join(code))
        parts, expected = self._media(kind, code, rng)
        text = _padded(question, self.settings, rng)
        return Canary(kind, code, expected, question, [*parts, {"type": "text", "text": text}])

    def _media(self, kind: str, code: str, rng: Rng) -> tuple[list[dict[str, Any]], str]:
        """(media parts, the right answer)."""
        if kind == "text":
            return [], code
        if kind == "audio":
            return [self._speech(code, rng)], code
        colour = rng.choice(tuple(pictures.COLOURS))
        picture = self._picture(code, colour, rng)
        if kind != "agreement":
            return [picture], colour if kind == "colour" else code
        same = rng.random() < 0.5
        return [picture, self._speech(code if same else near_miss(code, rng), rng)], "yes" if same else "no"

    def _picture(self, code: str, colour: str, rng: Rng) -> dict[str, Any]:
        own = self.settings
        drawn = pictures.draw(code, colour, own.picture_size, rng)
        data = base64.b64encode(pictures.encode(drawn, own.picture_format, own.picture_quality)).decode()
        return {"type": "image_url", "image_url": {"url": f"data:{pictures.FORMATS[own.picture_format]};base64,{data}"}}

    def _speech(self, code: str, rng: Rng) -> dict[str, Any]:
        own = self.settings
        samples = speech.speak(
            code,
            rng.choice(own.voices),
            rng,
            lead_in_seconds=own.lead_in_seconds,
            window_seconds=own.speech_window_seconds,
        )
        data = base64.b64encode(speech.encode(samples, own.speech_format)).decode()
        return {"type": "input_audio", "input_audio": {"data": data, "format": own.speech_format}}


def read_mix(found: object) -> dict[str, float]:
    """Weights by kind from an object or from "image=0.5,audio=0.5", scaled to sum to 1. Raises BadRequest."""
    entries = _entries(found) if isinstance(found, str) else found
    if not isinstance(entries, Mapping) or not entries:
        raise BadRequest(f"mix is {found!r:.80}; allowed: weights by kind, of {', '.join(KINDS)}")
    for kind, weight in entries.items():
        _one_of("mix", kind, KINDS)
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight <= 1e6:
            raise BadRequest(f"mix {kind} is {weight!r:.40}; allowed: a number from 0 to 1e6")
    total = sum(entries.values())
    if total <= 0:
        raise BadRequest("mix has no weight above 0")
    return {kind: weight / total for kind, weight in entries.items() if weight}


def choose(mix: Mapping[str, float], draw: float) -> str:
    """The kind at ``draw`` (0 … 1) of a mix that sums to 1."""
    for kind, weight in mix.items():
        draw -= weight
        if draw < 0:
            return kind
    return [*mix][-1]


def _entries(text: str) -> dict[str, float]:
    pairs = [entry.partition("=") for entry in text.split(",") if entry.strip()]
    try:
        return {kind.strip(): float(weight) if equals else 1.0 for kind, equals, weight in pairs}
    except ValueError:
        raise BadRequest(f'mix is {text!r:.80}; allowed: "kind=weight,kind=weight"') from None


def _padded(question: str, settings: CanarySettings, rng: Rng) -> str:
    sentences = [rng.choice(PADDING) for _ in range(settings.padding)]
    texts: Sequence[str] = [question, *sentences] if settings.padding_place == "after" else [*sentences, question]
    return ". ".join(texts)


def _one_of(what: str, given: object, allowed: Sequence[str]) -> None:
    if given not in allowed:
        raise BadRequest(f"{what} is {given!r:.40}; allowed: {', '.join(allowed)}")
