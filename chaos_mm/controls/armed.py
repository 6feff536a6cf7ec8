"""A run with everything that watches over it: what the hooks of ``verdict`` call."""

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaoslib.exceptions import InterruptExecution

from chaos_mm.controls import run as live
from chaos_mm.controls import traffic
from chaos_mm.controls.arguments import Arguments
from chaos_mm.controls.command_line import CommandLine
from chaos_mm.controls.ending import Ending, TargetWatch
from chaos_mm.controls.facts import Reason
from chaos_mm.controls.guard import Guard
from chaos_mm.controls.hooks import Hooks
from chaos_mm.controls.measuring import Load
from chaos_mm.controls.objectives import chosen_objectives
from chaos_mm.controls.phases import Phases
from chaos_mm.controls.refusals import needs_load, refusals
from chaos_mm.controls.rules import ACTIONS, harmless, injected_fault, injections, lease_of
from chaos_mm.controls.run import Run
from chaos_mm.controls.sampler import Sampler
from chaos_mm.controls.signals import Signals
from chaos_mm.controls.strict import is_value, strict
from chaos_mm.controls.telling import Telling
from chaos_mm.controls.worst import WorstWindows
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.report.words import WORDS

if TYPE_CHECKING:
    from chaos_mm.sli.objectives import Objective

__all__ = ["Armed"]

logger = logging.getLogger("chaostoolkit")


