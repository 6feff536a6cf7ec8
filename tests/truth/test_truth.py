"""The truth table: real ``chaos run`` processes, each with its word, exit status, strict files and a clean target."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.report import folder as report_folder
from chaos_mm.report.words import EXIT_CODES
from tests.truth.play import Play, Played, newest, strictly
from tests.truth.rows import ROWS
from tests.truth.scenario import Scenario

pytestmark = pytest.mark.truth
CONCLUSIVE = ("passed", "deviated")


def _rows() -> Iterator[Any]:
    for row in ROWS:
        long = newest() and not row.differs
        yield pytest.param(row, id=row.name.replace(" ", "-"), marks=pytest.mark.long if long else ())


@pytest.mark.parametrize("row", list(_rows()))
def test_row(row: Scenario, tmp_path: Path) -> None:
    play = Play(row, tmp_path)
    try:
        played = play.run()
    finally:
        play.close()
    try:
        check(played)
    except AssertionError as error:
        raise AssertionError(f"{error}\n--- output\n{played.output[-6000:]}") from None


def check(played: Played) -> None:
    """Everything a row promises."""
    expected = played.scenario.expected
    said = words(played)
    assert said == dict.fromkeys(said, expected.word)
    assert ({"verdict.json", "events.jsonl"} <= set(said)) == expected.record
    assert "journal" in said or not (expected.record and expected.journal)
    assert played.status == expected.exit_code
    check_fault(played)
    check_journal(played)
    check_folder(played)
    assert played.scenario.output in played.output
    if newest() and played.report:
        check_agent(strictly(played.report), expected.word, expected.exit_code)


def words(played: Played) -> dict[str, str]:
    """Where the word stands, and which it is."""
    found = {}
    journal, folder = played.journal, played.run_folder
    if journal is not None and "verdict" in journal:
        found["journal"] = journal["verdict"]["verdict"]
    if folder is not None and (folder / "verdict.json").exists():
        found["verdict.json"] = strictly((folder / "verdict.json").read_text())["verdict"]
    if folder is not None and (folder / "journal.json").exists():
        found["journal.json"] = strictly((folder / "journal.json").read_text())["verdict"]["verdict"]
    if folder is not None and (events := [one for one in read_events(folder) if one["event"] == "verdict"]):
        found["events.jsonl"] = events[-1]["verdict"]
    return found


def read_events(folder: Path) -> list[dict[str, Any]]:
    """The event log, each line strict JSON; the last may be cut off when the process was killed."""
    lines = (folder / "events.jsonl").read_text().split("\n")
    return [strictly(line) for line in lines[:-1]]


def check_fault(played: Played) -> None:
    """Whether it was injected, how it ended, that nothing of the run is left, and that others' leases live on."""
    expected, leases = played.scenario.expected, played.leases
    gone = {one["ended_by"] or "left" for one in leases} or {"never"}
    assert gone == {expected.gone}
    assert len(leases) == (played.scenario.leases if expected.injected else 0)
    script = played.scenario.point
    assert played.foreign_lives == bool(script and script.foreign)
    most = played.scenario.most_seconds
    for lease in leases if most else ():
        assert lease["ended_at"] - lease["started_at"] <= most
        if expected.gone == "keepalive":
            assert played.silent_at is not None
            assert lease["ended_at"] - played.silent_at <= lease["keepalive_seconds"] + 1.0


def check_journal(played: Played) -> None:
    """The toolkit's own words."""
    expected, journal = played.scenario.expected, played.journal
    assert (journal or {}).get("status", "") == expected.journal
    if journal is not None:
        assert bool(journal["rollbacks"]) == expected.rollbacks
        declared = played.scenario.body["rollbacks"]
        assert len(journal["rollbacks"]) in (0, len(declared)), "some rollbacks were not played"


def check_folder(played: Played) -> None:
    """What is on disk, and that the report reads the same word out of it."""
    folder, expected = played.run_folder, played.scenario.expected
    assert (folder is not None) == expected.folder
    if folder is None:
        return
    assert report_folder.read(folder).word == expected.word
    names = {path.name for path in folder.iterdir()}
    if expected.record:
        assert {"events.jsonl", "verdict.json", "journal.json", "index.html"} <= names
        verdict = strictly((folder / "verdict.json").read_text())
        assert verdict["exit_code"] == EXIT_CODES[expected.word]
        strictly((folder / "journal.json").read_text())


def check_agent(report: dict[str, Any], word: str, exit_code: int) -> None:
    """The newest toolkit's report for agents says the same as ours."""
    assert report["conclusive"] == (word in CONCLUSIVE)
    assert word not in CONCLUSIVE or report["outcome"] == word
    assert (report["outcome"] == "passed") <= (word in ("passed", "dry"))
