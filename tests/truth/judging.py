"""Rows about injection and judgement: what was injected, hit, measured."""

from dataclasses import replace

from chaos_mm.core.fault import Point
from tests.truth.experiments import (
    HYPOTHESIS,
    LIST,
    RELEASE,
    activity,
    background,
    control,
    experiment,
    foreign,
    hold,
    hypothesis,
    inject,
    judged,
    paused,
)
from tests.truth.load import Play
from tests.truth.point import PointScript
from tests.truth.scenario import NEVER, Expected, Scenario, Step, passed, refused

WRONG = "wrong"
NOT_STEADY = refused("not_steady", 3, journal="failed")
NOT_APPLIED = refused("not_applied", 3)
NOT_APPLIED_THERE = Expected("not_applied", 3)
NOT_EXERCISED = Expected("not_exercised", 3)
DEVIATED = Expected("deviated", 1, journal="completed")
NO_DATA = Expected("no_data", 3)

BASELINE = (
    Scenario("all well", passed(), differs=True),
    Scenario("baseline gate not met", NOT_STEADY, plays=(Play("canary", "baseline", WRONG),), differs=True),
    Scenario(
        "baseline broke and was well again at the gate",
        Expected("not_steady", 3),
        experiment(configuration={"baseline_seconds": 3.2}),
        plays=(Play("canary", "baseline", WRONG, 0.0, 1.2),),
    ),
    Scenario(
        "a guarded objective is broken in the baseline", NOT_STEADY, plays=(Play("bystander", "baseline", WRONG),)
    ),
    Scenario("no requests in the baseline", NOT_STEADY, plays=(Play("canary", "baseline", "none"),)),
    Scenario(
        "gate probe raises",
        NOT_STEADY,
        experiment(**hypothesis(judged(foreign("at_once", type="probe", value="raises")))),
    ),
    *(
        Scenario(
            f"gate probe gives {value}",
            NOT_STEADY,
            experiment(**hypothesis(judged(foreign("at_once", type="probe", value=value)))),
        )
        for value in ("nan", "none")
    ),
)

INJECTION = (
    Scenario(
        "action cannot inject: live traffic is not allowed", NOT_APPLIED, experiment(inject(selector="live"), hold())
    ),
    Scenario("action cannot inject: the point fails", NOT_APPLIED, point=PointScript(refuses=("PUT",))),
    Scenario(
        "action cannot inject, in the background",
        NOT_APPLIED,
        experiment(background(inject(selector="live")), hold(20.0)),
        differs=True,
    ),
    Scenario(
        "declared duration above the point's cap",
        refused("error", 4),
        experiment(inject(ttl_seconds=60)),
        point=PointScript(max_ttl_seconds=30),
    ),
    Scenario("injected in the background", passed(), experiment(background(inject()), hold(), RELEASE)),
    Scenario(
        "its limit of requests is hit",
        passed(gone="limit"),
        experiment(inject(limit=8), hold(), RELEASE),
    ),
    Scenario(
        "its limit of one request is hit, beside many that match",
        passed(gone="limit"),
        experiment(inject(limit=1), hold(), RELEASE),
        point=PointScript(applied=0.05),
    ),
    Scenario(
        "less than half of its limit is hit",
        NOT_EXERCISED,
        experiment(inject(limit=30), hold(), RELEASE),
        point=PointScript(applied=0.1),
    ),
    Scenario("mode observe", NOT_EXERCISED, experiment(inject(mode="observe"), hold(), RELEASE)),
    Scenario("zero hits", NOT_EXERCISED, point=PointScript(matched=0.0), differs=True),
    Scenario("requests met, none changed", NOT_EXERCISED, point=PointScript(applied=0.0)),
    Scenario("every change fails at the point", NOT_EXERCISED, point=PointScript(errored=1.0)),
    Scenario("fewer than half of the expected hits", NOT_EXERCISED, point=PointScript(applied=0.4)),
    Scenario("half of the expected hits", passed(), point=PointScript(applied=0.5)),
    Scenario(
        "rate 0.5, and more than half of that is hit",
        passed(),
        experiment(inject(rate=0.5), hold(), RELEASE),
        point=PointScript(applied=0.3),
    ),
    Scenario(
        "achieved below min_achieved",
        NOT_EXERCISED,
        experiment(controls=[control(min_achieved={"psnr_db": 30.0})]),
    ),
    Scenario("achieved as min_achieved asks", passed(), experiment(controls=[control(min_achieved={"psnr_db": 15.0})])),
)

MIXED_UP = Play("canary", "fault", "leak", 0.3, 0.55)  # some seven of forty a second: most are answered rightly
AGENT = PointScript(kind=Point.AGENT)
CARRIES = experiment(
    activity("inject_media_key_collision", bits=8, ttl_seconds=60, keepalive_seconds=5),
    hold(),
    activity("release", lease="media_key_collision"),
    rollbacks=[activity("release_all")],
)
LONG_FAULT = experiment(configuration={"fault_seconds": 2.6})

