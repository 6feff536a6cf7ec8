"""What a run leaves for ``chaos-mm demo`` and the curious: ``<state folder>/runs/<run id>.json``, private to the user.

    {"run": "r3f9a2c71d0e4", "pid": 4711, "experiment": "image-noise", "title": "…", "started": "2026-…Z",
     "fault": "image_noise" | "", "lease": {…the lease's last JSON…} | null, "leases": [{…}, …],
     "phases": {"baseline": {"<sli>": answer, …}, "fault": {…}, "recovery": {…}}, "interrupted": false,
     "target_replaced": true | false | null}

``experiment`` is the file's stem where the command line tells it, else "". ``phases`` holds the phases that were
begun. ``pid`` is the process that ran it. A lease says ``released``: false, with state "unknown", when a point did not
answer its release. ``target_replaced`` says whether another process serves than at the beginning, null where its
``/metrics`` do not tell. An answer is a probe's answer. This says what happened and judges nothing.
"""

import json
import os
from pathlib import Path
from typing import Any

from chaos_mm.controls.phases import Phases
from chaos_mm.controls.run import Run
from chaos_mm.controls.strict import strict

__all__ = ["summary", "write_summary"]


def summary(run: Run, phases: Phases, interrupted: bool, target_replaced: bool | None = None) -> dict[str, Any]:
    """The summary as plain JSON."""
    leases = [strict({**lease.evidence, "name": lease.name, "fault": lease.fault}) for lease in run.leases.values()]
    begun = [phase for phase in run.begun if phase != "end"]
    return {
        "run": run.id,
        "pid": os.getpid(),
        "experiment": run.experiment,
        "title": run.title,
        "started": run.started,
        "fault": leases[0]["fault"] if leases else "",
        "lease": leases[0] if leases else None,
        "leases": leases,
        "phases": {phase: strict(phases.measured(phase)) for phase in begun},
        "interrupted": interrupted,
        "target_replaced": target_replaced,
    }


def write_summary(body: dict[str, Any]) -> Path:
    """Write it whole or not at all; 0600 in a 0700 folder. Raises OSError, ChaosMMError."""
    from chaos_mm.control.state import state_dir

    folder = state_dir() / "runs"
    folder.mkdir(mode=0o700, exist_ok=True)
    path, part = folder / f"{body['run']}.json", folder / f".{body['run']}.part"
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        json.dump(body, stream, allow_nan=False, indent=1)
    part.replace(path)
    return path
