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

from chaos_mm.sli.answers import CODE_KINDS, digit_errors, similarity
from chaos_mm.sli.measurement import Measurement, measured, no_data
from chaos_mm.sli.records import MODALITY, Record, parse
from chaos_mm.sli.statistics import quantile, samples_needed

# A request that left this long after it was due says more about the load than about the service. Beyond this share of
# them an SLI says so instead of a value: one that reads clocks counts all of them, another those that were missed.
LAG_LIMIT_SECONDS = 0.5
LAG_LIMIT_SHARE = 0.1

Get = Callable[[Record], float | None]


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
class Window:
    """The length of time that records stand for, and the limit that makes a latency good."""

    seconds: float
    threshold_seconds: float


Read = Callable[[Sequence[Record], Window], Measurement]


@dataclass(frozen=True, slots=True)
class Indicator:
    """One SLI. ``timed``: it reads clocks, so a load that lags makes it "no data" sooner."""

    name: str
    unit: str
    higher_is_better: bool
    doc: str
    read: Read
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
    indicator = INDICATORS[name]
    found, unreadable = parse(records)
    wanted, strange = own_selection(name, selection), conflict(name, selection)
    if strange:
        return no_data(strange, indicator.unit, 0, window_seconds)
    chosen = [record for record in found if wanted.meets(record)]
    window = Window(window_seconds, indicator.threshold_seconds if threshold_seconds is None else threshold_seconds)
    answer = _read(indicator, chosen, window)
    if unreadable:
        note = f"{unreadable} records could not be read"
        answer = replace(answer, reason=f"{answer.reason}; {note}" if answer.reason else note)
    return answer


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


def _read(indicator: Indicator, chosen: Sequence[Record], window: Window) -> Measurement:
    if not chosen:
        return no_data("no requests of this kind in the window", indicator.unit, 0, window.seconds)
    lagging = sum(record.lag_seconds > LAG_LIMIT_SECONDS and (indicator.timed or not record.ok) for record in chosen)
    if lagging > LAG_LIMIT_SHARE * len(chosen):
        reason = f"the load itself lagged: {lagging} of {len(chosen)} requests left over {LAG_LIMIT_SECONDS} s late"
        return no_data(reason, indicator.unit, len(chosen), window.seconds)
    return indicator.read(chosen, window)


def _share(good: Callable[[Record], bool | None], unit_reason: str = "") -> Read:
    """Share of good requests among those that can be judged (None: not)."""

    def read(records: Sequence[Record], window: Window) -> Measurement:
        verdicts = [verdict for verdict in map(good, records) if verdict is not None]
        if not verdicts:
            return no_data(unit_reason or "nothing to judge in the window", "ratio", 0, window.seconds)
        return measured(sum(verdicts) / len(verdicts), "ratio", len(verdicts), window.seconds)

    return read


def _under(get: Get, what: str) -> Read:
    """Share of requests whose time is at most the threshold; a miss is never good, however long the threshold."""

    def read(records: Sequence[Record], window: Window) -> Measurement:
        def good(record: Record) -> bool | None:
            value = get(record)
            return None if value is None else record.ok and value <= window.threshold_seconds

        return _share(good, f"no answer in the window has {what}")(records, window)

    return read


def _percentile(get: Get, q: float) -> Read:
    def read(records: Sequence[Record], window: Window) -> Measurement:
        values = [value for value in map(get, records) if value is not None]
        needed = samples_needed(q)
        if len(values) < needed:
            return no_data(f"p{100 * q:g} needs {needed} samples, not {len(values)}", "s", len(values), window.seconds)
        return measured(quantile(values, q), "s", len(values), window.seconds)

    return read


def _judged(record: Record) -> bool | None:
    return False if not record.ok else record.exact


def _unharmed(record: Record) -> bool:
    return record.ok and record.exact is not False and not record.leak


def _finished(record: Record) -> bool | None:
    """A stream is whole when it ended with a finish reason, in time; an answer without content is no stream."""
    if record.chunks == 0 and record.ok:
        return None
    return record.ok and record.complete


