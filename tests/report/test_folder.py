"""One run's folder, in any state: there is always a word, and without a verdict it is error."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from chaos_mm.report.folder import RunReport, is_run, read, runs_in
from chaos_mm.report.words import EXIT_CODES, WORDS
from tests.report.samples import DEVIATED, HALTED, PASSED
from tests.report.stories import write

SHORT = replace(HALTED, seconds=(1.0, 1.0, 1.0), cut=2.6, watched=HALTED.watched[:1])


def test_a_whole_folder_says_what_its_verdict_says(told: Callable[..., RunReport]) -> None:
    run = told(DEVIATED)
    assert (run.word, run.words, run.exit_code, run.notes) == ("deviated", ("deviated",), 1, ())
    assert (run.experiment, run.title, run.fault) == ("image-noise", DEVIATED.title, "image_noise")
    assert run.hits.applied == 57 and run.leases[0].expected == 28
    assert run.recovery is not None and run.recovery.value == 6.4
    assert run.expect == "deviated" and run.duration_seconds == pytest.approx(60.7)
    assert list(run.slis) == ["baseline", "fault", "recovery"]


def test_cut_at_any_byte_the_log_is_read_and_the_word_is_error(tmp_path: Path) -> None:
    folder = write(SHORT, tmp_path, verdict=False)
    log = (folder / "events.jsonl").read_bytes()
    whole = len(read(folder).log.events)
    seen = set()
    for length in range(len(log) + 1):
        (folder / "events.jsonl").write_bytes(log[:length])
        run = read(folder)
        assert (
            run.word == "error" and run.exit_code == 4 and run.reasons[0].reason.startswith("the run left no verdict")
        )
        seen.add(len(run.log.events))
        assert len(run.log.events) in (log[:length].count(b"\n"), log[:length].count(b"\n") + 1)
    assert seen == set(range(whole + 1))


def test_a_verdict_cut_at_any_byte_is_no_verdict(tmp_path: Path) -> None:
    folder = write(SHORT, tmp_path)
    verdict = (folder / "verdict.json").read_bytes()
    for length in range(0, len(verdict), 23):
        (folder / "verdict.json").write_bytes(verdict[:length])
        run = read(folder, with_log=False)
        assert run.word == "error" and run.reasons[0].reason.startswith("the verdict cannot be read")
        assert run.experiment == SHORT.experiment


@pytest.mark.parametrize(
    "garbage", [b"", b"null", b"[]", b"3", b'{"verdict": {}}', b'{"verdict": "fine", "exit_code": 0}', b"\xff" * 99]
)
def test_garbage_for_a_verdict_is_error_with_its_reason(tmp_path: Path, garbage: bytes) -> None:
    folder = write(SHORT, tmp_path)
    (folder / "verdict.json").write_bytes(garbage)
    run = read(folder)
    assert run.word == "error" and run.exit_code == 4 and "verdict" in run.reasons[0].reason
    assert run.notes[-1].startswith("verdict.json: ")


def test_every_missing_key_is_taken_from_the_log_or_left_out(tmp_path: Path) -> None:
    folder = write(PASSED, tmp_path)
    verdict = json.loads((folder / "verdict.json").read_text())
    for key in verdict:
        shorter = {name: told for name, told in verdict.items() if name != key}
        (folder / "verdict.json").write_text(json.dumps(shorter))
        run = read(folder)
        assert run.word == ("error" if key == "verdict" else "passed"), key
        assert run.experiment == "image-noise" and run.hits.applied == 57 and len(run.phases) == 3
    (folder / "verdict.json").write_text('{"verdict": "passed"}')
    assert read(folder).hits.applied == 57 and read(folder).exit_code == 0


def test_the_log_may_claim_a_verdict_but_the_file_counts(tmp_path: Path) -> None:
    run = read(write(PASSED, tmp_path, verdict=False))
    assert run.word == "error" and "ends with the word 'passed'" in run.reasons[0].reason


def test_an_empty_folder_is_an_error_that_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "20261130T090000Z-image-noise-0badc0"
    folder.mkdir()
    run = read(folder)
    assert (run.word, run.experiment) == ("error", "image-noise")
    assert "nothing is written in its event log" in run.reasons[0].reason


def test_a_refusal_that_was_written_down_stands_beside_the_error(tmp_path: Path) -> None:
    refused = {
        "event": "refused",
        "reasons": [{"word": "not_applied", "reason": "no proxy"}, {"word": "?", "reason": "b"}],
    }
    (tmp_path / "events.jsonl").write_text(json.dumps(refused))
    assert [(one.word, one.reason) for one in read(tmp_path).reasons[1:]] == [
        ("not_applied", "no proxy"),
        ("error", "b"),
    ]


def test_exit_code_and_words_follow_the_verdict_when_they_are_nonsense(tmp_path: Path) -> None:
    for bad in (None, "1", True, -1, 256, 1.5, 10**40):
        (tmp_path / "verdict.json").write_text(
            json.dumps({"verdict": "deviated", "exit_code": bad, "words": [{}, "x"]})
        )
        run = read(tmp_path)
        assert (run.exit_code, run.words) == (1, ("deviated",))


@pytest.mark.parametrize("word", WORDS)
def test_every_word_is_read(tmp_path: Path, word: str) -> None:
    (tmp_path / "verdict.json").write_text(json.dumps({"verdict": word}))
    assert (read(tmp_path).word, read(tmp_path).exit_code) == (word, EXIT_CODES[word])


def test_which_folders_are_runs(tmp_path: Path) -> None:
    run = write(PASSED, tmp_path)
    shutil.copytree(run, tmp_path / "sample")  # the one that is kept in git
    (tmp_path / "20261130T100000Z-killed-at-once-0badc0").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "summary.json").write_text("{}")
    assert [one.name for one in runs_in(tmp_path)] == [run.name, "20261130T100000Z-killed-at-once-0badc0"]
    assert is_run(tmp_path / "sample") and not is_run(tmp_path / "notes") and not is_run(tmp_path / "summary.json")


def test_a_link_is_no_run_and_nothing_is_written_where_it_leads(tmp_path: Path) -> None:
    run = write(PASSED, tmp_path / "reports")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("mine")
    (tmp_path / "reports" / "latest").symlink_to(run)
    (tmp_path / "reports" / "20261130T100000Z-site-0badc0").symlink_to(tmp_path / "site")
    assert [one.name for one in runs_in(tmp_path / "reports")] == [run.name]


def test_a_folder_that_may_not_be_looked_into_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write(PASSED, tmp_path)
    (tmp_path / "private").mkdir()
    is_file = Path.is_file

    def refused(self: Path) -> bool:
        if self.parent.name == "private":
            raise PermissionError(13, "Permission denied", str(self))
        return is_file(self)

    monkeypatch.setattr(Path, "is_file", refused)
    assert [one.name for one in runs_in(tmp_path)] == [run.name]
