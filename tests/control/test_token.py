"""The token's file: made once, private, never followed through a link."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chaos_mm.control.state import state_dir
from chaos_mm.control.token import load_or_create_token, read_token, token_path
from chaos_mm.core.errors import ChaosMMError, Unauthorized


def test_made_once_private_and_read_by_all(tmp_path: Path):
    path = tmp_path / "state" / "token"
    with ThreadPoolExecutor(16) as pool:
        tokens = set(pool.map(lambda _: load_or_create_token(path), range(64)))
    assert len(tokens) == 1
    assert len(tokens.pop()) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [p.name for p in path.parent.iterdir()] == ["token"]


def test_a_reader_without_a_token_is_told_what_to_do(tmp_path: Path):
    with pytest.raises(Unauthorized, match="the first point to start makes it"):
        read_token(tmp_path / "token")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602, 0o666])
def test_a_file_open_to_others_is_refused(tmp_path: Path, mode: int):
    path = tmp_path / "token"
    path.write_text("x" * 40)
    path.chmod(mode)
    with pytest.raises(ChaosMMError, match="open to others"):
        load_or_create_token(path)


def test_a_link_is_refused_even_to_a_good_file(tmp_path: Path):
    good = tmp_path / "good"
    load_or_create_token(good)
    (tmp_path / "token").symlink_to(good)
    with pytest.raises(ChaosMMError, match="plain file"):
        load_or_create_token(tmp_path / "token")


def test_a_dangling_link_is_not_written_through(tmp_path: Path):
    (tmp_path / "token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ChaosMMError, match="plain file"):
        load_or_create_token(tmp_path / "token")
    assert not (tmp_path / "elsewhere").exists()


def test_a_pipe_or_folder_is_refused_without_hanging(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    for name in ("pipe", "folder"):
        with pytest.raises(ChaosMMError, match=r"plain file|cannot be read"):
            read_token(tmp_path / name)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_another_user_s_file_is_refused(tmp_path: Path):
    path = tmp_path / "token"
    path.write_text("x" * 40)
    path.chmod(0o600)
    os.chown(path, 65534, 65534)
    with pytest.raises(ChaosMMError, match="belongs to user 65534"):
        read_token(path)


@pytest.mark.parametrize("text", ["", "short", "x" * 39 + "\n" + "y", "ü" * 40, "x" * 300])
def test_what_is_no_token_is_refused_without_being_shown(tmp_path: Path, text: str):
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ChaosMMError, match="holds no token") as caught:
        read_token(path)
    assert not text or text not in str(caught.value)


def test_the_state_folder_is_made_private_and_a_bad_one_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CHAOS_MM_STATE_DIR", str(tmp_path / "a" / "b"))
    assert state_dir().stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("CHAOS_MM_TOKEN_FILE", raising=False)
    assert token_path() == tmp_path / "a" / "b" / "token"
    (tmp_path / "a" / "b").chmod(0o755)
    with pytest.raises(ChaosMMError, match="open to others"):
        state_dir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    monkeypatch.setenv("CHAOS_MM_STATE_DIR", str(tmp_path / "link"))
    with pytest.raises(ChaosMMError, match="symbolic link"):
        state_dir()
