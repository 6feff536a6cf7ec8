"""What a run leaves at its end, with a real load's routes, a real control API and a real folder."""

import base64
import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import chaos_mm
from chaos_mm.control.api import ControlApi
from chaos_mm.control.messages import Request, Response, Route
from chaos_mm.control.server import ControlServer, serve_control
from chaos_mm.controls import keeping
from chaos_mm.controls.ending import Ended
from chaos_mm.controls.facts import Facts, Hits, Reason
from chaos_mm.controls.folder import RunFolder
from chaos_mm.controls.judge import judge
from chaos_mm.controls.phases import Phases
from chaos_mm.controls.redact import Scrubber
from chaos_mm.controls.run import HeldLease, Run
from chaos_mm.controls.worst import WorstWindows
from chaos_mm.core.fault import Point
from chaos_mm.core.lease_book import LeaseBook
from chaos_mm.faults import catalogue
from chaos_mm.sli.objectives import Objective
from tests.edge.conftest import CLOSED
from tests.load.served import Served
from tests.load.virtual import Clock

MARK = "marker-secret-1"
ANSWERS = Objective("answers", "canary_exact", {"modality": "image"}, "gte", 0.9, window_seconds=4.0, min_samples=2)
GUARD = Objective("up", "ok_ratio", comparison="gte", threshold=0.5, window_seconds=4.0, guard=True)
EVIDENCE = {
    "params": {"sigma": 0.4}, "blast_radius": {"rate": 0.5, "selector": "canary", "limit": 0}, "mode": "inject",
    "seed": 7, "ttl_seconds": 60.0, "matched": 20, "applied": 9, "errored": 1, "state": "ended",
    "ended_by": "release", "achieved": {"psnr_db": {"count": 9, "mean": 8.0, "min": 7.0, "max": 9.0}},
}  # fmt: skip


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    tmp_path.chmod(0o700)
    made = Served(Clock(), tmp_path)
    yield made
    made.point.close()


@pytest.fixture
def run(served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.setenv("CHAOS_MM_TOKEN_FILE", str(tmp_path / "token"))
    configuration = {
        "load_control_url": served.client.url, "sigma": 0.4, "on": True, "deep": {"no": 1}, "key": MARK,
        "target_url": "http://me:pass@127.0.0.1:1", "target_model": "tiny",
    }  # fmt: skip
    clock = served.clock
    made = Run("A title", "image-noise", configuration, {"token": served.point.token, "key": MARK}, clock)
    return made


@pytest.fixture
def folder(run: Run, tmp_path: Path) -> Iterator[RunFolder]:
    made = RunFolder.make(tmp_path / "reports", run.experiment, run.id, Scrubber(run.secrets, {}))
    made.events.began = run.clock()
    run.events = made.events
    yield made
    made.close()


def played(served: Served, run: Run, *urls: str) -> Ended:
    """A run of 8 s a phase whose fault phase answers wrongly, judged."""
    worst = WorstWindows(run, [ANSWERS], [GUARD], {})
    phases = Phases(run, True, worst)
    served.clock.now += 1.5
    for phase in ("baseline", "fault", "recovery"):
        phases.enter(phase)
        served.pass_time(8, exact=phase != "fault", kind="image", modality="image")
    phases.enter("end")
    phases.ask_again()
    lease = HeldLease("image_noise", "image_noise", "image", "proxy", urls or (CLOSED,), 10.0, dict(EVIDENCE))
    lease.released.set()
    run.hold(lease)
    hits = Hits("image_noise", "image_noise", 20, 9, 0.5, achieved={"psnr_db": 8.0})
    facts = Facts(hits=(hits,), planned=("image_noise",), windows=worst.windows(list(phases.lasted)))
    slis = {phase: phases.measured(phase) for phase in phases.lasted}
    residue = {"measured": True, "value": 0.0, "samples": 1, "reason": ""}
    return Ended(run, judge(facts), facts, "deviated", phases, slis, None, residue, False)


def verdict_of(folder: RunFolder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder.path / "verdict.json").read_text(), parse_constant=pytest.fail)
    return found


