"""Every SLI of the load: a name, a unit, which way is better, and how it is read from records.

``measure("canary_exact", records, window_seconds=10)`` is the whole interface. Failures stay in every denominator: a
timeout, an error or a request that the load could not send is a miss, counted at the timeout value where time is asked.

Definitions, since tools differ. TTFT: first content token, from the scheduled time. ITL: (last - first) / (n - 1) per
request, as vLLM's benchmark and MLPerf Inference's time per output token. E2E: scheduled to last byte. Goodput:
requests a second that met all of it, as vLLM's ``--goodput`` and the DistServe paper use the word. Latency SLIs are
shares of good requests (the SRE workbook's form, which adds up over windows); percentiles stand beside them for the
eye and say "no data" below 10 / (1 - q) samples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chaos_mm.sli.answers import CODE_KINDS, digit_errors, similarity
from chaos_mm.sli.measurement import Measurement, measured, no_data
from chaos_mm.sli.records import MODALITY, Record, parse
from chaos_mm.sli.statistics import quantile, samples_needed

# A request that left this long after it was due says more about the load than about the service. Beyond this share of
# them an SLI says so instead of a value: one that reads clocks counts all of them, another those that were missed.
LAG_LIMIT_SECONDS = 0.5
LAG_LIMIT_SHARE = 0.1

Get = Callable[[Record], float | None]
Say = Callable[[Record, float], Any]  # (record, threshold_seconds) -> what it says of one SLI; None: nothing to judge


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records an SLI looks at; "" is the SLI's own choice, ``audience="all"`` is canaries and bystanders.

    A filter narrows what an SLI is about and never replaces it: see ``conflict``.
    """

    audience: str = ""
    modality: str = ""
    kind: str = ""

    def meets(self, record: Record) -> bool:
        """Does the record belong?"""
        return (
            self.audience in ("", "all", record.audience)
            and self.modality in ("", record.modality)
            and self.kind in ("", record.kind)
        )


@dataclass(frozen=True, slots=True)
class Look:
    """What one record says of one SLI, looked up once however many windows it lies in.

    ``lagging``: it left the load so late that it says nothing of the service.
    """

    scheduled_at: float
    lagging: bool
    said: Any


Conclude = Callable[[Sequence[Any], int, float], Measurement]  # (what was said, requests, seconds of the window)


@dataclass(frozen=True, slots=True)
class Indicator:
    """One SLI: what each record says of it, and what follows from all that was said.

    ``timed``: it reads clocks, so a load that lags makes it "no data" sooner.
    """

    name: str
    unit: str
    higher_is_better: bool
    doc: str
    say: Say
    conclude: Conclude
    default: Selection = Selection()
    timed: bool = False
    threshold_seconds: float = 2.0


def measure(
    name: str,
    records: object,
    *,
    window_seconds: float,
    selection: Selection | None = None,
    threshold_seconds: float | None = None,
) -> Measurement:
    """One SLI over records (``Record`` or JSON objects; what cannot be read is left out and the reason says so).

    Raises KeyError for a name that INDICATORS lacks, and nothing else.
    """
    found, unreadable = parse(records)
    strange = conflict(name, selection)
    if strange:
        return no_data(strange, INDICATORS[name].unit, 0, window_seconds)
    answer = conclude(name, looks(name, found, selection, threshold_seconds), window_seconds)
    if unreadable:
        note = f"{unreadable} records could not be read"
        answer = replace(answer, reason=f"{answer.reason}; {note}" if answer.reason else note)
    return answer


def looks(
    name: str, records: Sequence[Record], selection: Selection | None = None, threshold_seconds: float | None = None
) -> list[Look]:
    """What the records that the SLI is about say of it, in their order. Raises KeyError as ``measure``."""
    indicator, wanted = INDICATORS[name], own_selection(name, selection)
    limit = indicator.threshold_seconds if threshold_seconds is None else threshold_seconds
    say, timed = indicator.say, indicator.timed
    return [
        Look(one.scheduled_at, one.lag_seconds > LAG_LIMIT_SECONDS and (timed or not one.ok), say(one, limit))
        for one in records
        if wanted.meets(one)
    ]


