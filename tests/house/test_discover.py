"""``chaos discover`` in the clone's own environment, whose install is editable."""

import json
import subprocess
import sys
from pathlib import Path

CHAOS = str(Path(sys.executable).with_name("chaos"))


def test_an_editable_install_is_discovered_too(tmp_path: Path) -> None:
    argv = [CHAOS, "--no-version-check", "--log-file", str(tmp_path / "log"), "discover", "--no-install"]
    done = subprocess.run(
        [*argv, "--discovery-path", str(tmp_path / "found.json"), "chaostoolkit-multimodal"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = {one["name"] for one in json.loads((tmp_path / "found.json").read_text())["activities"]}
    assert {"inject_image_noise", "release", "sli", "within_objective", "configure_control"} <= names