def events_of(folder: RunFolder) -> list[dict[str, Any]]:
    assert folder.close() == ""
    return [json.loads(line) for line in (folder.path / "events.jsonl").read_text().splitlines()]


def test_the_verdict_says_it_all(served: Served, run: Run, folder: RunFolder) -> None:
    ended = played(served, run)
    now = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    found = keeping.verdict_json(ended, folder, source="x/image-noise.json", replay="chaos run x", now=now)
    assert (found["schema"], found["run"], found["folder"]) == (1, run.id, folder.path.name)
    assert (found["verdict"], found["words"], found["exit_code"], found["expect"]) == (
        "deviated", ["deviated"], 1, "deviated",
    )  # fmt: skip
    assert found["reasons"][0]["word"] == "deviated" and "answers" in found["reasons"][0]["reason"]
    assert (found["ended"], found["duration_seconds"]) == ("2026-03-04T05:06:07.000Z", 25.5)
    assert found["started"].endswith("Z")
    assert found["phases"] == [
        {"name": "baseline", "seconds": 8.0, "began": 1.5},
        {"name": "fault", "seconds": 8.0, "began": 9.5},
        {"name": "recovery", "seconds": 8.0, "began": 17.5},
    ]
    assert found["leases"] == [
        {**EVIDENCE, "name": "image_noise", "fault": "image_noise", "point": "proxy", "expected": 5, "released": True}
    ]
    assert found["hits"] == {"matched": 20, "applied": 9, "errored": 1}
    assert found["achieved"]["psnr_db"]["mean"] == 8.0
    answers, up = found["objectives"]
    assert (answers["name"], answers["named"], up["name"], up["named"]) == ("answers", True, "up", False)
    assert answers["phases"]["fault"] == {
        "measured": True, "value": 0.0, "unit": "ratio", "samples": 4, "window_seconds": 4.0, "met": False,
        "reason": "answers: canary_exact is 0, not at least 0.9", "windows": 5, "without_data": 0,
        "started_seconds": 0.0,
    }  # fmt: skip
    assert up["phases"]["recovery"]["met"] is True
    assert found["slis"]["recovery"]["ok_ratio"]["value"] == 1.0
    assert found["residue"] == {"measured": True, "live": 0, "reason": ""}
    assert found["configuration"]["sigma"] == 0.4 and found["configuration"]["on"] is True
    assert "deep" not in found["configuration"]
    assert found["target"]["model"] == "tiny" and found["target_replaced"] is False
    assert found["versions"]["chaos_mm"] == chaos_mm.__version__


def test_it_is_kept_without_a_secret_and_with_the_records(served: Served, run: Run, folder: RunFolder) -> None:
    ended = played(served, run)
    assert keeping.keep(ended, folder, source="x.json", replay=f"chaos run --var key={MARK} x.json") == ""
    found = verdict_of(folder)
    assert found["replay"] == "chaos run --var key=<secret> x.json"
    assert found["target"]["url"] == "http://<hidden>@127.0.0.1:1"
    assert len((folder.path / "records.jsonl").read_bytes().splitlines()) == 24
    kept = {one["what"]: one for one in events_of(folder) if one["event"] == "kept"}
    assert (kept["records"]["count"], kept["records"]["reason"]) == (24, "")
    assert kept["samples"]["count"] == 0 and "no point answers" in kept["samples"]["reason"]
    assert found["samples"] == []
    assert not [path for path in folder.path.rglob("*") if path.is_file() and MARK in path.read_text()]


def test_a_run_that_was_refused(run: Run, folder: RunFolder) -> None:
    facts = Facts(noted=(Reason("not_applied", "the proxy is absent"),), refused=True, begun=False)
    assert keeping.keep(Ended(run, judge(facts), facts), folder) == ""
    found = verdict_of(folder)
    assert (found["verdict"], found["exit_code"], found["phases"], found["objectives"]) == ("not_applied", 3, [], [])
    assert (found["fault"], found["leases"], found["expect"], found["dry"]) == ("", [], None, None)
    assert found["recovery_seconds"] is None and found["residue"]["measured"] is False


