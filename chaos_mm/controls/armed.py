"""A run with everything that watches over it: what the hooks of ``verdict`` call."""

import logging
import threading
from collections.abc import Mapping
from typing import Any

from chaoslib.exceptions import InterruptExecution

from chaos_mm.controls import run as live
from chaos_mm.controls import traffic
from chaos_mm.controls.guard import Guard
from chaos_mm.controls.measuring import Load
from chaos_mm.controls.names import ANSWER_SECONDS, TARGET_URL, text_of
from chaos_mm.controls.phases import Phases
from chaos_mm.controls.refusals import ACTIONS, injected_fault, needs_load, refusals
from chaos_mm.controls.run import Run
from chaos_mm.controls.signals import Signals, interrupt_main
from chaos_mm.controls.strict import is_value, strict
from chaos_mm.controls.summary import summary, write_summary
from chaos_mm.controls.target import started_at
from chaos_mm.core.errors import ChaosMMError

__all__ = ["Armed"]

logger = logging.getLogger("chaostoolkit")


class Armed:
    """The life of one experiment under our control: arm, begin, after each activity, finish, close."""

    def __init__(
        self,
        experiment: dict[str, Any],
        configuration: Mapping[str, Any],
        secrets: Mapping[str, Any],
        load_rate: float,
    ) -> None:
        self.experiment = experiment
        self.run = Run(str(experiment.get("title", "")), _stem(), configuration, secrets)
        self._load_rate = load_rate
        self._signals = Signals(self.run)
        self._load_needed = load_rate > 0 or needs_load(experiment)
        self._phases = Phases(self.run, self._load_needed)
        self._refusals: list[str] = []
        self._target_started: float | None = None
        self._begun = self._finished = False

    def arm(self) -> None:
        """Take the signals and start the guard; note what forbids to begin."""
        run = self.run
        self._signals.install()
        self._refusals = refusals(self.experiment, run.configuration, run.secrets, self._load_needed)
        if not self._refusals:
            Guard(run, self._signals.nudge).start()
            live.install(run)

    def begin(self) -> None:
        """The last moment before anything runs. Raises InterruptExecution with every reason not to begin."""
        if self._begun:
            return
        self._begun = True
        reasons = self._refusals or (["a signal asked to stop before it began"] if self.run.stop.is_set() else [])
        if reasons:
            what_to_do = "`chaos-mm doctor FILE` says what to type" if self._refusals else "nothing was injected"
            raise InterruptExecution(f"chaos_mm refuses to begin: {'; '.join(reasons)} ({what_to_do})")
        logger.info(f"chaos_mm {self.run.id}: watching over this run")
        self._target_started = self._target_start()
        if self._load_needed:
            self._start_traffic()
        self._phases.enter("baseline")

    def before_activity(self, activity: Mapping[str, Any]) -> None:
        """Stop here if a signal came where nothing could be raised; else the last look at the baseline."""
        if self.run.stop.is_set() and not self.run.unwinding.is_set():
            raise SystemExit(self._signals.exit_code)
        fault = injected_fault(activity)
        if fault:
            from chaos_mm import faults

            self._phases.remember_baseline(faults.get(fault).target)

    def after_activity(self, activity: Mapping[str, Any], entry: dict[str, Any]) -> None:
        """Make the output strict JSON, follow the phases, stop the run when an injection did not happen."""
        output = entry.get("output")
        if "tolerance" in activity and entry.get("status") == "succeeded" and not self._dry(activity):
            _fail_without_value(entry, output)
        entry["output"] = strict(output)
        if activity.get("provider", {}).get("module") == ACTIONS:
            self._follow(injected_fault(activity), activity["provider"]["func"], entry)

    def unwind(self) -> None:
        """Rollbacks begin: from here on nothing is raised from a signal."""
        self.run.unwinding.set()

    @property
    def stopped(self) -> bool:
        """Whether a signal asked this run to stop, wherever the engine was at that moment."""
        return self.run.stop.is_set()

    def finish(self, interrupted: bool) -> None:
        """Release what is left, end the phases, write the summary. Never raises ChaosMMError or OSError."""
        self.unwind()
        if self._finished or not self._begun or self._refusals:
            return
        self._finished = True
        for trouble in self.run.release_all():
            logger.error(f"chaos_mm: NOT RELEASED, ends by its own keepalive: {trouble}")
        self._phases.enter("end")
        self._write(interrupted or self.stopped)

    def close(self) -> None:
        """End the guard, its traffic and the signal handlers, after a crash too."""
        self.finish(interrupted=True)
        self.run.closed.set()
        live.uninstall(self.run)
        self._signals.restore()
        self._stop_traffic()

    def _target_start(self) -> float | None:
        return started_at(text_of(TARGET_URL, self.run.configuration), ANSWER_SECONDS)

    def _target_replaced(self) -> bool | None:
        """Whether another process serves now than at the beginning; None where that cannot be told."""
        before, after = self._target_started, self._target_start()
        if before is None or after is None:
            return None
        if before != after:
            logger.warning("chaos_mm: the target was replaced while this run was under way")
        return before != after

    def _dry(self, activity: Mapping[str, Any]) -> bool:
        return bool(activity.get("dry") or self.experiment.get("dry"))

    def _follow(self, fault: str, func: str, entry: Mapping[str, Any]) -> None:
        done = entry.get("status") == "succeeded" and isinstance(entry.get("output"), Mapping)
        if fault and done:
            self._phases.enter("fault")
        elif fault and entry.get("status") == "failed":
            _interrupt(f"{func} did not happen, so this run stops: {_reason(entry)}")
        elif func in ("release", "release_all") and done and self.run.phase == "fault" and not self.run.held():
            self._phases.enter("recovery")

    def _write(self, interrupted: bool) -> None:
        try:
            path = write_summary(summary(self.run, self._phases, interrupted, self._target_replaced()))
        except (OSError, ChaosMMError, ValueError) as error:
            logger.error(f"chaos_mm: no summary of this run was written: {error}")
        else:
            logger.info(f"chaos_mm {self.run.id}: summary in {path}")

    def _start_traffic(self) -> None:
        run = self.run
        try:
            # Traffic that flows already is somebody's: it is measured as well, and left alone.
            sending = Load(run.configuration, run.secrets).sending()
            if not sending and self._load_rate > 0:
                traffic.start(run, self._load_rate)
            elif not sending:
                logger.warning("chaos_mm: the load sends nothing, so nothing can be measured; set CHAOS_MM_LOAD_RATE")
        except ChaosMMError as error:
            raise InterruptExecution(f"chaos_mm refuses to begin: no traffic could be started: {error}") from None

    def _stop_traffic(self) -> None:
        try:
            traffic.stop(self.run)
        except ChaosMMError as error:
            logger.warning(f"chaos_mm: the traffic ends by its own keepalive: {error}")


def _fail_without_value(entry: dict[str, Any], output: Any) -> None:
    # A range would crash the whole run on None, with no journal and no rollbacks; a failed probe does not. What a
    # tolerance makes of a list or an object is between it and its probe, which may be another extension's.
    if not is_value(output):
        entry["status"] = "failed"
        entry["exception"] = [f"the probe gave no value that can be judged: {strict(output)!r}"[:200]]


def _reason(entry: Mapping[str, Any]) -> str:
    lines = [str(line).strip() for line in entry.get("exception") or []]
    return lines[-1].removeprefix("chaoslib.exceptions.ActivityFailed: ") if lines else "no reason was given"


def _interrupt(why: str) -> None:
    if threading.current_thread() is threading.main_thread():
        raise InterruptExecution(why)
    logger.error(why)  # the engine never looks at what a background activity raised
    interrupt_main()


def _stem() -> str:
    """The experiment file's name without folder and suffix, where a command line named one."""
    import click

    context = click.get_current_context(silent=True)
    source = str(context.params.get("source", "")) if context is not None else ""
    return source.rsplit("/", 1)[-1].rsplit(".", 1)[0]
