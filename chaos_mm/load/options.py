"""The options of ``chaos-mm load``, and the settings they become."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from chaos_mm.load import pictures, speech
from chaos_mm.load.canaries import DEFAULT_MIX, PADDING_PLACES, CanarySettings, read_mix
from chaos_mm.load.judging import REFERENCES
from chaos_mm.load.traffic import ARRIVALS, TrafficLimits, TrafficSpec
from chaos_mm.load.wording import WORDINGS, read_wording

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _option(*names: str, **settings: Any) -> Decorator:
    return click.option(*names, show_default=settings.get("default") not in (None, "", ()), **settings)


_SERVICE = (
    _option(
        "--proxy-url",
        "--target-url",
        "url",
        envvar="CHAOS_MM_PROXY_URL",
        default="http://127.0.0.1:8601",
        help="Where requests go: the proxy, or a service itself. Its key is read from CHAOS_MM_TARGET_API_KEY.",
    ),
    _option("--model", envvar="CHAOS_MM_TARGET_MODEL", default="chaos-mm-tiny", help="Model name in requests."),
    _option("--stream/--no-stream", default=True, help="Ask for streamed answers."),
    _option("--max-tokens", default=24, type=click.IntRange(1, 4096), help="Length of an answer."),
)
_SCHEDULE = (
    _option("--background-rate", default=0.0, type=click.FloatRange(0, 10_000), help="Requests a second, always."),
    _option("--max-request-rate", default=200.0, type=click.FloatRange(0.01, 10_000), help="Cap for one owner."),
    _option("--arrivals", default="poisson", type=click.Choice(ARRIVALS), help="How requests arrive."),
    _option(
        "--mix",
        default=",".join(f"{kind}={weight:g}" for kind, weight in DEFAULT_MIX.items()),
        help="Weights of the kinds of canaries.",
    ),
    _option("--bystanders", default=0.3, type=click.FloatRange(0, 1), help="Share of requests under ordinary ids."),
    _option(
        "--timeout",
        default=10.0,
        type=click.FloatRange(0.1, 3600),
        help="Seconds from the scheduled time; also what a miss counts as.",
    ),
    _option("--max-in-flight", default=256, type=click.IntRange(1, 100_000), help="Beyond it a request is a miss."),
    _option("--seed", default=0, type=int, help="Of codes, pictures, voices and arrivals."),
)
_CANARIES = (
    _option(
        "--canary-reference",
        envvar="CHAOS_MM_CANARY_REFERENCE",
        default="code",
        type=click.Choice(REFERENCES),
        help="Judge by the code, or by the model's own answer in the baseline phase.",
    ),
    _option(
        "--canary-set", default=64, type=click.IntRange(1, 4096), help="Canaries that reference 'baseline' repeats."
    ),
    _option(
        "--picture-size",
        default="96x64",
        help="WIDTHxHEIGHT; the default is the demo target's own, a real model wants some 400 a side.",
    ),
    _option("--picture-format", default="jpeg", type=click.Choice(list(pictures.FORMATS)), help="File format."),
    _option("--picture-quality", default=90, type=click.IntRange(1, 100), help="Of JPEG and WebP."),
    _option("--speech-format", default="wav", type=click.Choice(speech.FORMATS), help="File format."),
    _option("--voice", multiple=True, type=click.Choice(speech.VOICES), help="A voice to use; all by default."),
    _option(
        "--lead-in",
        default=0.0,
        type=click.FloatRange(0, 10),
        help="Seconds of silence before speech; 0.6 for recognisers such as whisper.",
    ),
    _option(
        "--speech-window",
        default=speech.DEMO_WINDOW_SECONDS,
        type=click.FloatRange(0, 60),
        help="Seconds that speech must fit; 0 for no limit.",
    ),
    _option("--wording", default="demo", type=click.Choice(list(WORDINGS)), help="How canaries ask."),
    _option("--question", multiple=True, help="KIND=QUESTION in place of the wordings of that kind."),
    _option("--padding", default=0, type=click.IntRange(0, 100), help="Sentences that mean nothing, beside questions."),
    _option("--padding-place", default="after", type=click.Choice(PADDING_PLACES), help="Where they stand."),
)
_RECORDS = (
    _option("--objectives-dir", envvar="CHAOS_MM_OBJECTIVES", default="", help="Objectives for recovery_seconds."),
    _option("--records-file", type=click.Path(dir_okay=False), help="Append every record to this file (NDJSON)."),
    _option("--max-records", default=100_000, type=click.IntRange(1, 10_000_000), help="Records kept in memory."),
    _option("--max-record-bytes", default=128 << 20, type=click.IntRange(1 << 16, 1 << 34), help="Memory for them."),
)


def load_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add every option of the load to a click command."""
    for option in reversed((*_SERVICE, *_SCHEDULE, *_CANARIES, *_RECORDS)):
        function = option(function)
    return function


def canary_settings(values: Mapping[str, Any]) -> CanarySettings:
    """How canaries look. Raises BadRequest."""
    return CanarySettings(
        picture_size=pictures.read_size(values["picture_size"]),
        picture_format=values["picture_format"],
        picture_quality=values["picture_quality"],
        speech_format=values["speech_format"],
        lead_in_seconds=values["lead_in"],
        speech_window_seconds=values["speech_window"],
        voices=tuple(values["voice"]) or speech.VOICES,
        wordings=read_wording(values["wording"], tuple(values["question"])),
        padding=values["padding"],
        padding_place=values["padding_place"],
    )


def traffic_settings(values: Mapping[str, Any]) -> tuple[TrafficSpec, TrafficLimits]:
    """What traffic is like unless an owner says otherwise, and what an owner may ask for. Raises BadRequest."""
    spec = TrafficSpec(
        rate=values["background_rate"] or 1.0,
        mix=read_mix(values["mix"]),
        bystanders=values["bystanders"],
        arrivals=values["arrivals"],
    )
    return spec, TrafficLimits(max_rate=values["max_request_rate"])