def conclude(name: str, chosen: Sequence[Look], window_seconds: float) -> Measurement:
    """The SLI of what ``looks`` found, of all of it or of one window. Raises KeyError as ``measure``."""
    indicator = INDICATORS[name]
    if not chosen:
        return no_data("no requests of this kind in the window", indicator.unit, 0, window_seconds)
    lagging = sum([look.lagging for look in chosen])
    if lagging > LAG_LIMIT_SHARE * len(chosen):
        reason = f"the load itself lagged: {lagging} of {len(chosen)} requests left over {LAG_LIMIT_SECONDS} s late"
        return no_data(reason, indicator.unit, len(chosen), window_seconds)
    said = [look.said for look in chosen if look.said is not None]
    return indicator.conclude(said, len(chosen), window_seconds)


def own_selection(name: str, asked: Selection | None = None) -> Selection:
    """What the SLI looks at when these filters are asked for. Raises KeyError for a name that INDICATORS lacks."""
    own = INDICATORS[name].default
    if asked is None:
        return own
    return Selection(asked.audience or own.audience, asked.modality or own.modality, asked.kind or own.kind)


def conflict(name: str, asked: Selection | None) -> str:
    """Why the SLI cannot be asked with these filters ("alignment_ok is about agreement, not image"); "" when it can."""
    own = INDICATORS[name].default
    if asked is None:
        return ""
    for mine, given, word in (
        (own.audience, asked.audience, asked.audience),
        (own.modality, asked.modality, asked.modality),
        (own.modality, MODALITY.get(asked.kind, asked.kind), asked.kind),
    ):
        if mine and given and mine != given:
            return f"{name} is about {mine}, not {word}"
    return ""


def _share(nothing: str = "nothing to judge in the window") -> Conclude:
    """Share of what was said to be good; ``nothing`` says why when nothing could be judged."""

    def conclude(said: Sequence[Any], requests: int, seconds: float) -> Measurement:
        if not said:
            return no_data(nothing, "ratio", 0, seconds)
        return measured(sum(said) / len(said), "ratio", len(said), seconds)

    return conclude


def _good(judge: Callable[[Record], bool | None]) -> Say:
    return lambda record, limit: judge(record)


def _under(get: Get) -> Say:
    """Is the request's time at most the threshold? A miss is never good, however long the threshold."""

    def say(record: Record, limit: float) -> bool | None:
        value = get(record)
        return None if value is None else record.ok and value <= limit

    return say


def _percentile(q: float) -> Conclude:
    def conclude(said: Sequence[float], requests: int, seconds: float) -> Measurement:
        needed = samples_needed(q)
        if len(said) < needed:
            return no_data(f"p{100 * q:g} needs {needed} samples, not {len(said)}", "s", len(said), seconds)
        return measured(quantile(said, q), "s", len(said), seconds)

    return conclude


def _ok(record: Record, limit: float) -> bool:
    return record.ok


def _judged(record: Record) -> bool | None:
    return False if not record.ok else record.exact


def _unharmed(record: Record) -> bool:
    return record.ok and record.exact is not False and not record.leak


def _finished(record: Record) -> bool | None:
    """A stream is whole when it ended with a finish reason, in time; an answer without content is no stream."""
    if record.chunks == 0 and record.ok:
        return None
    return record.ok and record.complete


def _leaked(record: Record, limit: float) -> tuple[bool, bool]:
    return bool(record.expected), record.leak


def _leaks(said: Sequence[tuple[bool, bool]], requests: int, seconds: float) -> Measurement:
    if not any(asked for asked, _ in said):
        return no_data("no codes were asked for, so none could leak", "requests", 0, seconds)
    return measured(sum(leaked for _, leaked in said), "requests", requests, seconds)


def _coded(record: Record) -> bool:
    return record.kind in CODE_KINDS and bool(record.expected)


def _digits(record: Record, limit: float) -> tuple[int, int] | None:
    """(wrong, asked) digits of a code; a request without an answer has every digit wrong."""
    if not _coded(record):
        return None
    wrong, asked = digit_errors(record.kind, record.expected, record.answer if record.ok else "")
    return (wrong, asked) if asked else (0, 0)


