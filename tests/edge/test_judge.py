"""Every rule from facts to words, and the order of the words."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from chaos_mm.controls.facts import Facts, Hits, Reason, Residue, Window
from chaos_mm.controls.judge import Judged, expected_hits, judge
from chaos_mm.report.words import EXIT_CODES, WORDS

HIT = Hits("noise", "image_noise", matched=40, applied=38, achieved={"psnr_db": 26.0})
MET = tuple(Window("answers", phase, True, True, 11) for phase in ("baseline", "fault", "recovery"))
WELL = Facts(planned=("noise",), hits=(HIT,), windows=MET)


def words(**changes: Any) -> tuple[str, ...]:
    """Of a run that went well but for the changes."""
    return judge(replace(WELL, **changes)).words


def hit(**changes: Any) -> tuple[str, ...]:
    return words(hits=(replace(HIT, **changes),))


def window(phase: str, **changes: Any) -> tuple[str, ...]:
    """Of a run of which one phase's window is changed."""
    return words(windows=tuple(replace(one, **changes) if one.phase == phase else one for one in MET))


def test_all_well_is_passed_and_says_what_was_hit() -> None:
    judged = judge(WELL)
    assert (judged.word, judged.words, judged.exit_code) == ("passed", ("passed",), 0)
    assert judged.why.startswith("image_noise hit 38 of 40 matching requests; 1 objective was met in every window")


def test_a_file_that_injects_nothing_tests_nothing() -> None:
    judged = judge(Facts(harmless=True, windows=MET))
    assert judged.words == ("not_applied",)
    assert judged.why == "the file injects nothing, so nothing was tested"


def test_without_a_recovery_nobody_knows_whether_it_came_back() -> None:
    assert words(windows=MET[:2]) == ("no_data",)
    assert words(windows=MET[:2], cut="fault", noted=(Reason("halted", "a guard"),)) == ("halted",)
    assert words(windows=()) == ("no_data",)


@pytest.mark.parametrize(
    ("matched", "rate", "least"),
    [(0, 1.0, 1), (1, 1.0, 1), (2, 1.0, 1), (3, 1.0, 2), (40, 1.0, 20), (41, 1.0, 21), (40, 0.5, 10), (40, 0.0, 1)],
)
def test_half_of_what_a_lease_was_to_hit_is_the_least_that_counts(matched: int, rate: float, least: int) -> None:
    assert expected_hits(replace(HIT, matched=matched, rate=rate)) == least
    assert hit(matched=matched, rate=rate, applied=least) == ("passed",)
    assert hit(matched=matched, rate=rate, applied=least - 1) == ("not_exercised",)


@pytest.mark.parametrize(
    ("limit", "matched", "rate", "least"),
    [
        (1, 1, 1.0, 1),
        (1, 40, 1.0, 1),  # one was to be hit, and its batch-mates were to be spared
        (4, 40, 1.0, 2),
        (5, 40, 1.0, 3),
        (5, 3, 1.0, 2),  # fewer came than it would have hit
        (5, 40, 0.1, 2),  # its rate says four
        (8, 40, 0.0, 1),
    ],
)
def test_a_limit_is_the_most_that_a_lease_is_to_hit(limit: int, matched: int, rate: float, least: int) -> None:
    limited = {"limit": limit, "matched": matched, "rate": rate}
    assert expected_hits(replace(HIT, **limited)) == least
    assert hit(**limited, applied=least) == ("passed",)
    assert hit(**limited, applied=least - 1) == ("not_exercised",)
    assert hit(**limited, applied=max(least, limit), ended_by="limit") == ("passed",)


