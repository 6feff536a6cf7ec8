"""Rows about how a fault ends: rollbacks, time to live, points that die, signals."""

from dataclasses import replace

from chaos_mm.core.fault import Point
from tests.truth.experiments import RELEASE, activity, background, experiment, foreign, hold, inject, paused
from tests.truth.point import PointScript
from tests.truth.scenario import NEVER, Expected, Scenario, Step, passed, refused

ERROR = Expected("error", 4)
INTERRUPTED = Expected("interrupted", 4)

ROLLBACKS = (
    Scenario(
        "rollback raises, nothing is left", ERROR, experiment(rollbacks=[RELEASE, foreign("fails")]), differs=True
    ),
    Scenario(
        "rollback raises before the one that releases",
        ERROR,
        experiment(inject(), hold(), rollbacks=[foreign("fails"), RELEASE]),
    ),
    Scenario(
        "undo impossible",
        Expected("not_restored", 5, gone="left"),
        experiment(inject(keepalive_seconds=60), hold(), RELEASE),
        point=PointScript(refuses=("DELETE",)),
    ),
    Scenario(
        "nothing in the file releases the fault",
        refused("error", 4, rollbacks=False),
        experiment(inject(), hold(), rollbacks=[]),
    ),
    Scenario(
        "released by the rollback alone: no recovery was measured",
        Expected("no_data", 3, journal="interrupted"),
        experiment(inject(), hold()),
    ),
    Scenario(
        "rollback alone, a lease of somebody else lives at the point",
        refused("not_applied", 3),
        experiment(hold(0.1)),
        point=PointScript(foreign=True),
    ),
)

DYING = (
    Scenario(
        "time to live ends in the middle of the phase",
        Expected("error", 4, gone="ttl"),
        experiment(inject(ttl_seconds=1), hold(), RELEASE, configuration={"fault_seconds": 2.6}),
    ),
    Scenario(
        "time to live ends before its limit of requests is hit",
        Expected("error", 4, gone="ttl"),
        experiment(inject(ttl_seconds=1, limit=500), hold(), RELEASE, configuration={"fault_seconds": 2.6}),
    ),
    Scenario(
        "keepalives do not arrive",
        Expected("error", 4, gone="keepalive"),
        experiment(inject(), hold(6.0), RELEASE),
        point=PointScript(refuses=("POST",)),
    ),
    Scenario(
        "the point dies under the fault, and nobody can vouch that it is clean",
        Expected("not_restored", 5, gone="process"),
        experiment(configuration={"fault_seconds": 2.6}),
        steps=(Step("armed", "close-point", delay=0.6),),
    ),
    Scenario(
        "the point is replaced under the fault",
        Expected("error", 4, gone="process"),
        experiment(configuration={"fault_seconds": 2.6}),
        steps=(Step("armed", "replace-point", delay=0.6),),
    ),
    Scenario(
        "stopped by hand at the point",
        Expected("interrupted", 4, gone="stop"),
        experiment(inject(), hold(30.0), RELEASE),
        steps=(Step("armed", "stop-point", delay=0.6),),
        most_seconds=3.0,
    ),
)

TARGET = (
    Scenario(
        "the service under test does not come back",
        Expected("not_restored", 5),
        target=True,
        steps=(Step("armed", "close-target", delay=0.3),),
    ),
    Scenario("the service under test answers at both ends", passed(), target=True),
)

FATAL = PointScript(fatal="restart needed: the process ends")
ENGINE_FAULT = experiment(
    activity("inject_kv_cache_noise", sigma=0.5, ttl_seconds=60, keepalive_seconds=5),
    hold(),
    activity("release", lease="kv_cache_noise"),
    rollbacks=[activity("release_all")],
)
ENGINE_DIES = (Step("armed", "replace-point", delay=0.6), Step("start", "replace-target"))
UNDO = (
    Scenario(
        "the undo is proven a second after the release", passed(), point=PointScript(undo="proven", undo_seconds=1)
    ),
    Scenario("the undo cannot be proven", Expected("not_restored", 5), point=PointScript(undo="unproven")),
    Scenario("the undo does not end", Expected("not_restored", 5), point=PointScript(undo="never")),
    Scenario(
        "a fault after which a restart is needed, and another process serves",
        passed(),
        point=FATAL,
        target=True,
        steps=(Step("armed", "replace-target", delay=0.3),),
        output="restart needed: the process ends",
    ),
    Scenario(
        "a fault after which a restart is needed, and the same process serves on",
        Expected("not_restored", 5),
        point=FATAL,
        target=True,
    ),
    Scenario(
        "a fault ends the engine and the agent in it, and another process serves",
        passed(gone="process"),
        ENGINE_FAULT,
        point=replace(FATAL, kind=Point.AGENT),
        target=True,
        steps=ENGINE_DIES,
    ),
    Scenario(
        "the engine of a fatal fault that hit nobody is replaced by chance",
        Expected("not_exercised", 3, gone="process"),
        ENGINE_FAULT,
        point=replace(FATAL, kind=Point.AGENT, applied=0.0),
        target=True,
        steps=ENGINE_DIES,
        output="nothing shows that it was this fault",
    ),
    Scenario(
        "the engine is replaced while a fault in it is being undone",
        passed(),
        ENGINE_FAULT,
        point=PointScript(kind=Point.AGENT, undo="never"),
        target=True,
        steps=(Step("ended", "replace-point", delay=0.3), Step("start", "replace-target")),
    ),
    Scenario(
        "the agent is replaced while its fault is being undone, and the same process serves on",
        Expected("not_restored", 5),
        ENGINE_FAULT,
        point=PointScript(kind=Point.AGENT, undo="never"),
        target=True,
        steps=(Step("ended", "replace-point", delay=0.3),),
        output="its process was replaced since, but the process that served at the start still serves",
    ),
    Scenario(
        "a point beside the engine is replaced while it undoes, and so is the engine",
        Expected("not_restored", 5),
        point=PointScript(undo="never"),
        target=True,
        steps=(Step("ended", "replace-point", delay=0.3), Step("start", "replace-target")),
    ),
    Scenario(
        "the point says beforehand that it cannot",
        refused("not_applied", 3),
        point=PointScript(refusal="no NVIDIA device: NVML counts none"),
        output="no NVIDIA device: NVML counts none",
    ),
)

