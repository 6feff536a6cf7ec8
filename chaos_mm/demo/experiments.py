"""A bare ``chaos-mm demo``: everything up, the experiments by real ``chaos run``, everything down, a table, a report.

Three of them the demo's model takes well; the fourth is the first again at a dose that it cannot: that run is expected
to deviate, and the demo ends well when each run ended with the word that it was to end with.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from chaos_mm.demo import lifecycle
from chaos_mm.runner import lines, sequence
from chaos_mm.runner.expect import exit_status
from chaos_mm.runner.live import view_for
from chaos_mm.runner.planned import Ended, Planned
from chaos_mm.runner.relay import Relay
from chaos_mm.sli.objectives import packaged_dir

__all__ = ["EXPERIMENTS", "planned", "run_all"]

EXPERIMENTS = (
    ("image-noise", (), "passed"),
    ("audio-spectral-mask", (), "passed"),
    ("text-token-truncation", (), "passed"),
    ("image-noise", ("--var=sigma:float=0.6",), "deviated"),
)


def run_all(base_port: int, show: Callable[[str], None]) -> int:
    """The whole demo; the exit status: 0 when each run ended as expected. An interrupt brings everything down first.

    Raises OSError when the folder of reports cannot be made.
    """
    begun = time.monotonic()
    reports = Path(os.environ.get("CHAOS_MM_REPORTS") or "reports")
    reports.mkdir(parents=True, exist_ok=True)
    with _ending_on_signals():
        show("Bringing the demo up: target, proxy, host point and load ...")
        demo = lifecycle.up(base_port, show, attached=True)
        try:
            ended = _run_each(demo, reports, show)
        finally:
            _bring_down(demo, show)
    _tell(ended, reports, show)
    show(f"The demo took {time.monotonic() - begun:.0f} s.")
    return exit_status(ended, len(EXPERIMENTS))


def planned() -> list[Planned]:
    """The runs of the demo."""
    folder = packaged_dir().parent
    return [Planned(str(folder / f"{name}.json"), options, word) for name, options, word in EXPERIMENTS]


def _run_each(demo: lifecycle.Demo, reports: Path, show: Callable[[str], None]) -> list[Ended]:
    environment = {**os.environ, **demo.state.exports, "CHAOS_MM_OBJECTIVES": str(packaged_dir())}
    signals = Relay()
    ended = sequence.run_all(
        planned(),
        reports_dir=reports,
        environment=environment,
        show=show,
        view=view_for(sys.stdout),
        command=("--no-version-check", f"--log-file={lifecycle.logs_dir() / 'chaos.log'}"),
        relay=signals,
    )
    if signals.received:
        raise SystemExit(128 + signals.received[0])
    return ended


def _tell(ended: list[Ended], reports: Path, show: Callable[[str], None]) -> None:
    show("")
    for text in lines.table(ended):
        show(text)
    show(f"\n{sequence.closing(ended, reports)}")


def _bring_down(demo: lifecycle.Demo, show: Callable[[str], None]) -> None:
    if not demo.mine:
        show("\nThe demo was up before; it stays up.")
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not leave half of it running
    show("\nBringing the demo down ...")
    lifecycle.down(show)
    demo.let_go()


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """TERM and HUP end us as Ctrl-C does: by an exception, so that everything is brought down on the way out."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    old = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
