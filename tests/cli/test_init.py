"""Experiments and objectives, written out and never written over."""

from pathlib import Path

from chaos_mm.commands.init import experiments_dir, shipped
from chaos_mm.sli.objectives import load
from tests.cli.conftest import Cli


def test_it_writes_what_ships(cli: Cli, tmp_path: Path) -> None:
    shown = cli("init", str(tmp_path / "mine"))
    assert shown.exit_code == 0
    for source in shipped():
        copy = tmp_path / "mine" / source.relative_to(experiments_dir())
        assert copy.read_bytes() == source.read_bytes()
    assert (tmp_path / "mine" / "image-noise.json").is_file()
    assert set(load(tmp_path / "mine" / "objectives")) == set(load(experiments_dir() / "objectives"))


def test_what_is_there_stays_and_is_named(cli: Cli, tmp_path: Path) -> None:
    mine = tmp_path / "image-noise.json"
    mine.write_text("mine", encoding="utf-8")
    shown = cli("init", str(tmp_path))
    assert shown.exit_code == 0 and f"kept {mine}" in shown.stderr and "1 kept" in shown.stdout
    assert mine.read_text(encoding="utf-8") == "mine"


def test_a_link_is_not_written_through(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "image-noise.json").symlink_to(tmp_path / "elsewhere")
    assert cli("init", str(tmp_path)).exit_code == 0
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_cannot_be_made_is_one_clear_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    shown = cli("init", str(tmp_path / "file" / "inside"))
    assert shown.exit_code == 1
    assert shown.stderr.startswith(f"Error: {tmp_path / 'file'}")
    assert shown.stderr.count("\n") == 1