# Where the engine is when the signal comes, and what the output says when it has got there.
PLACES = {
    "a foreground action": (experiment(inject(), hold(30.0), RELEASE), "Action: hold"),
    "a pause": (experiment(inject(), paused(RELEASE, before=30.0)), "Pausing before"),
    "a background activity": (experiment(inject(), background(hold(30.0))), "Action: hold"),
}
_BY_SIGNAL = {
    **dict.fromkeys(("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"), INTERRUPTED),
    "SIGUSR2": Expected("interrupted", 4, rollbacks=False),
    "SIGKILL": Expected("error", -9, gone="keepalive", rollbacks=False, journal="", record=False),
}

SIGNALS = tuple(
    Scenario(
        f"{name} in {place}",
        expected,
        body,
        steps=(Step("armed", ""), Step(seen, "signal", name, 0.4)),
        differs=True,
        # The keepalive, a second, and what was renewed since the lease began.
        most_seconds=9.0 if name == "SIGKILL" else 3.0,
    )
    for place, (body, seen) in PLACES.items()
    for name, expected in _BY_SIGNAL.items()
)

SLOW = foreign("sleeps", seconds=1.0)
MORE_SIGNALS = (
    Scenario(
        "two SIGTERMs, 200 ms apart, in a pause",
        INTERRUPTED,
        PLACES["a pause"][0],
        steps=(Step("Pausing before", "signal", "SIGTERM", 0.4), Step("start", "signal", "SIGTERM", 0.2)),
        differs=True,
        most_seconds=3.0,
    ),
    Scenario(
        "two SIGTERMs, 200 ms apart, the second in a slow rollback: all rollbacks run",
        INTERRUPTED,
        experiment(inject(), hold(30.0), rollbacks=[SLOW, RELEASE]),
        steps=(Step("Action: hold", "signal", "SIGTERM", 0.4), Step("Rollback: sleeps", "signal", "SIGTERM", 0.2)),
        differs=True,
        most_seconds=3.0,
    ),
    Scenario(
        "SIGINT and SIGTERM at once",
        INTERRUPTED,
        experiment(inject(), hold(30.0), RELEASE),
        steps=(Step("Action: hold", "signal", "SIGINT", 0.4), Step("start", "signal", "SIGTERM")),
        differs=True,
        most_seconds=3.0,
    ),
    Scenario(
        "SIGTERM in pauses.after",
        INTERRUPTED,
        experiment(inject(), paused(hold(0.2), after=20.0), RELEASE),
        steps=(Step("Pausing after", "signal", "SIGTERM", 0.4),),
        differs=True,
        most_seconds=3.0,
    ),
    Scenario(
        "SIGTERM in a foreign action that sleeps",
        INTERRUPTED,
        experiment(inject(), foreign("sleeps", seconds=20.0), RELEASE),
        steps=(Step("Action: sleeps", "signal", "SIGTERM", 0.4),),
        differs=True,
        most_seconds=3.0,
    ),
    Scenario(
        "SIGTERM while the point takes its time to inject",
        Expected("interrupted", 4, gone=NEVER),
        point=PointScript(slow_seconds=0.6),
        steps=(Step("Action: inject", "signal", "SIGTERM", 0.2),),
        differs=True,
        most_seconds=3.0,
    ),
    Scenario(
        "SIGTERM in the baseline",
        Expected("interrupted", 4, gone=NEVER),
        experiment(configuration={"baseline_seconds": 30.0}),
        steps=(Step("Probe: answers", "signal", "SIGTERM", 0.4),),
        differs=True,
    ),
    Scenario(
        "SIGTERM in the recovery",
        INTERRUPTED,
        experiment(configuration={"recovery_seconds": 30.0}),
        steps=(Step("armed", ""), Step("ended", ""), Step("start", "signal", "SIGTERM", 0.6)),
        differs=True,
    ),
    Scenario(
        "SIGTERM while the rollbacks run",
        INTERRUPTED,
        experiment(rollbacks=[SLOW, RELEASE]),
        steps=(Step("Rollback: sleeps", "signal", "SIGTERM", 0.3),),
        differs=True,
    ),
    Scenario(
        "SIGHUP under nohup is ignored",
        passed(),
        prefix=("nohup",),
        steps=(Step("Action: hold", "signal", "SIGHUP", 0.4),),
        differs=True,
    ),
)

PAUSES = (
    Scenario(
        "pauses.after of the injection",
        refused("error", 4),
        experiment(paused(inject(), after=1.4), hold(), RELEASE),
        output="pauses.after holds up a signal",
    ),
    Scenario("pauses.after of the wait", passed(), experiment(inject(), paused(hold(), after=0.5), RELEASE)),
)

ENDING = {
    "Rollbacks": ROLLBACKS,
    "Leases that end by themselves": DYING,
    "The service under test": TARGET,
    "Undo, and faults after which a restart is needed": UNDO,
    "Signals": (*SIGNALS, *MORE_SIGNALS),
    "Pauses": PAUSES,
}