def test_a_limit_that_was_not_reached_excuses_no_early_end() -> None:
    five = {"limit": 5, "matched": 40}
    assert hit(**five, applied=2, ended_by="ttl") == ("error", "not_exercised")
    assert hit(**five, applied=3, ended_by="ttl") == ("error",)
    assert hit(**five, applied=3, ended_by="keepalive") == ("error",)
    assert hit(**five, applied=3, ended_by="release") == ("passed",)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"ended_by": "ttl"}, "error"),
        ({"ended_by": "keepalive"}, "error"),
        ({"ended_by": "process"}, "error"),
        ({"ended_by": "stop"}, "interrupted"),
        ({"ended_by": "limit"}, "passed"),
        ({"ended_by": "release"}, "passed"),
        ({"mode": "observe", "applied": 0}, "not_exercised"),
    ],
)
def test_how_a_lease_ended(changes: dict[str, Any], word: str) -> None:
    assert hit(**changes) == (word,)


@pytest.mark.parametrize(
    ("least", "word"),
    [
        ({"psnr_db": 26.0}, "passed"),
        ({"psnr_db": 26.1}, "not_exercised"),
        ({"tokens_cut": 1.0}, "not_exercised"),  # no fault says what it achieved there
        ({"psnr_db": 20.0, "tokens_cut": 0.0}, "not_exercised"),
    ],
)
def test_what_was_achieved(least: dict[str, float], word: str) -> None:
    assert words(min_achieved=least) == (word,)


def test_what_one_fault_achieves_is_not_asked_of_another() -> None:
    other = Hits("cut", "text_token_truncation", 10, 10, achieved={"tokens_cut": 3.0})
    assert words(hits=(HIT, other), min_achieved={"tokens_cut": 2.0}) == ("passed",)
    assert words(hits=(HIT, other), min_achieved={"tokens_cut": 4.0}) == ("not_exercised",)


def test_a_value_that_is_no_number_is_below_everything() -> None:
    assert hit(achieved={"psnr_db": float("nan")}) == ("passed",)
    assert words(hits=(replace(HIT, achieved={"psnr_db": float("nan")}),), min_achieved={"psnr_db": 0.0}) == (
        "not_exercised",
    )


@pytest.mark.parametrize(
    ("phase", "broken", "lacking"),
    [
        ("baseline", "not_steady", "not_steady"),
        ("fault", "deviated", "no_data"),
        ("recovery", "deviated", "no_data"),
    ],
)
def test_the_worst_window_of_a_phase(phase: str, broken: str, lacking: str) -> None:
    assert window(phase, met=False) == (broken,)
    assert window(phase, measured=False, met=False, windows=0) == (lacking,)
    assert window(phase, without_data=2) == (lacking,)  # 2 of 11 are more than a tenth
    assert window(phase, without_data=1) == ("passed",)


def test_a_broken_window_counts_though_others_have_no_data() -> None:
    assert window("fault", met=False, without_data=5) == ("deviated", "no_data")


def test_a_phase_that_was_cut_short_owes_no_data_but_answers_for_what_was_seen() -> None:
    lacking = tuple(replace(one, measured=False, met=False) if one.phase == "fault" else one for one in MET)
    broken = tuple(replace(one, met=False) if one.phase == "fault" else one for one in MET)
    stopped = (Reason("interrupted", "received SIGTERM"),)
    assert words(windows=lacking, cut="fault", noted=stopped) == ("interrupted",)
    assert words(windows=broken, cut="fault", noted=stopped) == ("interrupted", "deviated")


@pytest.mark.parametrize(
    ("phase", "word"), [("baseline", "not_steady"), ("fault", "deviated"), ("recovery", "deviated")]
)
def test_what_a_guard_forbids_altogether_is_judged_without_being_named(phase: str, word: str) -> None:
    leaks = Window("canaries-kept-apart", phase, True, False, 11, reason="leak_count is 4, not at most 2")
    assert words(guarded=(leaks,)) == (word,)
    assert words(guarded=(replace(leaks, met=True),)) == ("passed",)
    # It owes no data: in a run without requests of its kind there is nothing to forbid.
    assert words(guarded=(replace(leaks, measured=False),)) == ("passed",)


