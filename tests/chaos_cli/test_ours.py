"""Experiments of ours, alone and in a list, against a bare point; no canary passes it, so nothing is hit."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.chaos_cli.programs import Result, chaos, finish, start
from tests.edge.chaos import activity, experiment, wait_for
from tests.edge.conftest import CLOSED, BarePoint, heard_signals, make_point, point, token

__all__ = ["heard_signals", "make_point", "point", "token"]
INJECT = activity("inject_image_noise", sigma=0.1, ttl_seconds=60, keepalive_seconds=60)


def short(**more: Any) -> dict[str, Any]:
    return experiment(INJECT, activity("hold", seconds=0.2), activity("release", lease="image_noise"), **more)


@pytest.fixture
def addresses(tmp_path: Path, point: BarePoint) -> dict[str, str]:
    point.canaries = False
    nobody = {f"CHAOS_MM_{name}_CONTROL_URL": CLOSED for name in ("AGENT", "HOST", "LOAD")}
    return {**nobody, "CHAOS_MM_STATE_DIR": str(tmp_path), "CHAOS_MM_PROXY_CONTROL_URL": point.url}


def write(folder: Path, **bodies: Any) -> None:
    for name, body in bodies.items():
        (folder / f"{name}.json").write_text(json.dumps(body), encoding="utf-8")


def folders(tmp_path: Path) -> list[Path]:
    return sorted(path for path in (tmp_path / "reports").iterdir() if path.is_dir())


def live(point: BarePoint) -> list[str]:
    return [one["name"] for one in point.client.leases() if not one["ended_by"]]


def test_one_source_keeps_its_options_and_has_the_verdicts_status(tmp_path: Path, addresses: dict[str, str]) -> None:
    write(tmp_path, x=short(configuration={"y": 0}))
    done = chaos(tmp_path, "run", "--journal-path", "j.json", "--var", "y=1", "x.json", **addresses)
    assert done.status == 3, done.text
    assert json.loads((tmp_path / "j.json").read_text())["status"] in ("completed", "interrupted")
    (folder,) = folders(tmp_path)
    assert json.loads((folder / "verdict.json").read_text())["verdict"] == "not_exercised"


def test_a_dry_run_is_dry_and_0(tmp_path: Path, addresses: dict[str, str], point: BarePoint) -> None:
    write(tmp_path, x=short())
    done = chaos(tmp_path, "run", "--dry", "actions", "x.json", **addresses)
    assert done.status == 0, done.text
    assert point.client.leases() == []


def test_the_control_file_is_enough(tmp_path: Path, addresses: dict[str, str]) -> None:
    write(tmp_path, x=short(control=False), c={"verdict": {"provider": experiment()["controls"][0]["provider"]}})
    assert chaos(tmp_path, "run", "x.json", **addresses).status == 4
    assert chaos(tmp_path, "run", "--control-file", "c.json", "x.json", **addresses).status == 3
    done = chaos(tmp_path, "run", "--control-file", "c.json", "x.json", "x.json", **addresses)
    assert [line.split()[:2] for line in done.stdout.splitlines()[:2]] == [["x", "not_exercised"]] * 2
    assert done.status == 3


@pytest.mark.parametrize("why", ["invalid", "not importable"])
def test_without_a_record_of_the_verdict_it_is_an_error(tmp_path: Path, addresses: dict[str, str], why: str) -> None:
    body = short()
    if why == "invalid":
        del body["title"]
    else:
        controls = tmp_path / "sitecustomize.py"  # a verdict control that cannot be imported
        controls.write_text("import sys\nsys.modules['chaos_mm.controls.verdict'] = None\n", encoding="utf-8")
    write(tmp_path, x=body)
    done = chaos(tmp_path, "run", "x.json", **addresses)
    assert done.status == 4
    assert "the run left no verdict, so it counts as an error" in done.text


def test_a_list_of_ours_and_others(tmp_path: Path, addresses: dict[str, str]) -> None:
    write(tmp_path, a=short(), b={"title": "-", "description": "-", "method": [], "rollbacks": []})
    done = chaos(tmp_path, "run", "a.json", "b.json", **addresses)
    assert done.status == 3
    assert [line.split()[:2] for line in done.stdout.splitlines()[:2]] == [["a", "not_exercised"], ["b", "exit"]]
    assert "Report: reports/index.html" in done.stdout
    (folder,) = [path for path in folders(tmp_path) if path.name != "foreign"]
    assert {"events.jsonl", "journal.json", "verdict.json", "index.html"} <= {path.name for path in folder.iterdir()}
    summary = json.loads((tmp_path / "reports/summary.json").read_text())
    assert [(one["experiment"], one["exit_code"]) for one in summary["runs"]] == [("a", 3)]


def test_a_game_day_shows_what_changes_and_holds_each_run_to_its_word(
    tmp_path: Path, addresses: dict[str, str]
) -> None:
    body = short()
    body["controls"] = [{**body["controls"][0]}]
    body["controls"][0]["provider"] = {**body["controls"][0]["provider"], "arguments": {"expect": "not_exercised"}}
    write(tmp_path, a=short(), b=body)
    words = ("--expect", "not_exercised")
    done = chaos(tmp_path, "gameday", "run", "a.json", "b.json", *words, **addresses)
    assert done.status == 0, done.text
    lines = done.stdout.splitlines()
    assert lines[0] == "1/2 a"
    assert "  injected image_noise at proxy (sigma=0.1)" in lines
    assert "\x1b" not in done.stdout
    told = [json.loads((folder / "verdict.json").read_text())["expect"] for folder in folders(tmp_path)]
    assert told == ["not_exercised", "not_exercised"]
    assert chaos(tmp_path, "gameday", "run", "b.json", **addresses).status == 0
    assert chaos(tmp_path, "gameday", "run", "a.json", **addresses).status == 3


def long_run(tmp_path: Path, addresses: dict[str, str], point: BarePoint, *words: str) -> Any:
    body = experiment(INJECT, activity("hold", seconds=60.0), activity("release", lease="image_noise"))
    write(tmp_path, a=body, b=short())
    process = start(tmp_path, *words, "a.json", "b.json", **addresses)
    try:
        wait_for(lambda: live(point), 60)
    except AssertionError:
        process.kill()
        raise
    return process


def stopped(process: Any) -> Result:
    return finish(process, 60)


@pytest.mark.parametrize("words", [("run",), ("gameday", "run")])
def test_the_first_ctrl_c_releases_and_ends_the_list(
    tmp_path: Path, addresses: dict[str, str], point: BarePoint, words: tuple[str, ...]
) -> None:
    process = long_run(tmp_path, addresses, point, *words)
    process.send_signal(signal.SIGINT)
    wait_for(lambda: not live(point), 10)
    done = stopped(process)
    assert done.status == 4
    assert "not run: b.json" in done.stdout
    (folder,) = folders(tmp_path)
    assert json.loads((folder / "verdict.json").read_text())["verdict"] == "interrupted"


def test_of_a_run_that_was_killed_the_runner_releases_what_is_left(
    tmp_path: Path, addresses: dict[str, str], point: BarePoint
) -> None:
    process = long_run(tmp_path, addresses, point, "run")
    (folder,) = folders(tmp_path)
    first = json.loads((folder / "events.jsonl").read_text().splitlines()[0])
    os.kill(first["pid"], signal.SIGKILL)
    done = stopped(process)
    assert done.status == 4
    assert "  the run left no verdict" in done.stdout.splitlines()
    assert f"  released image_noise of {first['run']} at {point.url}" in done.stdout.splitlines()
    assert [one["ended_by"] for one in point.client.leases() if one["owner"] == first["run"]] == ["release"]
    assert "b  not_exercised" in done.stdout  # the list goes on


def test_a_run_does_not_outlive_a_killed_runner(tmp_path: Path, addresses: dict[str, str], point: BarePoint) -> None:
    process = long_run(tmp_path, addresses, point, "run")
    process.kill()
    process.communicate()
    wait_for(lambda: not live(point), 10)
    (folder,) = folders(tmp_path)
    wait_for((folder / "verdict.json").exists, 20)
    assert json.loads((folder / "verdict.json").read_text())["verdict"] == "interrupted"


def test_a_pipe_that_nobody_reads_ends_the_run_in_one_true_sentence(
    tmp_path: Path, addresses: dict[str, str], point: BarePoint
) -> None:
    process = long_run(tmp_path, addresses, point, "gameday", "run")
    process.stdout.close()
    process.stdout = None
    point.client.stop()  # the run ends, and there is something to say
    done = stopped(process)
    assert done.status == 4
    assert "nobody reads any more what the runs say" in done.stderr
    assert "CHAOS_MM_REPORTS" not in done.stderr


def test_a_misspelt_parameter_is_said_without_a_traceback(tmp_path: Path, addresses: dict[str, str]) -> None:
    write(tmp_path, x=experiment(activity("inject_image_noise", sgma=0.1, ttl_seconds=60)))
    done = chaos(tmp_path, "run", "x.json", **addresses)
    assert done.status == 4
    assert "'sgma'" in done.text and "Traceback" not in done.text


def test_ours_that_cannot_be_parsed_is_an_error_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"module": "chaos_mm.actions", ', encoding="utf-8")
    done = chaos(tmp_path, "--no-version-check", "run", "x.json")
    assert (done.status, len(done.text.strip().splitlines())) == (4, 1), done.text
    assert "x.json: cannot be read: Expecting property name" in done.text


def test_what_takes_the_service_down_runs_last(tmp_path: Path, addresses: dict[str, str]) -> None:
    write(tmp_path, a=short(tags=["fatal"]), b=short(), c=short(tags=["mild"]))
    done = chaos(tmp_path, "run", "a.json", "b.json", "c.json", **addresses)
    began = [folder.name.partition("Z-")[2][0] for folder in folders(tmp_path)]
    times = {json.loads((folder / "verdict.json").read_text())["started"]: folder for folder in folders(tmp_path)}
    order = [times[at].name.partition("Z-")[2][0] for at in sorted(times)]
    assert (sorted(began), order) == (["a", "b", "c"], ["b", "c", "a"]), done.text