def test_a_load_that_is_gone_is_told_and_no_error(run: Run, folder: RunFolder) -> None:
    run.configuration["load_control_url"] = CLOSED
    facts = Facts(dry="actions")
    assert keeping.keep(Ended(run, judge(facts), facts), folder) == ""
    assert verdict_of(folder)["verdict"] == "dry" and verdict_of(folder)["dry"] == "actions"
    assert not (folder.path / "records.jsonl").exists()
    assert "no point answers" in events_of(folder)[-1]["reason"]


@pytest.fixture
def proxy(served: Served) -> Iterator[Callable[[Any], ControlServer]]:
    made = []

    def serve(says: Any) -> ControlServer:
        def samples(request: Request) -> Response:
            if set(request.query) != {"owner"}:
                return Response(400, b"{}")
            return Response(200, json.dumps(says).encode())

        book = LeaseBook(catalogue(), point=Point.PROXY)
        routes = () if says is None else (Route("GET", "/samples", samples),)
        made.append(
            serve_control(
                ControlApi(book, served.point.token, version=chaos_mm.__version__, routes=routes), "http://127.0.0.1:0"
            )
        )
        return made[-1]

    yield serve
    for one in made:
        one.close()


def sample(n: int) -> dict[str, Any]:
    picture = {"type": "image/png", "data": base64.b64encode(b"\x89PNG").decode()}
    return {"lease": "image_noise", "fault": "image_noise", "kind": "image", "request_id": f"cmm-{n}",
            "achieved": {"psnr_db": 8.0}, "before": picture, "after": picture}  # fmt: skip


def test_samples_of_every_proxy(
    served: Served, run: Run, folder: RunFolder, proxy: Callable[[Any], ControlServer]
) -> None:
    one, two = proxy({"samples": [sample(1), "odd"]}), proxy({"samples": [sample(2)], "lost": 3})
    assert keeping.keep(played(served, run, one.url, two.url), folder) == ""
    kept = verdict_of(folder)["samples"]
    assert [(one["request_id"], one["before"]) for one in kept] == [
        ("cmm-1", "samples/image-noise-1-before.png"), ("cmm-2", "samples/image-noise-2-before.png"),
    ]  # fmt: skip
    assert (folder.path / kept[1]["after"]).read_bytes() == b"\x89PNG"
    told = events_of(folder)[-1]
    assert (told["count"], told["reason"]) == (2, f"{two.url} could not show 3 of them")


@pytest.mark.parametrize(
    ("says", "told"), [(None, "no such path"), ([], "not as a proxy does"), ({}, "not as a proxy")]
)
def test_a_proxy_without_samples(
    served: Served, run: Run, folder: RunFolder, proxy: Callable[[Any], ControlServer], says: Any, told: str
) -> None:
    assert keeping.keep(played(served, run, proxy(says).url), folder) == ""
    assert verdict_of(folder)["samples"] == []
    assert told in events_of(folder)[-1]["reason"]


def test_a_verdict_that_cannot_be_written_is_said(run: Run, folder: RunFolder) -> None:
    (folder.path / "verdict.json").mkdir()
    facts = Facts(dry="actions")
    said = keeping.keep(Ended(run, judge(facts), facts), folder)
    assert said.startswith(f"verdict.json was not written to {folder.path}: ")


def test_a_failing_renderer_is_logged_with_what_to_do(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(folder, "render", fail)
    logging.getLogger("chaostoolkit").addHandler(caplog.handler)
    try:
        assert keeping.render(folder) is False
    finally:
        logging.getLogger("chaostoolkit").removeHandler(caplog.handler)
    assert "the report was not rendered: KeyError: 'a bug'" in caplog.text
    assert f"chaos-mm report {folder.path.parent}" in caplog.text
