"""Canaries: the right content, the right answer, the same for the same seed."""

import base64
import io
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import soundfile
from PIL import Image

from chaos_mm.core.errors import BadRequest
from chaos_mm.load.canaries import Canary, CanaryMaker, CanarySettings, choose, read_mix
from chaos_mm.load.wording import DEMO, PADDING, PLAIN, read_wording
from chaos_mm.sli.records import KINDS
from chaos_mm.target import questions

SETTINGS = CanarySettings()


def make(kind: str, count: int = 1, **changes: Any) -> list[Canary]:
    maker = CanaryMaker(replace(SETTINGS, **changes), 1, "s")
    return [maker.make(n, kind) for n in range(count)]


def parts(canary: Canary) -> list[str]:
    return [part["type"] for part in canary.content]


def test_what_each_kind_carries() -> None:
    assert {kind: parts(make(kind)[0]) for kind in KINDS} == {
        "image": ["image_url", "text"],
        "colour": ["image_url", "text"],
        "audio": ["input_audio", "text"],
        "text": ["text"],
        "agreement": ["image_url", "input_audio", "text"],
    }


def test_media_decode() -> None:
    image, audio, _ = make("agreement", picture_format="png", picture_size=(320, 96), speech_format="flac")[0].content
    head, _, data = image["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64"
    assert Image.open(io.BytesIO(base64.b64decode(data, validate=True))).size == (320, 96)
    assert audio["input_audio"]["format"] == "flac"
    assert (
        soundfile.info(io.BytesIO(base64.b64decode(audio["input_audio"]["data"], validate=True))).samplerate == 16_000
    )


def test_right_answers() -> None:
    assert all(canary.expected == canary.code for kind in ("image", "audio", "text") for canary in make(kind, 5))
    assert {canary.expected for canary in make("colour", 60)} == set(questions.COLOURS)
    same = Counter(canary.expected for canary in make("agreement", 120))
    assert set(same) == {"yes", "no"}
    assert 35 < same["yes"] < 85


def test_a_text_canary_says_its_code_digit_by_digit() -> None:
    canary = make("text")[0]
    assert " ".join(canary.code) in canary.content[0]["text"]


def test_the_same_seed_gives_the_same_requests() -> None:
    assert make("agreement", 4) == make("agreement", 4)
    assert make("image", 4) != [CanaryMaker(SETTINGS, 2, "s").make(n, "image") for n in range(4)]


def test_padding_changes_nothing_but_the_text() -> None:
    plain, padded = make("image", 3), make("image", 3, padding=4)
    for before, after in zip(plain, padded, strict=True):
        assert before.content[0] == after.content[0]
        assert (before.code, before.question) == (after.code, after.question)
        text = after.content[-1]["text"]
        assert text.startswith(before.question + ". ")
        assert len(text.split(". ")) == 5
        assert all(sentence in PADDING for sentence in text.split(". ")[1:])
    first = make("image", padding=2, padding_place="before")[0]
    assert first.content[-1]["text"].endswith(first.question)


def test_a_fixed_set_repeats() -> None:
    maker = CanaryMaker(SETTINGS, 1, "set", set_size=5)
    mix = read_mix("image,audio,text")
    kinds = [maker.kind(n, mix) for n in range(20)]
    assert kinds[:5] * 4 == kinds
    assert maker.make(3, "image") == maker.make(8, "image")
    assert maker.make(3, "image") != maker.make(4, "image")


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_wordings_are_ones_the_demo_target_knows(kind: str) -> None:
    assert set(DEMO[kind]) <= set(questions.QUESTIONS[kind])
    assert set(PADDING) <= set(questions.PADDING)


def test_wordings_can_be_replaced() -> None:
    assert read_wording("plain") == PLAIN
    own = read_wording("demo", ("image=What do you see?", "text=Say {}"))
    assert (own["image"], own["text"], own["audio"]) == (("What do you see?",), ("Say {}",), DEMO["audio"])
    for bad, message in (("smell=x", "KIND one of"), ("image=", "KIND=QUESTION"), ("text=Say it", "needs")):
        with pytest.raises(BadRequest, match=message):
            read_wording("demo", (bad,))
    with pytest.raises(BadRequest, match="wording is 'polite'; allowed: demo, plain"):
        read_wording("polite")


def test_mixes() -> None:
    assert read_mix("image=3,audio=1") == {"image": 0.75, "audio": 0.25}
    assert read_mix({"image": 2, "text": 0}) == {"image": 1.0}
    assert read_mix("text") == {"text": 1.0}
    draws = Counter(choose(read_mix("image=3,audio=1"), n / 1000) for n in range(1000))
    assert draws == {"image": 750, "audio": 250}
    assert choose({"image": 0.1, "text": 0.9}, 1.0) == "text"


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        ("smell=1", "mix is 'smell'; allowed: image"),
        ("image=much", "kind=weight"),
        ("", "weights by kind"),
        ([1], "weights by kind"),
        ({"image": -1}, "mix image is -1"),
        ({"image": True}, "mix image is True"),
        ({"image": float("nan")}, "mix image is nan"),
        ({"image": 0}, "no weight above 0"),
    ],
)
def test_bad_mixes_are_named(mix: Any, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        read_mix(mix)


def test_settings_that_cannot_work_are_refused_at_once() -> None:
    with pytest.raises(BadRequest, match=r"with a lead-in of 0.6 s a code lasts up to 3.14 s: widen the window"):
        CanarySettings(lead_in_seconds=0.6)
    CanarySettings(lead_in_seconds=0.6, speech_window_seconds=0.0)
    for changes in (
        {"picture_format": "gif"},
        {"speech_format": "ogg"},
        {"voices": ("yoda",)},
        {"padding_place": "in"},
    ):
        with pytest.raises(BadRequest, match="allowed: "):
            CanarySettings(**changes)  # type: ignore[arg-type]
