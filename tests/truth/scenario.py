"""What a row of the truth table is: what is done, and what must come of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.truth.experiments import experiment
from tests.truth.load import Play
from tests.truth.point import PointScript


@dataclass(frozen=True)
class Step:
    """Something that happens while the process runs: ``do`` with ``what``, ``delay`` seconds after ``seen`` is true.

    ``seen``: "armed" (a lease of the run lives), "start", or a text that must stand in the process's output. ``do``:
    signal (its name), close-point, replace-point, stop-point, close-load, close-target, replace-target, or remove (a
    path in the row's folder); "" only waits.
    """

    seen: str
    do: str
    what: str = ""
    delay: float = 0.0


@dataclass(frozen=True)
class Expected:
    """What must come of a row.

    ``gone``: how the fault ended: never (nothing was injected), release, ttl, keepalive, limit, process, stop, or left.
    ``rollbacks``: whether they ran; ``journal``: its status, "" where there is none to read. ``record``: whether the
    run left a verdict; without one its word is "error", said by whoever reads the folder. ``folder``: whether it has
    one at all.
    """

    word: str
    exit_code: int
    gone: str = "release"
    rollbacks: bool = True
    journal: str = "interrupted"
    record: bool = True
    folder: bool = True

    @property
    def injected(self) -> bool:
        """Whether the fault ever came to be."""
        return self.gone != "never"


@dataclass(frozen=True)
class Scenario:
    """One row. ``{folder}`` in options and environment is the row's own folder; files there are made from ``files``.
    ``{path}`` in the environment is the PYTHONPATH that the process has anyway.

    ``load``: scripted or absent. ``point`` None: nobody listens. ``target``: whether there is a service to look at.
    ``differs``: the two toolkits differ here, so that CI plays it on both. ``prefix``: in front of the command, such as
    nohup. ``most_seconds``: the fault may have lived so long at most; 0: it does not matter. ``leases``:
    how many come to be where any does. ``output``: what the
    process must have said.
    """

    name: str
    expected: Expected
    body: Mapping[str, Any] = field(default_factory=experiment)
    plays: tuple[Play, ...] = ()
    point: PointScript | None = PointScript()
    load: str = "scripted"
    target: bool = False
    steps: tuple[Step, ...] = ()
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    journal_path: str = "{folder}/journal.json"
    prefix: tuple[str, ...] = ()
    differs: bool = False
    most_seconds: float = 0.0
    leases: int = 1
    output: str = ""


NEVER = "never"


def passed(**changes: Any) -> Expected:
    """All was well."""
    return Expected("passed", 0, journal="completed", **changes)


def refused(word: str, exit_code: int, **changes: Any) -> Expected:
    """Nothing was injected; the toolkit's own rollbacks ran and found nothing to undo."""
    return Expected(word, exit_code, gone=NEVER, **changes)
