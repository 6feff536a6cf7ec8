"""Judging: by the code, by the baseline's own answer, and whose code it was."""

from typing import Any

import pytest

from chaos_mm.load.canaries import Canary
from chaos_mm.load.codes import NEIGHBOURS, Codes
from chaos_mm.load.judging import BaselineJudge, CodeJudge, Judge, make_judge


def canary(code: str, kind: str = "image", expected: str = "") -> Canary:
    return Canary(kind, code, expected or code, "what number", [])


def ask(judge: Judge, request_id: str, code: str, baseline: str = "", index: int = 0, **fields: Any) -> Canary:
    asked = canary(code, **fields)
    judge.asked(request_id, asked, index, baseline)
    return asked


def test_right_wrong_and_failed() -> None:
    judge = CodeJudge()
    for request_id, answer, ok, right in (
        ("a", "4072", True, True),
        ("b", "4073", True, False),
        ("c", "4072", False, False),
    ):
        verdict = judge.judge(request_id, ask(judge, request_id, "4072"), answer, ok=ok)
        assert (verdict.exact, verdict.leak, verdict.expected) == (right, False, "4072")


@pytest.mark.parametrize("kind", ["image", "audio", "text", "colour", "agreement"])
def test_another_requests_code_is_a_leak(kind: str) -> None:
    judge = CodeJudge()
    first = ask(judge, "a", "1111")
    judge.judge("a", first, "1111", ok=True)
    second = ask(judge, "b", "4072", kind=kind, expected={"colour": "red", "agreement": "yes"}.get(kind, ""))
    assert judge.judge("b", second, "The number is 1111.", ok=True).leak


@pytest.mark.parametrize("answer", ["4072 and also 9915", "9915\n4072", "I see 4 0 7 2. Before: 9 9 1 5."])
def test_a_leak_beside_ones_own_code(answer: str) -> None:
    judge = CodeJudge()
    ask(judge, "a", "9915")
    assert judge.judge("b", ask(judge, "b", "4072"), answer, ok=True).leak


def test_what_an_answer_is_held_against_is_known_when_it_is_asked() -> None:
    code, baseline = CodeJudge(), BaselineJudge()
    assert code.asked("a", canary("4072", "colour", "red"), 0, "") == "red"
    assert baseline.asked("a", canary("4072"), 0, "r1") == ""
    baseline.judge("a", canary("4072"), "a cat", ok=True)
    assert baseline.asked("b", canary("4072"), 0, "") == "a cat"


def test_a_leak_from_a_request_still_in_flight() -> None:
    judge = CodeJudge()
    slow = ask(judge, "slow", "1111")
    others = [ask(judge, f"n{n}", f"{n:04d}") for n in range(100, 150)]
    assert judge.judge("n149", others[-1], "1111", ok=True).leak
    judge.judge("slow", slow, "1111", ok=True)
    assert not judge.judge("n148", others[-2], "1111", ok=True).leak  # long ago and answered


def test_ones_own_code_and_nonsense_are_no_leaks() -> None:
    judge = CodeJudge()
    first, second = ask(judge, "a", "1111"), ask(judge, "b", "4072")
    assert not judge.judge("a", first, "1111", ok=True).leak
    assert not judge.judge("b", second, "", ok=False).leak
    assert not judge.judge("c", ask(judge, "c", "0000"), "9999", ok=True).leak


def test_misread_codes_are_hardly_ever_taken_for_leaks() -> None:
    # Every answer misses one digit of its own code: with free codes, about 0.5 % would hit a neighbour's.
    judge, codes = CodeJudge(), Codes(3, "s")
    leaks = 0
    for n in range(3000):
        code = codes.next()
        asked = ask(judge, f"r{n}", code)
        wrong = code[: n % 4] + str((int(code[n % 4]) + 1 + n % 9) % 10) + code[n % 4 + 1 :]
        leaks += judge.judge(f"r{n}", asked, wrong, ok=True).leak
    assert leaks == 0


def test_memory_is_bounded() -> None:
    judge = CodeJudge()
    for n in range(1000):
        judge.judge(f"r{n}", ask(judge, f"r{n}", f"{n:04d}"), "", ok=False)
    assert len(judge._recent) == NEIGHBOURS + 1
    assert not judge._open


def test_baseline_reference_is_the_models_own_clean_answer() -> None:
    judge = make_judge("baseline")
    assert isinstance(judge, BaselineJudge)

    def run(request_id: str, answer: str, baseline: str = "", index: int = 0, ok: bool = True) -> bool | None:
        return judge.judge(request_id, ask(judge, request_id, "4072", baseline, index), answer, ok=ok).exact

    assert run("a", "a cat") is None  # nothing to hold it against yet
    assert run("b", "", baseline="r1", ok=False) is False  # a failure never becomes the reference
    assert run("c", "a  cat\n", baseline="r1") is True
    assert run("d", "a dog", baseline="r1") is False  # not even stable: that shows in the baseline
    assert run("e", "a cat") is True
    assert run("f", "a dog") is False
    assert run("g", "a dog", index=1) is None  # another canary of the set
    assert run("h", "", ok=False) is False
    assert run("i", "a dog", baseline="r2") is True  # the next run starts over
    assert run("j", "a cat") is False