def test_what_was_planned_and_did_not_happen_is_not_applied() -> None:
    assert words(hits=()) == ("not_applied",)
    assert words(planned=("noise", "second")) == ("not_applied",)
    why = Reason("not_applied", "the proxy is held by somebody")
    assert judge(replace(WELL, hits=(), noted=(why,))).reasons == (why,)


def test_a_file_that_injects_nothing_of_ours_is_judged_as_any_other() -> None:
    assert words(planned=(), hits=()) == ("passed",)


def test_without_anything_measured_there_is_no_verdict_to_pass() -> None:
    assert words(windows=()) == ("no_data",)
    assert words(windows=(), judged_by_toolkit=True) == ("passed",)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"residue": Residue(2, (), "noise of r1 at http://x")}, "2 of this run's leases still live: noise of r1"),
        ({"residue": Residue(0, ("the proxy http://x, which does not answer",))}, "nobody can vouch"),
        ({"target_gone": True}, "the target did not come back"),
    ],
)
def test_what_is_left_behind_comes_first(changes: dict[str, Any], text: str) -> None:
    judged = judge(replace(WELL, noted=(Reason("error", "x"),), **changes))
    assert (judged.word, judged.exit_code) == ("not_restored", 5)
    assert text in judged.why


def test_an_undo_that_is_not_proven_is_left_behind() -> None:
    judged = judge(replace(WELL, hits=(replace(HIT, undo="2 blocks hold what nobody wrote"),)))
    assert judged.words == ("not_restored",)
    assert judged.why == "the undo of image_noise ('noise') is not proven: 2 blocks hold what nobody wrote"


@pytest.mark.parametrize(
    ("answers", "replaced", "text"),
    [
        (None, True, "nothing answered at the target's address at the start"),
        (False, True, "the target does not answer"),
        (True, None, "its /metrics has no process_start_time_seconds"),
        (True, False, "the process that served at the start still serves"),
        (True, True, ""),
    ],
)
def test_after_a_fatal_fault_another_process_must_serve(answers: bool | None, replaced: bool | None, text: str) -> None:
    fatal = replace(HIT, fatal="restart needed: it exits")
    judged = judge(replace(WELL, hits=(fatal,), target_answers=answers, target_replaced=replaced))
    assert (judged.word == "passed") is (text == "")
    assert text in judged.why
    # What the fault never did needs no restart, and what the point itself saw replaced is.
    idle = replace(fatal, applied=0)
    assert judge(replace(WELL, hits=(idle,), target_answers=True, target_replaced=False)).words == ("not_exercised",)
    seen = replace(fatal, replaced=True)
    assert judge(replace(WELL, hits=(seen,), target_answers=True, target_replaced=False)).words == ("passed",)


DIED = replace(HIT, fatal="restart needed: it exits", matched=9, applied=1, ended_by="process")
SERVES = {"target_answers": True, "target_replaced": True}


def test_a_point_that_died_with_its_engine_is_no_error_once_another_serves() -> None:
    judged = judge(replace(WELL, hits=(DIED,), **SERVES))
    assert judged.words == ("passed",)
    assert judged.why.startswith("image_noise hit 1 of 9 matching requests")
    still = judge(replace(WELL, hits=(DIED,), target_answers=True, target_replaced=False))
    assert still.words == ("not_restored", "error")


@pytest.mark.parametrize("matched", [0, 9])
def test_an_engine_that_was_replaced_by_chance_shows_nothing_of_a_fault_without_a_hit(matched: int) -> None:
    judged = judge(replace(WELL, hits=(replace(DIED, matched=matched, applied=0),), **SERVES))
    assert judged.words == ("not_exercised",)
    assert judged.why.endswith("nothing shows that it was this fault that ended the engine")


def test_of_what_need_not_be_restarted_a_replaced_point_stays_an_error() -> None:
    assert words(hits=(replace(DIED, fatal="", applied=9),), **SERVES) == ("error",)


