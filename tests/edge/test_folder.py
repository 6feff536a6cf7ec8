"""The folder of a run: its name, who makes it, and that nothing secret and nothing half written stands in it."""

import base64
import errno
import json
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.controls.folder import RunFolder
from chaos_mm.controls.redact import Scrubber

MARK = "marker-secret-1"


@pytest.fixture
def scrub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scrubber:
    monkeypatch.setenv("CHAOS_MM_TOKEN_FILE", str(tmp_path / "none"))
    return Scrubber({"key": MARK}, {})


def make(reports: Path, scrub: Scrubber, experiment: str = "image-noise", **environment: str) -> RunFolder:
    def now() -> datetime:
        return datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)

    return RunFolder.make(reports, experiment, "r0a1b2c3d4e5f", scrub, environment, now)


@pytest.fixture
def folder(tmp_path: Path, scrub: Scrubber) -> Iterator[RunFolder]:
    made = make(tmp_path / "reports", scrub)
    yield made
    made.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def strict_json(path: Path) -> Any:
    return json.loads(path.read_text(), parse_constant=pytest.fail)


def test_its_name_and_its_modes(tmp_path: Path, scrub: Scrubber) -> None:
    before = os.umask(0o022)
    try:
        folder = make(tmp_path / "reports", scrub)
        folder.keep_verdict({"schema": 1})
        folder.keep_samples([{"lease": "n", "before": {"type": "text/plain", "data": base64.b64encode(b"x").decode()}}])
    finally:
        os.umask(before)
    assert folder.close() == ""
    assert folder.path == tmp_path / "reports" / "20260304T050607Z-image-noise-3d4e5f"
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    assert {mode(path) for path in files} == {0o644} and len(files) == 3
    assert {mode(path) for path in (folder.path, folder.path / "samples", folder.path.parent)} == {0o755}


def test_a_title_becomes_a_name(tmp_path: Path, scrub: Scrubber) -> None:
    folder = make(tmp_path, scrub, "../../Ünder: the /hood" + "x" * 200)
    folder.close()
    assert folder.path.parent == tmp_path
    assert folder.path.name.startswith("20260304T050607Z-nder-the-hoodxxx")
    assert len(folder.path.name) < 100
    other = RunFolder.make(tmp_path, "", "r000000000001", scrub, {})
    other.close()
    assert "-experiment-000001" in other.path.name


def test_it_must_be_new_and_writable(tmp_path: Path, scrub: Scrubber) -> None:
    make(tmp_path / "reports", scrub).close()
    with pytest.raises(FileExistsError):
        make(tmp_path / "reports", scrub)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        make(tmp_path / "file", scrub)


def test_our_runner_names_the_folder(tmp_path: Path, scrub: Scrubber) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "journal.json").touch()  # the toolkit proves that it can write there before anybody is asked
    parent = str(os.getppid())
    folder = make(tmp_path / "reports", scrub, CHAOS_MM_RUN_FOLDER=str(given), CHAOS_MM_RUNNER=parent)
    folder.close()
    assert folder.path == given and (given / "events.jsonl").exists()
    with pytest.raises(FileExistsError):
        make(tmp_path / "reports", scrub, CHAOS_MM_RUN_FOLDER=str(given), CHAOS_MM_RUNNER=parent)
    with pytest.raises(NotADirectoryError, match="the runner must have made that folder"):
        make(tmp_path, scrub, CHAOS_MM_RUN_FOLDER=str(tmp_path / "none"), CHAOS_MM_RUNNER=parent)
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize("runner", ["", "1", "not-a-pid"])
def test_an_inherited_variable_means_nothing(tmp_path: Path, scrub: Scrubber, runner: str) -> None:
    given = tmp_path / "given"
    given.mkdir()
    folder = make(tmp_path / "reports", scrub, CHAOS_MM_RUN_FOLDER=str(given), CHAOS_MM_RUNNER=runner)
    folder.close()
    assert folder.path.parent == tmp_path / "reports" and not list(given.iterdir())


def test_events_are_scrubbed(folder: RunFolder) -> None:
    folder.events.write("run", replay=f"chaos run --var key={MARK} x.json", deep=[{MARK: MARK}])
    assert folder.close() == ""
    text = (folder.path / "events.jsonl").read_text()
    assert MARK not in text and json.loads(text)["deep"] == [{"<secret>": "<secret>"}]


