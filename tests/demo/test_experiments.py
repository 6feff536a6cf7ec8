"""The closing table of a bare demo, and what makes it fail."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.demo import experiments, lifecycle
from chaos_mm.demo.experiments import EXPERIMENTS, Outcome, chaos_command, own_summary, report, run_one
from chaos_mm.demo.ports import Ports
from chaos_mm.sli.objectives import packaged_dir
from tests.demo.conftest import SUPERVISOR


def answer(value: float) -> dict[str, Any]:
    return {"measured": True, "value": value, "samples": 40, "unit": "ratio", "window_seconds": 10.0, "reason": ""}


def summary(**lease: Any) -> dict[str, Any]:
    held = {"params": {"sigma": 0.2}, "matched": 40, "applied": 38, "ended_by": "release"}
    held["achieved"] = {"psnr_db": {"count": 38, "mean": 14.213, "min": 14.1, "max": 14.4}}
    phases = {"baseline": {"canary_exact": answer(1.0)}, "fault": {"canary_exact": answer(0.25)}, "recovery": {}}
    return {"run": "r1", "fault": "image_noise", "lease": {**held, **lease}, "phases": phases}


def test_the_table_says_what_was_injected_hit_and_measured() -> None:
    text = "\n".join(report([Outcome("image-noise", 0, summary())]))
    assert "injected   image_noise (sigma=0.2)" in text
    assert "hit        38 of 40 matching requests" in text
    assert "achieved   psnr_db 14.21" in text
    assert "canary_exact baseline 1.000 (n=40)   fault 0.250 (n=40)   recovery no data" in text
    assert "passed" not in text
    assert "WRONG" not in text


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome("x", 1, summary()), "exit status 1"),
        (Outcome("x", 0), "left no summary"),
        (Outcome("x", 0, summary(applied=0)), "no request was hit"),
        (Outcome("x", 0, summary(ended_by="ttl")), "ended by 'ttl', not by release"),
        (Outcome("x", 0, summary(ended_by="", released=False)), "was not released"),
        (Outcome("x", 0, {"lease": None, "phases": {}}), "no request was hit"),
    ],
)
def test_a_run_that_went_wrong_says_so(outcome: Outcome, words: str) -> None:
    assert words in outcome.trouble
    assert any("WENT WRONG" in line and words in line for line in report([outcome]))


def test_a_good_run_has_no_trouble() -> None:
    assert Outcome("x", 0, summary()).trouble == ""


def test_every_experiment_of_the_demo_ships() -> None:
    assert all((packaged_dir().parent / f"{name}.json").is_file() for name in EXPERIMENTS)


def test_chaos_is_the_one_beside_this_python() -> None:
    (chaos,) = chaos_command()
    assert Path(chaos).name == "chaos"
    assert os.access(chaos, os.X_OK)


def test_the_summary_of_a_run_is_that_of_its_own_process(tmp_path: Path) -> None:
    for name, pid in (("r1", 7), ("r2", 8), ("r3", 9)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"run": name, "pid": pid}), encoding="utf-8")
    (tmp_path / "r0.json").write_text(json.dumps({"run": "r0"}), encoding="utf-8")
    paths = list(tmp_path.iterdir())
    assert own_summary(paths, 8)["run"] == "r2"
    assert own_summary(paths, 10) == {}


def test_a_run_tells_its_pid_and_its_status(tmp_path: Path) -> None:
    shown: list[str] = []
    code = "import os, sys; print(os.getpid()); sys.exit(3)"
    status, pid = experiments._follow([sys.executable, "-c", code], tmp_path, dict(os.environ), shown.append)
    assert (status, shown) == (3, [str(pid)])


def test_a_second_interrupt_while_it_goes_down_leaves_nothing(home: Path, base_port: int) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    demo = lifecycle.up(base_port, lambda text: None, True, SUPERVISOR)

    def show(text: str) -> None:
        assert "Bringing the demo down" in text
        for number in before:
            os.kill(os.getpid(), number)

    def cut_short(number: int, frame: object) -> None:
        raise AssertionError(f"signal {number} cut it short")

    try:
        for number in before:
            signal.signal(number, cut_short)
        experiments._bring_down(demo, show)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert lifecycle.read() is None and Ports(base_port).taken() == []
    assert not demo.state.supervised


def test_without_a_demo_the_run_is_refused_and_shown(home: Path) -> None:
    nobody = {**os.environ, **Ports(61990).exports(), "CHAOS_MM_OBJECTIVES": str(packaged_dir())}
    shown: list[str] = []
    outcome = run_one("image-noise", nobody, shown.append)
    assert outcome.trouble
    assert any("refuses to begin" in line for line in shown), shown
