"""A process of the miniature engine: it steps all the time and answers commands, one JSON line each.

{"add": id, "wanted": n} · {"report": id} · {"ceiling": true} · {"armed": true}
With a second argument it writes what it knows into that file instead, and lives on when its parent is gone.
"""

import json
import os
import select
import sys
import time
from pathlib import Path
from typing import Any

import torch

from chaos_mm.agent.runtime import Runtime
from tests.agent.declared import FAULTS
from tests.agent.miniature import Engine, Generation

torch.set_num_threads(1)


def answer(engine: Engine, known: dict[str, Generation], command: dict[str, Any]) -> Any:
    if "add" in command:
        known[command["add"]] = engine.add(command["add"], command["wanted"])
        return "added"
    if "report" in command:
        found = known[command["report"]]
        return {"answers": found.answers, "error": found.error, "blocks": found.blocks, "finished": found.finished}
    if "ceiling" in command:
        return engine.ceiling
    return {"armed": engine.runtime.armed(), "pending": len(engine.runtime._held), "inert": engine.runtime.inert}


def write_for_ever(engine: Engine, path: Path) -> None:
    while True:
        facts = {"pid": os.getpid(), "armed": engine.runtime.armed(), "ceiling": engine.ceiling}
        part = path.with_suffix(".part")
        part.write_text(json.dumps(facts))
        part.replace(path)
        time.sleep(0.01)
        if not engine.live:
            engine.add(f"idle-{time.monotonic_ns()}", 4)
        engine.step()


def main() -> None:
    runtime = Runtime.from_environment(sys.argv[1], FAULTS)
    engine, known = Engine(runtime, blocks=64), {}
    runtime.watch(engine.guard)
    print(json.dumps({"ready": runtime.inert}), flush=True)
    if len(sys.argv) > 2:
        write_for_ever(engine, Path(sys.argv[2]))
    while True:
        if select.select([sys.stdin], [], [], 0.002)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            print(json.dumps(answer(engine, known, json.loads(line))), flush=True)
        if not engine.live:
            engine.add(f"idle-{time.monotonic_ns()}", 4)
        engine.step()


if __name__ == "__main__":
    main()
