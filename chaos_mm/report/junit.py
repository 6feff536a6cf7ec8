"""``junit.xml``: one test suite for a reports folder, one test case a run, as CI systems read it.

Failure: ``deviated`` and ``halted``, the service did not hold. Error: every other word that is not ``passed`` or
``dry``, the run shows nothing. Skipped: ``dry``. ``expect`` changes none of it, as it changes no exit code.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from chaos_mm.report.folder import RunReport
from chaos_mm.report.telling import hit, lead
from chaos_mm.report.wording import clipped
from chaos_mm.report.words import MEANINGS

__all__ = ["junit"]

_ELEMENTS = {"passed": "", "dry": "skipped", "deviated": "failure", "halted": "failure"}


def junit(runs: Sequence[RunReport]) -> bytes:
    """The whole file, UTF-8 with its declaration. A case is called after its experiment: CI sees its history."""
    kinds = Counter(_element(run) for run in runs)
    suite = Element(
        "testsuite",
        name="chaos_mm",
        timestamp=_stamp(runs[0].text("started") if runs else ""),
        hostname="localhost",
        tests=str(len(runs)),
        failures=str(kinds["failure"]),
        errors=str(kinds["error"]),
        skipped=str(kinds["skipped"]),
        time=_seconds(sum(run.duration_seconds or 0.0 for run in runs)),
    )
    SubElement(suite, "properties")
    names: Counter[str] = Counter()
    for run in runs:
        names[run.experiment] += 1
        count = names[run.experiment]
        _case(suite, run, clipped(run.experiment, 200) + (f" ({count})" if count > 1 else ""))
    SubElement(suite, "system-out").text = "\n".join(_line(run) for run in runs)
    SubElement(suite, "system-err")
    indent(suite)
    written: bytes = tostring(suite, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _element(run: RunReport) -> str:
    return _ELEMENTS.get(run.word, "error")


def _case(suite: Element, run: RunReport, name: str) -> None:
    case = SubElement(
        suite, "testcase", classname="chaos_mm.experiments", name=name, time=_seconds(run.duration_seconds or 0.0)
    )
    kind = _element(run)
    if not kind:
        return
    reasons = [one for one in run.reasons if one.reason]
    message = clipped(reasons[0].reason if reasons else MEANINGS[run.word], 300)
    if kind == "skipped":
        SubElement(case, kind, message=message)
        return
    lines = [*(f"{one.word}: {clipped(one.reason, 2000)}" for one in reasons), *lead(run), f"Folder: {_folder(run)}"]
    SubElement(case, kind, message=message, type=run.word).text = "\n".join(lines)


def _line(run: RunReport) -> str:
    return f"{_folder(run)}: {run.word}, changed {hit(run.hits)} selected requests, exit code {run.exit_code}"


def _folder(run: RunReport) -> str:
    return run.folder.name.encode("utf-8", "replace").decode()


def _seconds(seconds: float) -> str:
    return f"{max(0.0, seconds):.3f}"


def _stamp(started: str) -> str:
    """Local ISO time without a zone, as the schema of the format demands."""
    try:
        return datetime.fromisoformat(started).strftime("%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return "1970-01-01T00:00:00"