class Armed:
    """The life of one experiment under our control: arm, begin, before and after each activity, finish, close."""

    def __init__(
        self,
        experiment: dict[str, Any],
        configuration: Mapping[str, Any],
        secrets: Mapping[str, Any],
        arguments: Arguments,
    ) -> None:
        arguments = _expecting(arguments)
        self.experiment, self.arguments = experiment, arguments
        self.command = CommandLine.read(experiment)
        self.run = Run(str(experiment.get("title", "")), self.command.stem, configuration, secrets)
        self.signals = Signals(self.run)
        self.telling = Telling(self.run, self.command, arguments)
        self._load_needed = arguments.load_rate > 0 or needs_load(experiment)
        self._refused = self._begun = self._finished = self._closed = False
        self._seen: list[Mapping[str, Any]] = []
        self._hooks, self._target = Hooks(), TargetWatch(self.run)
        self._planned: tuple[str, ...] = ()
        self._guard: Guard | None = None
        self._watch([], [])

    def arm(self, wrong: str = "") -> None:
        """Take the signals, make the folder, start the guard; note what forbids to begin. ``wrong``: with the control's
        own arguments."""
        run = self.run
        self.signals.install()
        self.telling.open(self.experiment, self.leave)
        reasons = [Reason("error", wrong)] if wrong else []
        reasons += self.telling.refusals
        reasons += refusals(
            self.experiment, run.configuration, run.secrets, self._load_needed, self.command, run.chosen, run.fatal
        )
        self._prepare()
        if reasons:
            self.refuse(*reasons)
            return
        self._guard = Guard(run, self.signals.nudge, _runner())
        self._guard.start()

    def refuse(self, *reasons: Reason) -> None:
        """Nothing of this run may begin."""
        self._refused = True
        self.run.notes += reasons
        self.run.events.write("refused", reasons=[one._asdict() for one in reasons])

    def begin(self) -> None:
        """The last moment before anything runs. Raises InterruptExecution with every reason not to begin."""
        if self._begun:
            return
        self._begun = True
        if self._refused or self.run.stop.is_set():
            reasons = "; ".join(one.reason for one in self.run.notes)
            # A doctor looks at file and points; of what is wrong with either the sentence itself says what to write.
            asks = self._refused and any(one.word == "not_applied" for one in self.run.notes)
            what_to_do = "`chaos-mm doctor FILE` says what to type" if asks else "nothing was injected"
            raise InterruptExecution(f"chaos_mm refuses to begin: {reasons} ({what_to_do})")
        live.install(self.run)
        if self.command.dry:
            logger.info(f"chaos_mm {self.run.id}: a dry run: nothing is injected and nothing is judged")
            return
        logger.info(f"chaos_mm {self.run.id}: watching over this run")
        for fault, why in sorted(self.run.fatal.items()):
            logger.warning(f"chaos_mm: inject_{fault}: {why}; the run must end with a replacement that answers")
        self._target.begin()
        if self._load_needed:
            self._start_traffic()
        self._phases.enter("baseline")
        self._sampler.start()

    def begin_method(self) -> None:
        """Where nothing of ours is injected, the method itself is what happens to the service."""
        if self._watching and not self._planned and self.experiment.get("method"):
            self._phases.enter("fault")

    def before_activity(self, activity: Mapping[str, Any]) -> None:
        """Stop here if a signal came where nothing could be raised; else the last look at the baseline."""
        self._hooks.before(activity)
        self._must_be_whole()
        if self.run.stop.is_set() and not self.run.unwinding.is_set():
            raise SystemExit(self.signals.exit_code)
        fault = injected_fault(activity)
        if fault and self._watching:
            from chaos_mm import faults

            self._phases.remember_baseline(faults.get(fault).target)
            # Before the injection: a request that the fault hits must not count to the baseline.
            self._phases.enter("fault")

    def after_activity(self, activity: Mapping[str, Any], entry: dict[str, Any] | None) -> None:
        """Make the output strict JSON, follow the phases, stop the run when an injection did not happen.

        ``entry``: the journal's; None for an activity that was cut short.
        """
        self._hooks.after(activity)
        self._must_be_whole()
        if entry is None or any(one is entry for one in self._seen):  # one with controls of its own comes here twice
            return
        self._seen.append(entry)
        output = entry.get("output")
        if "tolerance" in activity and entry.get("status") == "succeeded" and not self.command.dry:
            _fail_without_value(entry, output, activity["tolerance"])
        entry["output"] = strict(output)
        self.telling.activity(activity, entry)
        if activity.get("provider", {}).get("module") == ACTIONS:
            self._follow(injected_fault(activity), activity["provider"]["func"], entry)

    def unwind(self) -> None:
        """Rollbacks begin: from here on nothing is raised from a signal."""
        self.run.unwinding.set()

    def broke(self, why: str) -> None:
        """Our own part failed: the run can no longer be vouched for, so it stops."""
        if any(one.reason == why for one in self.run.notes):
            return
        logger.error(f"chaos_mm: {why}")
        self.run.note("error", why)
        self.run.request_stop("error", why)

    def _must_be_whole(self) -> None:
        """The toolkit swallows what a hook raises; one that never comes shows in the next that does."""
        if not self._begun:
            self._hooks.missed("before_experiment")
        for name in self._hooks.missing:
            self.broke(f"{name}_control was not called, or broke: nobody can vouch for this run")

    def finish(self, journal: dict[str, Any] | None, crash: BaseException | None = None) -> None:
        """Release what is left, judge, and put everything on disk and into the journal."""
        if self._finished:
            return
        self._finished = True
        if (journal or {}).get("rollbacks") and not self.run.unwinding.is_set():
            self._hooks.missed("before_rollback")
        self.run.unwinding.set()
        if crash is not None:
            self.run.note("error", f"the toolkit crashed: {type(crash).__name__}: {crash}")
        if self._guard is not None and not self._guard.is_alive():
            self.run.note("error", "the guard of this run died: nobody watched over it")
        self._must_be_whole()
        ending = self._ending()
        try:
            ending.release()
            self._rest()
            self._conclude(ending, journal, crash, ask=self._watching)
        except Exception as error:  # a mistake of ours: the run still has a verdict, and it is not a good one
            self.broke(f"the end of the run broke: {type(error).__name__}: {error}")
            self._conclude(ending, journal, crash, ask=False)

    def _conclude(
        self, ending: Ending, journal: dict[str, Any] | None, crash: BaseException | None, *, ask: bool
    ) -> None:
        """``ask``: whether points and load have anything to say."""
        self.telling.conclude(ending, journal, self.signals, refused=self._refused, ask=ask, crash=crash)

    def close(self, crash: BaseException | None) -> None:
        """End the guard, its traffic and the signal handlers, after a crash too."""
        if self._closed:
            return
        self._closed = True
        if not self._finished and crash is None:
            self._hooks.missed("after_experiment")
        self.finish(self.telling.journal, crash)
        self.run.closed.set()
        live.uninstall(self.run)
        self.signals.restore(leaving=bool(self.command.journal_path))
        self._stop_traffic()
        self.telling.close()

    def leave(self, crash: BaseException | None) -> None:
        """The command ends, by ``crash`` when something of it broke even after the verdict stood."""
        self.close(crash)
        if self.command.journal_path and self.arguments.exit_code:
            self.signals.ignore()
        journal = self.command.journal_path
        if crash is None and journal and not Path(journal).exists():
            # A control that raises an exit, say. An older journal was moved away, so this is none of an earlier run.
            crash = FileNotFoundError(f"it wrote no {journal}")
        if crash is not None:
            self.telling.broke_after(crash)

    @property
    def _watching(self) -> bool:
        """Whether phases are marked and objectives sampled."""
        return self._begun and not self._refused and not self.command.dry

    def _prepare(self) -> None:
        run = self.run
        self._planned = tuple(lease_of(one, run.configuration, run.secrets) for one in injections(self.experiment))
        try:
            named, guards = chosen_objectives(self.experiment, run.configuration, run.secrets)
        except ChaosMMError:
            named, guards = [], []  # it stands among the refusals
        self._watch(named, guards if self._load_needed else [])
        self.telling.begin(self._phases.worst)

    def _watch(self, named: "list[Objective]", guards: "list[Objective]") -> None:
        run = self.run
        self._sampler = Sampler(run, [*named, *guards])
        self._phases = Phases(run, self._load_needed, WorstWindows(run, named, guards, self._sampler.whole))

    def _ending(self) -> Ending:
        hypothesis = self.experiment.get("steady-state-hypothesis") or {}
        judged = bool(hypothesis.get("probes"))
        arguments, dry = self.arguments, self.command.dry
        return Ending(
            self.run,
            self._phases,
            self._target,
            self._planned,
            arguments.min_achieved,
            dry,
            judged,
            harmless(self.experiment),
            arguments.expect,
        )

    def _rest(self) -> None:
        if self._sampler.is_alive():
            self._sampler.done.set()
            self._sampler.join(2.0)

    def _follow(self, fault: str, func: str, entry: Mapping[str, Any]) -> None:
        done = entry.get("status") == "succeeded" and isinstance(entry.get("output"), Mapping)
        if fault and entry.get("status") == "failed":
            self._not_injected(f"{func} did not happen, so this run stops: {_reason(entry)}")
        elif func in ("release", "release_all") and done and self._is_undone():
            self._phases.enter("recovery")

    def _is_undone(self) -> bool:
        """Whether the method released all that it injected; what only a rollback releases, nobody watches recover."""
        run = self.run
        all_came = bool(run.leases) and set(self._planned) <= set(run.leases)  # between two faults nothing recovers yet
        return run.phase == "fault" and all_came and not run.held() and not run.unwinding.is_set()

    def _not_injected(self, why: str) -> None:
        if not any(one.word in ("not_applied", "error") for one in self.run.notes):
            self.run.note("not_applied", why)
        if self.run.unwinding.is_set():
            return  # what is raised now takes the other rollbacks away
        if threading.current_thread() is threading.main_thread():
            self.run.stop.set()  # the engine waits for background activities before the rollbacks: ours end now
            raise InterruptExecution(why)
        logger.error(why)  # the engine never looks at what a background activity raised
        self.run.request_stop("not_applied", why)

    def _start_traffic(self) -> None:
        run = self.run
        try:
            # Traffic that flows already is somebody's: it is measured as well, and left alone.
            sending = Load(run.configuration, run.secrets).sending()
            if not sending and self.arguments.load_rate > 0:
                traffic.start(run, self.arguments.load_rate)
            elif not sending:
                logger.warning("chaos_mm: the load sends nothing, so nothing can be measured; set CHAOS_MM_LOAD_RATE")
        except ChaosMMError as error:
            why = f"no traffic could be started: {error}"
            self.refuse(Reason("not_applied", why))
            raise InterruptExecution(f"chaos_mm refuses to begin: {why}") from None

    def _stop_traffic(self) -> None:
        try:
            traffic.stop(self.run)
        except ChaosMMError as error:
            logger.warning(f"chaos_mm: the traffic ends by its own keepalive: {error}")


def _fail_without_value(entry: dict[str, Any], output: Any, tolerance: Any) -> None:
    # A range would crash the whole run on None, with no journal and no rollbacks; a failed probe does not. What a
    # tolerance makes of a list or an object is between it and its probe, which may be another extension's.
    if not is_value(output, tolerance):
        entry["status"] = "failed"
        entry["exception"] = [f"the probe gave no value that can be judged: {strict(output)!r}"[:200]]


def _reason(entry: Mapping[str, Any]) -> str:
    lines = [str(line).strip() for line in entry.get("exception") or []]
    return lines[-1].rpartition("chaoslib.exceptions.ActivityFailed: ")[2] if lines else "no reason was given"


def _expecting(arguments: Arguments) -> Arguments:
    """With the word of ``chaos gameday run --expect``, where that is what started us."""
    word = os.environ.get("CHAOS_MM_EXPECT", "") if _runner() else ""
    return replace(arguments, expect=word) if word in WORDS else arguments


def _runner() -> int:
    """The process that started this one to play it for us; 0 when that is not what our parent is."""
    parent = os.getppid()
    return parent if os.environ.get("CHAOS_MM_RUNNER") == str(parent) else 0
