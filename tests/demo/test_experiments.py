"""The runs of a bare demo, and how it ends."""

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from chaos_mm.demo import experiments, lifecycle
from chaos_mm.demo.ports import Ports
from chaos_mm.report.words import WORDS
from chaos_mm.runner.planned import Ended, Planned
from tests.demo.conftest import SUPERVISOR


def test_every_experiment_ships_and_every_option_is_one_of_its_configuration() -> None:
    for one in experiments.planned():
        body = json.loads(Path(one.source).read_text(encoding="utf-8"))
        names = [option.removeprefix("--var=").partition(":")[0] for option in one.options]
        assert set(names) <= set(body["configuration"])
        assert one.expect in WORDS


def test_the_last_is_the_first_at_a_dose_that_breaks() -> None:
    first, *_, last = experiments.planned()
    assert (last.source, first.expect, last.expect) == (first.source, "passed", "deviated")
    assert first.options == () and len(last.options) == 1


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


def test_it_ends_with_the_table_and_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "reports/20261130T120000Z-image-noise-abcdef"
    folder.mkdir(parents=True)
    verdict = {"verdict": "deviated", "experiment": "image-noise", "exit_code": 1}
    (folder / "verdict.json").write_text(json.dumps(verdict), encoding="utf-8")
    shown: list[str] = []
    one = Planned("image-noise.json", ("--var=sigma:float=0.6",), "deviated")
    experiments._tell([Ended(one, folder, 1, "deviated", verdict)], Path("reports"), shown.append)
    assert shown[2].split() == ["image-noise", "sigma:float=0.6", "deviated", "yes"]
    assert shown[-1] == "\nReport: reports/index.html"
    assert (tmp_path / "reports/index.html").is_file()


def test_without_a_demo_a_run_is_refused_and_shown(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = SimpleNamespace(state=SimpleNamespace(exports=Ports(61990).exports()))
    monkeypatch.setattr(experiments, "EXPERIMENTS", experiments.EXPERIMENTS[:1])
    shown: list[str] = []
    (ended,) = experiments._run_each(nobody, tmp_path / "reports", shown.append)  # type: ignore[arg-type]
    assert (ended.word, ended.as_expected) == ("not_applied", False)
    assert "  refused: " in capsys.readouterr().out
    assert shown[0].startswith("image-noise  not_applied (expected passed)")
    assert (lifecycle.logs_dir() / "chaos.log").is_file()
