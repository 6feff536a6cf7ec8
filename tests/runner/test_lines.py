"""The line of a run, and the table of several."""

from chaos_mm.runner.lines import line, table, worst
from tests.runner.runs import answer, ended, objective, verdict


def test_the_line_says_experiment_word_hits_worst_objective_and_folder() -> None:
    run = ended(found=verdict("passed", objective("picture-answers", 0.5, fault=0.74)))
    assert line(run) == (
        "image-noise  passed  hits 38/40  picture-answers 0.74 (≥ 0.5) in fault  "
        "reports/20261130T120000Z-image-noise-abcdef"
    )


def test_a_run_that_never_was_says_what_there_is() -> None:
    assert line(ended("error", -9, found={})).startswith("image-noise  error  reports/")


def test_a_word_that_was_not_expected_says_what_was() -> None:
    assert "  passed (expected deviated)  " in line(ended(expect="deviated"))


def test_the_worst_is_what_used_most_of_its_error_budget_whichever_way_that_lies() -> None:
    high = objective("latency", 2.0, "lte", baseline=1.0, fault=2.2)
    low = objective("answers", 0.5, fault=0.3, recovery=0.9)
    whole = objective("availability", 0.99, fault=1.0)
    mild = objective("pictures", 0.5, baseline=0.99, fault=0.74)
    leaks = objective("leaks", 0.0, "lte", baseline=0.0, fault=0.0)
    assert worst(verdict("deviated", whole, high, low)) == "answers 0.3 (≥ 0.5) in fault"
    assert worst(verdict("deviated", whole, high, mild)) == "latency 2.2 (≤ 2) in fault"
    assert worst(verdict("passed", whole, leaks, mild)) == "pictures 0.74 (≥ 0.5) in fault"
    assert worst(verdict("passed", objective("answers", 0.5, baseline=1.0, fault=1.0))) == "answers 1 (≥ 0.5) in fault"
    assert worst(verdict("deviated", mild, objective("leaks", 0.0, "lte", fault=1.0))).startswith("leaks 1 (≤ 0)")


def test_no_data_is_worst_of_all_and_an_objective_that_was_only_watched_is_no_verdict() -> None:
    watched = {**objective("watched", 0.5, fault=0.0), "named": False}
    blind = objective("blind", 0.5, fault=None)
    assert worst(verdict("no_data", objective("low", 0.5, fault=0.1), watched, blind)) == "blind no data in fault"
    assert worst({"objectives": ["junk", {"phases": None}]}) == ""
    assert worst({}) == ""


def test_a_phase_that_was_cut_short_owes_no_data() -> None:
    cut, fine = objective("blind", 0.5, fault=None), objective("answers", 0.5, baseline=0.9)
    for word in ("interrupted", "halted", "not_applied"):
        assert worst(verdict(word, cut, fine)) == "answers 0.9 (≥ 0.5) in baseline"
        assert worst(verdict(word, cut)) == ""


def test_the_table_leaves_out_columns_with_nothing_in_them() -> None:
    assert table([ended("", 0, found={})], expectations=False) == ["experiment   verdict", "image-noise  exit 0"]


def test_the_table_names_variables_expectations_and_recovery() -> None:
    strong = ended(
        "deviated", 1, "deviated", options=("--var=sigma:float=0.5", "--var", "x=1", "--dry=actions"),
        found=verdict("deviated", objective("answers", 0.5, fault=0.1), recovery_seconds=answer(1.25)),
    )  # fmt: skip
    shown = table([ended(), strong, ended("halted", 1)])
    assert [" ".join(row.split()) for row in shown] == [
        "experiment verdict as expected hits worst objective recovered in",
        "image-noise passed yes 38/40",
        "image-noise sigma:float=0.5 x=1 deviated yes 38/40 answers 0.1 (≥ 0.5) in fault 1.2 s",
        "image-noise halted no: passed 38/40",
    ]
    assert len({row.index("38/40") for row in shown[1:]}) == 1