def _leaks(records: Sequence[Record], window: Window) -> Measurement:
    if not any(record.expected for record in records):
        return no_data("no codes were asked for, so none could leak", "requests", 0, window.seconds)
    return measured(sum(record.leak for record in records), "requests", len(records), window.seconds)


def _coded(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.kind in CODE_KINDS and record.expected]


def _digits(record: Record) -> tuple[int, int]:
    wrong, asked = digit_errors(record.kind, record.expected, record.answer if record.ok else "")
    return (wrong, asked) if asked else (0, 0)


def _digit_error_rate(records: Sequence[Record], window: Window) -> Measurement:
    """Errors over digits of all codes together; a request without an answer has every digit wrong."""
    coded = _coded(records)
    counts = [_digits(record) for record in coded]
    asked = sum(total for _, total in counts)
    if not asked:
        return no_data("no codes with a known reference in the window", "ratio", 0, window.seconds)
    return measured(sum(wrong for wrong, _ in counts) / asked, "ratio", len(coded), window.seconds)


def _mean_similarity(records: Sequence[Record], window: Window) -> Measurement:
    coded = _coded(records)
    if not coded:
        return no_data("no codes with a known reference in the window", "ratio", 0, window.seconds)
    scores = [similarity(record.kind, record.expected, record.answer) if record.ok else 0.0 for record in coded]
    return measured(sum(scores) / len(scores), "ratio", len(scores), window.seconds)


def _goodput(records: Sequence[Record], window: Window) -> Measurement:
    if window.seconds <= 0:
        return no_data("the window has no length", "1/s", len(records), window.seconds)
    good = sum(_unharmed(record) and (record.ttft_seconds or 0.0) <= window.threshold_seconds for record in records)
    return measured(good / window.seconds, "1/s", len(records), window.seconds)


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


def _latencies() -> list[Indicator]:
    found = []
    for name, doc, get, threshold in _TIMES:
        share = f"share of requests with at most the threshold of {doc}"
        ratio = Indicator(name, "ratio", True, share, _under(get, f"a {name}"), timed=True, threshold_seconds=threshold)
        found.append(ratio)
        for q in (0.5, 0.95, 0.99):
            label = f"{name}_p{100 * q:g}"
            found.append(Indicator(label, "s", False, f"p{100 * q:g} of {doc}", _percentile(get, q), timed=True))
    return found


_OTHERS = [
    Indicator("ok_ratio", "ratio", True, "share of requests answered in full and in time", _share(lambda r: r.ok)),
    Indicator(
        "bystander_ok",
        "ratio",
        True,
        "share of bystanders answered in full, in time and, where judged, rightly",
        _share(_unharmed),
        Selection(audience="bystander"),
    ),
    Indicator("stream_complete", "ratio", True, "share of streams that ended with a finish reason", _share(_finished)),
    Indicator(
        "canary_exact",
        "ratio",
        True,
        "share of canaries answered exactly right",
        _share(_judged, "no canary in the window has a reference to be judged against"),
        _CANARIES,
    ),
    Indicator(
        "alignment_ok",
        "ratio",
        True,
        "share of agreement canaries (do picture and speech say the same?) answered right",
        _share(_judged),
        Selection(audience="canary", modality="agreement"),
    ),
    Indicator("leak_count", "requests", False, "answers that are another recent request's code", _leaks),
    Indicator(
        "wer",
        "ratio",
        False,
        "wrong digits per spoken digit (word error rate with digits as words)",
        _digit_error_rate,
        Selection(audience="canary", modality="audio"),
    ),
    Indicator("similarity", "ratio", True, "mean digit-level similarity of codes", _mean_similarity, _CANARIES),
    Indicator("goodput", "1/s", True, "requests a second that were right and in time", _goodput, timed=True),
]

INDICATORS: Mapping[str, Indicator] = {indicator.name: indicator for indicator in (*_OTHERS, *_latencies())}
