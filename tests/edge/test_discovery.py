"""``chaos discover`` lists every activity with types and defaults, and says what it finds of the system."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import chaos_mm
from chaos_mm.faults import catalogue
from tests.edge.chaos import REPOSITORY, Chaos
from tests.edge.conftest import CLOSED, BarePoint

GIVEN = {"configuration": ("mapping", None), "secrets": ("mapping", None)}
NEEDED = "needed"  # an argument without a default
FRAME = {
    "lease": ("string", ""),
    "point": ("string", ""),
    "reason": ("string", ""),
    "rate": ("number", 1.0),
    "selector": ("string", "canary"),
    "limit": ("integer", 0),
    "ttl_seconds": ("number", 300.0),
    "keepalive_seconds": ("number", 10.0),
    "seed": ("integer", 0),
    "mode": ("string", "inject"),
    "severity": ("integer", 0),
    **GIVEN,
}
WAITING = {"whole_phase": ("boolean", False), "phase_seconds": ("number", 0.0)}
ON_LEASE = {"lease": ("string", NEEDED), **GIVEN}
AT_SITE = {"site": ("string", "")}
ALIVE = {"modality": ("string", "text")}
VALUE = {"value": ("mapping", {})}
PINNED: dict[tuple[str, str], dict[str, Any]] = {
    ("action", "release"): ON_LEASE,
    ("action", "release_all"): GIVEN,
    ("action", "hold"): {
        "seconds": ("number", 10.0),
        "lease": ("string", ""),
        "within_seconds": ("number", 120.0),
        **GIVEN,
    },
    ("action", "start_load"): {
        "rate": ("number", 4.0),
        "mix": ("string", ""),
        "ttl_seconds": ("number", 3600.0),
        **GIVEN,
    },
    ("action", "stop_load"): GIVEN,
    ("probe", "sli"): {
        "objective": ("string", ""),
        "name": ("string", ""),
        **WAITING,
        "window_seconds": ("number", 0.0),
        "phase": ("string", ""),
        "modality": ("string", ""),
        "audience": ("string", ""),
        **GIVEN,
    },
    ("probe", "recovery_seconds"): {"objectives": ("string", ""), **WAITING, **GIVEN},
    ("probe", "fault_hits"): {"lease": ("string", NEEDED), "site": ("string", ""), **GIVEN},
    ("probe", "fault_active"): ON_LEASE,
    ("probe", "lease_evidence"): ON_LEASE,
    ("probe", "no_residue"): {"own": ("boolean", False), **GIVEN},
    ("probe", "points_ready"): {"points": ("string", "proxy,load"), **GIVEN},
    ("probe", "target_alive"): {
        "prompt": ("string", "repeat the code 4 0 7 2"),
        "timeout_seconds": ("number", 5.0),
        **GIVEN,
    },
    ("probe", "agent_loaded"): {"seam": ("string", ""), **GIVEN},
    ("probe", "kv_cache_usage"): GIVEN,
    ("probe", "kv_cache_hit_ratio"): GIVEN,
    ("probe", "generation_alive"): {**ALIVE, "timeout_seconds": ("number", 5.0), **GIVEN},
    ("probe", "health_lie_seconds"): {
        **ALIVE,
        "window_seconds": ("number", 5.0),
        "timeout_seconds": ("number", 1.0),
        **GIVEN,
    },
    ("probe", "forward_progress"): {"window_seconds": ("number", 3.0), **GIVEN},
    ("probe", "device_memory"): {"figure": ("string", "free"), **GIVEN},
    ("probe", "host_memory"): {"figure": ("string", "available"), **GIVEN},
    ("probe", "nonfinite_count"): {**AT_SITE, **GIVEN},
    ("probe", "attention_entropy"): {**AT_SITE, "normalised": ("boolean", False), **GIVEN},
    ("probe", "attention_collapse"): {**AT_SITE, "figure": ("string", "vanished_heads"), **GIVEN},
    ("probe", "embedding_shift_sigma"): {**AT_SITE, **GIVEN},
    ("probe", "alignment_cosine"): {**AT_SITE, **GIVEN},
    ("probe", "within_objective"): {"objective": ("string", NEEDED), **VALUE, **GIVEN},
    ("probe", "at_least"): {"threshold": ("number", NEEDED), **VALUE, "min_samples": ("integer", 0)},
    ("probe", "at_most"): {"threshold": ("number", NEEDED), **VALUE, "min_samples": ("integer", 0)},
    ("probe", "between"): {
        "low": ("number", NEEDED),
        "high": ("number", NEEDED),
        **VALUE,
        "min_samples": ("integer", 0),
    },
    ("probe", "measured"): {**VALUE, "min_samples": ("integer", 0)},
}
TYPES = {float: "number", int: "integer", str: "string", bool: "boolean"}


def shown(activity: dict[str, Any]) -> dict[str, Any]:
    return {a["name"]: (a.get("type"), a.get("default", NEEDED)) for a in activity["arguments"]}


@pytest.fixture(scope="module")
def activities() -> list[dict[str, Any]]:
    return chaos_mm.load_exported_activities()


def test_actions_and_probes_are_pinned(activities: list[dict[str, Any]]) -> None:
    found = {
        (a["type"], a["name"]): shown(a)
        for a in activities
        if a["type"] != "control" and not a["name"].startswith("inject_")
    }
    assert found == PINNED
    # The order is part of it: a person reads configuration and secrets last.
    assert {key: list(arguments) for key, arguments in found.items()} == {k: list(v) for k, v in PINNED.items()}


def test_every_fault_has_its_action(activities: list[dict[str, Any]]) -> None:
    found = {a["name"]: a for a in activities if a["name"].startswith("inject_")}
    assert set(found) == {f"inject_{name}" for name in catalogue()}
    for name, fault in catalogue().items():
        own = {spec.name: (TYPES[spec.type], spec.default) for spec in fault.params.values()}
        assert list(shown(found[f"inject_{name}"]).items()) == [*own.items(), *FRAME.items()]


def test_nothing_is_an_object(activities: list[dict[str, Any]]) -> None:
    for activity in activities:
        assert activity.get("return_type") not in (None, "object") or activity["type"] == "control", activity["name"]
        # The toolkit hands its own event registry to a control; there is no other word for that.
        plain = [argument for argument in activity["arguments"] if argument["name"] != "event_registry"]
        assert "object" not in [argument.get("type") for argument in plain], activity["name"]
        assert activity["doc"], activity["name"]


def test_an_action_documents_bounds_and_units() -> None:
    from chaos_mm import actions

    doc = actions.inject_image_noise.__doc__  # type: ignore[attr-defined]
    assert "sigma: " in doc
    assert "[0, 1] of full scale" in doc
    assert "severity 3: " in doc


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is installed, unpacked: an editable install tells discovery no import name."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    argv = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(REPOSITORY)]
    subprocess.run([sys.executable, "-m", "pip", *argv], check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_command_finds_points_faults_and_models(chaos: Chaos, point: BarePoint, wheel: Path) -> None:
    chaos.environment.update(PYTHONPATH=str(wheel), CHAOS_MM_TARGET_URL=CLOSED)
    out = chaos.folder / "discovery.json"
    argv = [sys.executable, "-P", "-m", "chaostoolkit", "--no-version-check", "discover", "--no-install"]
    argv += ["--discovery-path", str(out), "chaostoolkit-multimodal"]
    done = subprocess.run(argv, cwd=chaos.folder, env=chaos.environment, capture_output=True, text=True, timeout=60)
    assert out.exists(), done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found["extension"] == {"name": "chaostoolkit-multimodal", "version": chaos_mm.__version__}
    assert {(a["type"], a["name"]) for a in found["activities"]} >= set(PINNED)
    points = {one["point"]: one for one in found["system"]["points"]}
    assert points["proxy"]["reachable"] is True
    assert points["proxy"]["url"] == point.url
    assert points["load"] == {"point": "load", "url": CLOSED, "reachable": False}
    assert found["system"]["faults"] == sorted(catalogue())
    assert found["system"]["target"] == {"url": CLOSED, "models": []}
