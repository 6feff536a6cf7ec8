"""Only plain files are read, and no more of them than was asked for."""

import os
from pathlib import Path

import pytest

from chaos_mm.report import render
from chaos_mm.report.files import plain_bytes
from chaos_mm.report.folder import read
from chaos_mm.report.media import picture
from tests.report.samples import PASSED
from tests.report.stories import write


def test_a_plain_file_up_to_a_length(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    assert plain_bytes(tmp_path / "a", 4) == b"0123" and plain_bytes(tmp_path / "a", 40) == b"0123456789"


@pytest.mark.timeout(20)
def test_links_pipes_folders_and_devices_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a").write_text("outside")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for name, why in (("pipe", "no plain file"), ("link", "a link"), (".", "no plain file")):
        with pytest.raises(OSError, match=why):
            plain_bytes(tmp_path / name, 10)
    with pytest.raises(OSError, match="no plain file"):
        plain_bytes(Path("/dev/zero"), 10)
    with pytest.raises(FileNotFoundError):
        plain_bytes(tmp_path / "nothing", 10)


@pytest.mark.timeout(60)
def test_pipes_in_place_of_a_runs_files_do_not_hold_up_its_page(tmp_path: Path) -> None:
    folder = write(PASSED, tmp_path)
    for name in ("events.jsonl", "verdict.json", "samples/pipe.png"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).parent.mkdir(exist_ok=True)
        os.mkfifo(folder / name)
    found = read(folder)
    assert found.word == "error" and "no plain file" in " ".join(found.notes)
    assert "no plain file" in picture(folder, "samples/pipe.png").problem
    render.run(folder)
    render.all(tmp_path)


def test_a_verdict_that_is_a_link_to_elsewhere_is_not_read(tmp_path: Path) -> None:
    folder = write(PASSED, tmp_path)
    (folder / "verdict.json").rename(tmp_path / "elsewhere.json")
    (folder / "verdict.json").symlink_to(tmp_path / "elsewhere.json")
    found = read(folder)
    assert found.word == "error" and "it is a link" in found.reasons[0].reason