def _digit_error_rate(said: Sequence[tuple[int, int]], requests: int, seconds: float) -> Measurement:
    """Errors over digits of all codes together."""
    asked = sum(total for _, total in said)
    if not asked:
        return no_data("no codes with a known reference in the window", "ratio", 0, seconds)
    return measured(sum(wrong for wrong, _ in said) / asked, "ratio", len(said), seconds)


def _similar(record: Record, limit: float) -> float | None:
    if not _coded(record):
        return None
    return similarity(record.kind, record.expected, record.answer) if record.ok else 0.0


def _useful(record: Record, limit: float) -> bool:
    return _unharmed(record) and (record.ttft_seconds or 0.0) <= limit


def _goodput(said: Sequence[bool], requests: int, seconds: float) -> Measurement:
    if seconds <= 0:
        return no_data("the window has no length", "1/s", requests, seconds)
    return measured(sum(said) / seconds, "1/s", requests, seconds)


def _ttft(record: Record) -> float | None:
    return record.ttft_seconds


def _itl(record: Record) -> float | None:
    return record.itl_seconds


def _e2e(record: Record) -> float | None:
    return record.e2e_seconds


def _gap(record: Record) -> float | None:
    return record.gap_seconds


_CANARIES = Selection(audience="canary")
_TIMES: tuple[tuple[str, str, Get, float], ...] = (
    ("ttft", "time to first content token, from the scheduled time", _ttft, 2.0),
    ("itl", "mean time between content chunks of one answer", _itl, 0.5),
    ("e2e", "scheduled time to last byte", _e2e, 5.0),
    ("max_gap", "longest silence between two content chunks", _gap, 1.0),
)


def _time(get: Get) -> Say:
    return lambda record, limit: get(record)


def _latencies() -> list[Indicator]:
    found = []
    for name, doc, get, threshold in _TIMES:
        share = f"share of requests with at most the threshold of {doc}"
        nothing = _share(f"no answer in the window has a {name}")
        found.append(
            Indicator(name, "ratio", True, share, _under(get), nothing, timed=True, threshold_seconds=threshold)
        )
        for q in (0.5, 0.95, 0.99):
            label = f"{name}_p{100 * q:g}"
            said = _time(get)
            found.append(Indicator(label, "s", False, f"p{100 * q:g} of {doc}", said, _percentile(q), timed=True))
    return found


_OTHERS = [
    Indicator(
        "ok_ratio", "ratio", True, "share of requests answered in full and in time", _good(lambda r: r.ok), _share()
    ),
    Indicator(
        "bystander_ok",
        "ratio",
        True,
        "share of bystanders answered in full, in time and, where judged, rightly",
        _good(_unharmed),
        _share(),
        Selection(audience="bystander"),
    ),
    Indicator(
        "stream_complete",
        "ratio",
        True,
        "share of streams that ended with a finish reason",
        _good(_finished),
        _share(),
    ),
    Indicator(
        "canary_exact",
        "ratio",
        True,
        "share of canaries answered exactly right",
        _good(_judged),
        _share("no canary in the window has a reference to be judged against"),
        _CANARIES,
    ),
    Indicator(
        "alignment_ok",
        "ratio",
        True,
        "share of agreement canaries (do picture and speech say the same?) answered right",
        _good(_judged),
        _share(),
        Selection(audience="canary", modality="agreement"),
    ),
    Indicator("leak_count", "requests", False, "answers that are another recent request's code", _leaked, _leaks),
    Indicator(
        "wer",
        "ratio",
        False,
        "wrong digits per spoken digit (word error rate with digits as words)",
        _digits,
        _digit_error_rate,
        Selection(audience="canary", modality="audio"),
    ),
    Indicator(
        "similarity",
        "ratio",
        True,
        "mean digit-level similarity of codes",
        _similar,
        _share("no codes with a known reference in the window"),
        _CANARIES,
    ),
    Indicator("goodput", "1/s", True, "requests a second that were right and in time", _useful, _goodput, timed=True),
]

INDICATORS: Mapping[str, Indicator] = {indicator.name: indicator for indicator in (*_OTHERS, *_latencies())}
