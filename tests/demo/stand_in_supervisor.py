"""The real supervisor over stand-ins: a "target" with a spare, and a "load" that comes after it.

``STAND_IN_FLAGS`` in the environment goes to the load, to make it misbehave.
"""

import os
import sys
from pathlib import Path

from chaos_mm.demo.child import Spec
from chaos_mm.demo.ports import Ports
from chaos_mm.demo.supervisor import main


def stand_ins(ports: Ports) -> list[Spec]:
    run = (sys.executable, str(Path(__file__).with_name("stand_in.py")))
    flags = tuple(os.environ.get("STAND_IN_FLAGS", "").split())
    target, load = (str(ports.by_use[use]) for use in ("target", "load control"))
    return [
        Spec("target", (*run, "target", target), ports.url("target"), spare=True),
        Spec(
            "load", (*run, "load", load, *flags), ports.url("load control"), after=("target",), ready_within_seconds=2
        ),
    ]


if __name__ == "__main__":
    sys.exit(main(make_specs=stand_ins))
