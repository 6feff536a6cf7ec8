"""``chaos`` as a process, with our plugin and as if it were not installed."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
SPEAK = {
    "type": "action",
    "name": "speak",
    "provider": {"type": "process", "path": sys.executable, "arguments": ["-c", "print('hello')"]},
}
# Which entry points of the plugin group the toolkit is shown decides; everything else is the same for both.
_PROGRAM = """
import importlib.metadata as metadata, sys
found = metadata.entry_points
def entry_points(**wanted):
    if not wanted: raise AttributeError
    if wanted != {{"group": "chaostoolkit.cli_plugins"}}: return found(**wanted)
    points = [p for p in found(**wanted) if not p.value.startswith("chaos_mm.")]
    ours = [("chaos_mm_run", "run"), ("chaos_mm_gameday", "gameday")] if {plugin} else []
    return points + [metadata.EntryPoint(n, "chaos_mm.chaos_cli:" + a, wanted["group"]) for n, a in ours]
if {broken}:
    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name.startswith("chaos_mm.") and name != "chaos_mm.chaos_cli":
                raise ImportError(name + " is broken for this test")
    sys.meta_path.insert(0, Broken())
metadata.entry_points = entry_points
from chaostoolkit.cli import cli
cli(prog_name="chaos")
"""


@dataclass
class Result:
    status: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout + self.stderr


def probe(code: str, tolerance: Any = 0, name: str = "look") -> dict[str, Any]:
    """A foreign probe: a process whose exit status is judged."""
    provider = {"type": "process", "path": sys.executable, "arguments": ["-c", code]}
    return {"type": "probe", "name": name, "tolerance": tolerance, "provider": provider}


def foreign(*probes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An experiment that has nothing of ours."""
    hypothesis = {"steady-state-hypothesis": {"title": "all is well", "probes": list(probes)}} if probes else {}
    return {
        "title": "foreign",
        "description": "nothing of ours",
        "method": [SPEAK],
        "rollbacks": [],
        **hypothesis,
        **more,
    }


def chaos(
    folder: Path, *arguments: str, plugin: bool = True, broken: bool = False, program: str = "", **environment: str
) -> Result:
    """``chaos ARGUMENTS`` in ``folder``; ``broken``: nothing of ours but the plugin's own module can be imported."""
    code = (program or _PROGRAM).format(plugin=plugin, broken=broken)
    return finish(start(folder, *arguments, code=code, **environment))


def start(folder: Path, *arguments: str, code: str = "", **environment: str) -> "subprocess.Popen[str]":
    """The same, not waited for."""
    paths = [str(REPOSITORY), str(folder), os.environ.get("PYTHONPATH", "")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CHAOS_MM_")}
    usual = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "HOME": str(folder), "COLUMNS": "100"}
    return subprocess.Popen(
        [sys.executable, "-c", code or _PROGRAM.format(plugin=True, broken=False), *arguments],
        cwd=folder,
        env={**kept, **usual, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: "subprocess.Popen[str]", seconds: float = 90.0) -> Result:
    """Wait for it; killed when it takes too long."""
    try:
        stdout, stderr = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"chaos did not end within {seconds} s: {process.communicate()}") from None
    return Result(process.returncode, stdout, stderr)


def timeless(text: str) -> str:
    """Without what differs from run to run: dates, durations, ids, addresses, elapsed seconds."""
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?(\+00:00)?", "<date>", text)
    text = re.sub(r'"duration": [\d.e-]+', '"duration": <seconds>', text)
    text = re.sub(r"0x[0-9a-f]+", "<address>", text)
    return re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<id>", text)
