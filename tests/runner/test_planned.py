"""What an ended run stands for."""

import pytest

from chaos_mm.runner.planned import Planned
from tests.runner.runs import ended, verdict


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("a/b/image-noise.json", "image-noise"),
        ("http://x/y/z.yaml", "z"),
        ("x", "x"),
        ("http://x.y/a/", "a"),
        (".json", ".json"),
    ],
)
def test_its_name_is_the_stem(source: str, name: str) -> None:
    assert Planned(source).name == name


def test_expected_is_the_command_lines_word_then_the_files_then_passed() -> None:
    assert ended(expect="halted", found=verdict("passed", expect="deviated")).expected == "halted"
    assert ended(found=verdict("passed", expect="deviated")).expected == "deviated"
    assert ended(found={}).expected == "passed"


def test_a_dry_run_will_do_where_it_was_to_pass() -> None:
    assert ended("dry").as_expected
    assert not ended("dry", expect="deviated").as_expected


@pytest.mark.parametrize(
    ("status", "as_expected", "said", "code"),
    [(0, True, "exit 0", 0), (1, False, "exit 1", 1), (-9, False, "killed by SIGKILL", 4)],
)
def test_a_foreign_run_is_known_by_its_status(status: int, as_expected: bool, said: str, code: int) -> None:
    run = ended("", status, found={})
    assert (run.as_expected, run.said, run.exit_code) == (as_expected, said, code)


def test_a_word_of_ours_keeps_the_exit_status_and_an_error_is_4_whatever_the_status() -> None:
    assert ended("deviated", 1).exit_code == 1
    assert ended("error", 0).exit_code == 4
