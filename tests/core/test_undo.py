"""Undo records: durable before the change, private, checked, and swept one by one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.undo import UndoLog, check_private, sweep


@pytest.fixture
def log(tmp_path: Path) -> UndoLog:
    return UndoLog(tmp_path / "undo")


def test_a_record_survives_and_is_swept_once(log: UndoLog):
    log.write("file", {"path": "a", "mode": 420})
    seen: list[Mapping[str, Any]] = []
    assert len(sweep(UndoLog(log.folder), {"file": seen.append}).undone) == 1
    assert seen == [{"path": "a", "mode": 420}]
    assert sweep(log, {"file": seen.append}).undone == ()


def test_one_failing_undo_never_stops_the_others(log: UndoLog):
    records = [log.write("file", {"n": n}) for n in range(3)]
    done: list[int] = []

    def undo(data: Mapping[str, Any]) -> None:
        if data["n"] == 1:
            raise KeyError("cannot be proven")
        done.append(data["n"])

    swept = sweep(log, {"file": undo})
    assert done == [0, 2]
    assert swept.failed == {records[1].id: "KeyError: 'cannot be proven'"}
    assert [record.id for record in log.pending()[0]] == [records[1].id]


def test_an_unknown_kind_is_left_and_named(log: UndoLog):
    record = log.write("moon", {})
    assert sweep(log, {}).failed == {record.id: "no handler for kind 'moon'"}


def test_files_are_private_and_a_changed_one_is_not_trusted(log: UndoLog):
    log.write("file", {"path": "/tmp/a"})
    path = next(log.folder.glob("*.undo"))
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text(path.read_text().replace("/tmp/a", "/tmp/b"))
    swept = sweep(log, {"file": lambda data: pytest.fail("undone from a changed record")})
    assert "checksum" in next(iter(swept.failed.values()))


@pytest.mark.parametrize("text", ["[]", '{"record": 5}', '"a"', "null", "{", "[" * 5000, ""])
def test_a_file_that_is_no_record_does_not_stop_the_sweep(log: UndoLog, text: str):
    log.write("file", {"n": 1})
    (log.folder / "x.undo").write_text(text)
    seen: list[Mapping[str, Any]] = []
    assert "x.undo" in sweep(log, {"file": seen.append}).failed
    assert seen == [{"n": 1}]


def test_a_record_too_large_to_read_back_is_refused_before_the_change(log: UndoLog):
    with pytest.raises(ValueError, match="above the limit"):
        log.write("file", {"x": "y" * (1 << 21)})
    assert log.pending() == ([], {})


def test_a_link_in_place_of_a_record_is_not_followed(log: UndoLog, tmp_path: Path):
    (tmp_path / "target").write_text("{}")
    (log.folder / "x.undo").symlink_to(tmp_path / "target")
    assert "x.undo" in sweep(log, {}).failed


def test_done_forgets_and_gone_is_fine(log: UndoLog):
    record = log.write("file", {})
    log.done(record)
    log.done(record)
    assert log.pending() == ([], {})


def test_data_must_be_strict_json(log: UndoLog):
    with pytest.raises(ValueError, match="JSON"):
        log.write("file", {"x": float("nan")})


def test_an_open_or_linked_folder_is_refused(tmp_path: Path):
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(ChaosMMError, match="open to others"):
        UndoLog(tmp_path / "open")
    (tmp_path / "link").symlink_to(tmp_path / "open")
    with pytest.raises(ChaosMMError, match="symbolic link"):
        check_private(tmp_path / "link")