def test_records_line_by_line(folder: RunFolder) -> None:
    clean = b'{"id":"a","n":1}'
    folder.keep_records([clean + b"\n", json.dumps({"id": MARK}).encode() + b"\n", b'{"id":"' + MARK.encode()])
    lines = (folder.path / "records.jsonl").read_bytes().splitlines()
    assert lines[0] == clean
    assert json.loads(lines[1]) == {"id": "<secret>"}
    assert set(json.loads(lines[2])) == {"unreadable"}


def test_records_that_end_in_the_middle_are_kept(folder: RunFolder) -> None:
    def broken() -> Iterator[bytes]:
        yield b'{"n":1}\n'
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        folder.keep_records(broken())
    assert (folder.path / "records.jsonl").read_bytes() == b'{"n":1}\n'
    assert not list(folder.path.glob(".*"))


def test_journal_and_verdict(folder: RunFolder) -> None:
    folder.keep_journal({"run": [{"output": float("nan"), "key": MARK, "bytes": b"ab"}]})
    folder.keep_verdict({"verdict": "passed", "replay": f"x {MARK}"})
    assert strict_json(folder.path / "journal.json")["run"][0] == {
        "output": "nan", "key": "<secret>", "bytes": "<2 bytes>",
    }  # fmt: skip
    assert strict_json(folder.path / "verdict.json")["replay"] == "x <secret>"
    assert not list(folder.path.glob(".*"))


def medium(kind: str, data: bytes) -> Mapping[str, str]:
    return {"type": kind, "data": base64.b64encode(data).decode()}


def test_samples(folder: RunFolder) -> None:
    kept = folder.keep_samples(
        [
            {
                "lease": "noise/../x", "fault": "image_noise", "kind": "image", "part": 0, "request_id": "cmm-1",
                "achieved": {"psnr_db": 26.0}, "before": medium("image/png", b"\x89PNG1"),
                "after": medium("image/jpeg", b"\xff\xd8"), "unknown": "left out",
            },
            {
                "lease": "tokens", "fault": "text_token_truncation", "kind": "text",
                "before": medium("text/plain; charset=utf-8", f"my {MARK}".encode()),
                "after": medium("text/html", b"<script>"), "media_before": medium("audio/wav", b"RIFF"),
            },
        ]
    )  # fmt: skip
    assert kept[0] == {
        "lease": "noise/../x", "fault": "image_noise", "kind": "image", "part": 0, "request_id": "cmm-1",
        "achieved": {"psnr_db": 26.0}, "before": "samples/noise-x-1-before.png", "after": "samples/noise-x-1-after.jpg",
    }  # fmt: skip
    assert kept[1]["before"] == "samples/tokens-2-before.txt" and "after" not in kept[1]
    assert kept[1]["media_before"] == "samples/tokens-2-media-before.wav"
    assert (folder.path / kept[0]["before"]).read_bytes() == b"\x89PNG1"
    assert (folder.path / kept[1]["before"]).read_text() == "my <secret>"
    assert len(list((folder.path / "samples").iterdir())) == 4


@pytest.mark.parametrize(
    "odd", [None, 3, {}, {"type": "image/png"}, {"type": "image/png", "data": "%%%"}, medium("image/svg+xml", b"<svg>"),
            medium("image/png", b"x" * ((1 << 20) + 1))],
)  # fmt: skip
def test_odd_media_are_left_out(folder: RunFolder, odd: Any) -> None:
    assert folder.keep_samples([{"lease": "a", "before": odd}]) == [{"lease": "a"}]
    assert not (folder.path / "samples").exists()


def full_disk(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The next so many files of this thread do not fit on the disk."""
    fsync, mine, left = os.fsync, threading.get_ident(), [None] * times

    def refused(handle: int) -> None:
        if threading.get_ident() == mine and left:
            left.pop()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", refused)


def test_a_disk_that_filled_meanwhile_has_room_for_the_verdict(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    spare = [one for one in Path("/proc/self/fd").iterdir() if ".spare." in os.path.realpath(one)]
    assert spare and sum(one.stat().st_size for one in spare) >= 100_000
    full_disk(monkeypatch, 1)
    folder.keep_verdict({"verdict": "passed"})
    assert strict_json(folder.path / "verdict.json") == {"verdict": "passed"}
    full_disk(monkeypatch, 1)
    with pytest.raises(OSError, match="No space left"):  # there is no more
        folder.keep_journal({})


def test_without_room_to_set_aside_there_is_a_folder_all_the_same(
    tmp_path: Path, scrub: Scrubber, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", refused)
    folder = make(tmp_path / "reports", scrub)
    folder.keep_verdict({"verdict": "passed"})
    assert folder.close() == "" and (folder.path / "verdict.json").is_file()
