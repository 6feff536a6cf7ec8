"""Samples are embedded whole or not at all, and nothing outside the folder is ever read."""

import base64
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from chaos_mm.report import media
from chaos_mm.report.media import compared, picture, sound, words
from tests.report.media import pictures, spectrograms


def encoded(kind: str) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (7, 5), "red").save(out, kind)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "kind"), [("a.png", "PNG"), ("a.jpg", "JPEG"), ("a.JPEG", "JPEG"), ("a.webp", "WEBP")]
)
def test_a_whole_picture_comes_back_from_its_address(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / name).write_bytes(encoded(kind))
    found = picture(tmp_path, name)
    head, _, data = found.uri.partition(";base64,")
    assert head == f"data:image/{kind.lower()}" and found.problem == ""
    assert Image.open(io.BytesIO(base64.b64decode(data))).size == (7, 5)


@pytest.mark.parametrize(("name", "kind"), [("a.png", "PNG"), ("a.jpg", "JPEG"), ("a.webp", "WEBP")])
def test_a_picture_cut_at_any_byte_is_not_shown_and_that_is_said(tmp_path: Path, name: str, kind: str) -> None:
    whole = encoded(kind)
    for length in range(len(whole)):
        (tmp_path / name).write_bytes(whole[:length])
        found = picture(tmp_path, name)
        assert found.uri == "" and ("cut off" in found.problem or "empty" in found.problem), length


def test_a_cut_sound_is_not_played(tmp_path: Path) -> None:
    told = spectrograms(tmp_path, 0.3)
    assert sound(tmp_path, told["media_after"]).uri.startswith("data:audio/wav;base64,UklGR")
    path = tmp_path / told["media_after"]
    path.write_bytes(path.read_bytes()[:-1])
    assert "cut off" in sound(tmp_path, told["media_after"]).problem


def test_nothing_outside_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(encoded("PNG"))
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    for name in ("../secret.png", str(tmp_path / "secret.png"), "link.png", "samples/../../secret.png"):
        assert picture(folder, name).uri == "" and "outside" in picture(folder, name).problem
    assert words(folder, "../secret.png")[0] == ""


@pytest.mark.parametrize("name", ["", "a\0.png", "nowhere.png", "x" * 5000 + ".png", "a.svg", "a.html", "a.wav", "."])
def test_names_of_nothing_are_said(tmp_path: Path, name: str) -> None:
    found = picture(tmp_path, name)
    assert found.uri == "" and 0 < len(found.problem) < 300


def test_what_is_too_large_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "_MOST_BYTES", 100)
    told = pictures(tmp_path, 0.2)
    assert "longer than" in picture(tmp_path, told["before"]).problem


def test_a_folder_is_no_picture(tmp_path: Path) -> None:
    (tmp_path / "a.png").mkdir()
    assert "cannot be read" in picture(tmp_path, "a.png").problem


def test_words_are_made_fit_and_cut(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\x00b\xff" + b"c" * 9000)
    found, problem = words(tmp_path, "a.txt")
    assert found.startswith("a\ufffdb\ufffdccc") and len(found) == 4000 and problem == ""


def test_what_was_cut_and_what_came_is_marked() -> None:
    left, right = compared("repeat the code 4071 please", "repeat the number 4071")
    assert left == [(False, "repeat the "), (True, "code"), (False, " 4071"), (True, " please")]
    assert right == [(False, "repeat the "), (True, "number"), (False, " 4071")]


@given(st.text(max_size=80), st.text(max_size=80))
def test_comparing_loses_no_letter(before: str, after: str) -> None:
    left, right = compared(before, after)
    assert ("".join(piece for _, piece in left), "".join(piece for _, piece in right)) == (before, after)
    unchanged = ["".join(piece for changed, piece in side if not changed) for side in (left, right)]
    assert unchanged[0] == unchanged[1]


@pytest.mark.timeout(60)
def test_texts_of_a_few_words_over_and_over_are_compared_in_a_moment() -> None:
    before, after = "a " * 2000, "b a " * 1000
    left, right = compared(before, after)
    assert "".join(told for _, told in left) == before and "".join(told for _, told in right) == after


def test_a_long_text_cut_short_shows_only_the_cut() -> None:
    before = "the quick brown fox jumps over the lazy dog and. " * 60
    left, right = compared(before, before[:1503])
    assert sum(len(told) for changed, told in left if not changed) >= 1490
    assert not any(changed for changed, told in right if len(told) > 12)