@pytest.mark.parametrize(
    ("gone", "answers", "replaced", "text"),
    [
        (True, True, True, ""),
        (False, True, True, "is not proven: still under way"),  # a host's hold, or the same process serves the point
        (True, True, None, "its process was replaced since, but whether another process serves cannot be told"),
        (True, True, False, "its process was replaced since, but the process that served at the start still serves"),
        (True, False, True, "the target does not answer"),
        (True, None, True, "nothing answered at the target's address at the start"),
    ],
)
def test_what_a_dead_process_had_not_undone_is_gone_with_it(
    gone: bool, answers: bool | None, replaced: bool | None, text: str
) -> None:
    owing = replace(HIT, undo="still under way", gone=gone)
    judged = judge(replace(WELL, hits=(owing,), target_answers=answers, target_replaced=replaced))
    assert (judged.word == "passed") is (text == "")
    assert text in judged.why
    assert text or "the undo of image_noise is proven by replacement: the process that held it is gone" in judged.why


def test_a_kill_that_falls_into_the_undo_of_another_fault() -> None:
    killed = Hits("kill", "process_kill", 1, 1, fatal="restart needed", replaced=True)
    owing = replace(HIT, undo="still under way", gone=True)
    assert words(hits=(owing, killed), **SERVES) == ("passed",)
    assert words(hits=(owing, replace(killed, undo="none serves in its place")), **SERVES) == ("not_restored",)


def test_why_a_fault_did_not_come_to_be_is_told() -> None:
    judged = judge(replace(WELL, hits=(replace(HIT, applied=0, failed="it broke on the way up"),)))
    assert judged.words == ("not_exercised",) and judged.why.endswith(": it broke on the way up")


def test_a_refused_run_is_judged_by_its_refusals_alone() -> None:
    refused = Facts(noted=(Reason("not_applied", "absent"),), refused=True, planned=("noise",))
    assert judge(refused).words == ("not_applied",)
    both = replace(refused, noted=(Reason("not_applied", "absent"), Reason("error", "bad value")))
    assert judge(both).words == ("error", "not_applied")


def test_a_control_that_never_began_is_an_error() -> None:
    assert "error" in words(begun=False)


@pytest.mark.parametrize("dry", ["actions", "activities"])
def test_a_dry_run(dry: str) -> None:
    facts = Facts(dry=dry, planned=("noise",))
    assert (judge(facts).word, judge(facts).exit_code) == ("dry", 0)
    noted = (Reason("not_steady", "the gate"), Reason("no_data", "a probe"))
    assert judge(replace(facts, noted=noted)).words == ("dry",)
    stopped = (Reason("interrupted", "received SIGTERM"),)
    assert judge(replace(facts, noted=stopped)).words == ("interrupted", "dry")
    refused = replace(facts, refused=True, noted=(Reason("error", "bad value"),))
    assert judge(refused).words == ("error",)


def test_the_first_true_word_decides_and_all_are_listed_worst_first() -> None:
    noted = [word for word in WORDS if word not in ("passed", "dry")]
    for pair in itertools.permutations(noted, 2):
        judged = judge(Facts(refused=True, noted=tuple(Reason(word, f"why {word}") for word in pair)))
        assert judged.words == tuple(sorted(pair, key=WORDS.index))
        assert judged.word == judged.words[0]
        assert judged.exit_code == EXIT_CODES[judged.word]
        assert judged.why == f"why {judged.word}"
        assert [one.word for one in judged.reasons] == list(judged.words)


def test_the_same_reason_is_said_once() -> None:
    twice = (Reason("interrupted", "received SIGTERM"),) * 2
    assert len(judge(Facts(noted=twice, windows=MET)).reasons) == 1


def test_the_json_of_a_verdict() -> None:
    judged = Judged("deviated", ("deviated",), (Reason("deviated", "fault: too low"),))
    assert judged.to_json() == {
        "verdict": "deviated",
        "words": ["deviated"],
        "reasons": [{"word": "deviated", "reason": "fault: too low"}],
        "exit_code": 1,
    }