OBJECTIVES = (
    Scenario(
        "SLI broken, then healed before the end",
        DEVIATED,
        LONG_FAULT,
        plays=(Play("canary", "fault", WRONG, 0.0, 1.2),),
        differs=True,
    ),
    Scenario("SLI broken to the end of the fault", DEVIATED, plays=(Play("canary", "fault", WRONG),)),
    Scenario(
        "SLI broken for good",
        DEVIATED,
        plays=(Play("canary", "fault", WRONG), Play("canary", "recovery", WRONG)),
        differs=True,
    ),
    Scenario("SLI broken in the recovery alone", DEVIATED, plays=(Play("canary", "recovery", WRONG),)),
    Scenario(
        "deviated as expected: the word and the exit code stay",
        DEVIATED,
        experiment(controls=[control(expect="deviated")]),
        plays=(Play("canary", "fault", WRONG),),
    ),
    Scenario(
        "guard trips",
        Expected("halted", 1),
        experiment(inject(), hold(30.0), RELEASE),
        plays=(Play("bystander", "fault", WRONG),),
        differs=True,
        most_seconds=6.0,
    ),
    Scenario(
        "guard trips in a pause",
        Expected("halted", 1),
        experiment(inject(), paused(RELEASE, before=30.0)),
        plays=(Play("bystander", "fault", WRONG),),
        differs=True,
        most_seconds=6.0,
    ),
    Scenario(
        "guard trips while a background activity is waited for",
        Expected("halted", 1),
        experiment(inject(), background(hold(30.0))),
        plays=(Play("bystander", "fault", WRONG),),
        differs=True,
        most_seconds=6.0,
    ),
    Scenario(
        "guard trips under the second of two faults in turn",
        Expected("halted", 1),
        experiment(
            inject(lease="first"),
            hold(),
            activity("release", lease="first"),
            inject(lease="second"),
            hold(30.0),
            activity("release", lease="second"),
            rollbacks=[activity("release_all")],
        ),
        plays=(Play("bystander", "fault", WRONG, 2.6),),
        most_seconds=6.0,
        leases=2,
    ),
    Scenario(
        "the service mixes canaries up, which the fault does not",
        Expected("halted", 1),
        experiment(inject(), hold(30.0), RELEASE),
        plays=tuple(replace(MIXED_UP, begin=n + 0.3, end=n + 0.55) for n in range(30)),  # in every window
        most_seconds=6.0,
        output="canaries-apart: leak_count is ",
    ),
    Scenario(
        "the service mixes canaries up in the recovery, and only a guard forbids it",
        DEVIATED,
        plays=(replace(MIXED_UP, phase="recovery"),),
    ),
    Scenario(
        "the service mixes canaries up before the fault",
        Expected("not_steady", 3),
        plays=(replace(MIXED_UP, phase="baseline"),),
    ),
    Scenario("a fault that carries content mixes canaries up", passed(), CARRIES, plays=(MIXED_UP,), point=AGENT),
    Scenario("a guarded objective breaks in the recovery", DEVIATED, plays=(Play("bystander", "recovery", WRONG),)),
    Scenario("no requests under the fault", NO_DATA, LONG_FAULT, plays=(Play("canary", "fault", "none"),)),
    Scenario("no requests in the recovery", NO_DATA, plays=(Play("canary", "recovery", "none"),)),
    Scenario("the load dies under the fault", NO_DATA, LONG_FAULT, steps=(Step("armed", "close-load", delay=0.3),)),
)

PROBES = (
    *(
        Scenario(
            f"probe gives {value} after the fault, judged by a {kind}",
            Expected("no_data", 3, journal="failed"),
            experiment(**hypothesis(judged(foreign("later", type="probe", value=value), tolerance))),
            differs=(value, kind) == ("nan", "range"),
        )
        for kind, tolerance in (("range", {"type": "range", "range": [0, 1]}), ("list", LIST))
        for value in ("nan", "inf", "none", "empty list", "bytes", "set")
    ),
    Scenario(
        "probe raises after the fault",
        Expected("no_data", 3, journal="failed"),
        experiment(**hypothesis(judged(foreign("later", type="probe", value="raises")))),
        differs=True,
    ),
    Scenario(
        "foreign probe out of its tolerance after the fault",
        DEVIATED,
        experiment(**hypothesis(judged(foreign("later", type="probe", value="wrong")))),
    ),
)

NO_OBJECTIVES = {HYPOTHESIS: {"title": "nothing is asked", "probes": []}}
_FOREIGN = foreign("works"), hold(), hold("${recovery_seconds}")
OTHERS = (
    Scenario("another extension's action in place of an injection", passed(gone=NEVER), experiment(*_FOREIGN)),
    Scenario(
        "another extension's action, and the SLI breaks",
        Expected("deviated", 1, gone=NEVER, journal="completed"),
        experiment(*_FOREIGN),
        plays=(Play("canary", "fault", WRONG, 0.0, 1.2),),
    ),
    Scenario(
        "another extension's action, and nothing is measured",
        Expected("no_data", 3, gone=NEVER),
        experiment(*_FOREIGN, **NO_OBJECTIVES),
    ),
    Scenario(
        "another extension's action leaves by an exit in the background",
        Expected("not_applied", 3),
        experiment(inject(), background(foreign("leaves")), hold(), RELEASE),
    ),
    Scenario(
        "another extension's action fails beside an injection",
        NOT_APPLIED_THERE,
        experiment(inject(), foreign("fails"), hold(), RELEASE),
    ),
    Scenario("injected, and nothing is measured", NO_DATA, experiment(**NO_OBJECTIVES)),
)

JUDGING = {
    "The baseline": BASELINE,
    "The injection": INJECTION,
    "Objectives": OBJECTIVES,
    "Probes without a value": PROBES,
    "Other extensions, and nothing to measure": OTHERS,
}
