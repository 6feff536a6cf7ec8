"""Rows about what is wrong with the control, the file, the command line or the surroundings."""

import json
from collections.abc import Mapping
from typing import Any

from tests.truth.experiments import (
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
    objective,
)
from tests.truth.load import Play
from tests.truth.point import PointScript
from tests.truth.scenario import NEVER, Expected, Scenario, Step, passed, refused

ERROR = Expected("error", 4)
REFUSED = refused("error", 4)
NOT_PLAYED = refused("error", 4, rollbacks=False)
NO_RECORD = refused("error", 4, record=False, folder=False)
# chaos refuses the file before anything of ours runs, so there is no journal either.
INVALID = refused("error", 4, record=False, folder=False, rollbacks=False, journal="")
NOT_APPLIED = refused("not_applied", 3)
DRY = Expected("dry", 0, gone=NEVER, journal="completed")


def _changed(body: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    return {**body, **changes}


PLACES = {"": experiment(), ", injecting in the background": experiment(background(inject()), hold(20.0), RELEASE)}

# An installation of ours of which the control alone cannot be imported.
_UNIMPORTABLE = """
import sys


class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "chaos_mm.controls.verdict":
            raise ImportError("this installation is broken")


sys.meta_path.insert(0, Finder())
"""
MISSING = (
    *(
        Scenario(f"control {what}{place}", INVALID, _changed(body, controls=controls), differs=bool(place))
        for what, controls in (("missing", []), ("misspelt", [control("chaos_mm.controls.verdct")]))
        for place, body in PLACES.items()
    ),
    *(
        Scenario(
            f"control not importable{place}",
            NO_RECORD,
            body,
            files={"broken/sitecustomize.py": _UNIMPORTABLE},
            environment={"PYTHONPATH": "{folder}/broken:{path}"},
            differs=bool(place),
        )
        for place, body in PLACES.items()
    ),
)

_HOOKS = {
    "configure": refused("error", 4, record=False, folder=False),
    "before_experiment": refused("error", 4),
    "before_activity": refused("error", 4),
    "after_activity": refused("error", 4),
    "before_rollback": ERROR,
    "after_experiment": ERROR,
    "cleanup": Expected("error", 4, journal=""),
}
BROKEN = tuple(
    Scenario(
        f"control broken in {hook}{place}",
        expected,
        _changed(body, controls=[control("tests.truth.breaker"), control()]),
        environment={"TRUTH_BROKEN_HOOK": f"{hook}_control"},
        differs=bool(place),
    )
    for hook, expected in _HOOKS.items()
    for place, body in PLACES.items()
    if not place or hook in ("configure", "before_experiment")
)

CONTROL_FILE = {"control.json": json.dumps({"verdict": {"provider": control()["provider"]}})}
WITH_CONTROL_FILE = ("--control-file", "{folder}/control.json")
CONTROL = (
    *MISSING,
    *BROKEN,
    Scenario("control argument misspelt", INVALID, experiment(controls=[control(load_rat=1)])),
    Scenario(
        "control argument misspelt, --no-validation",
        REFUSED,
        experiment(controls=[control(load_rat=1)]),
        options=("--no-validation",),
    ),
    Scenario("control in the file and by --control-file", passed(), options=WITH_CONTROL_FILE, files=CONTROL_FILE),
    Scenario(
        "control by --control-file alone",
        passed(),
        experiment(controls=[]),
        options=WITH_CONTROL_FILE,
        files=CONTROL_FILE,
        differs=True,
    ),
    Scenario(
        "another control leaves by an exit after the verdict: the toolkit writes no journal",
        Expected("error", 4, journal=""),
        experiment(controls=[control(), control("tests.truth.leaver")]),
    ),
    Scenario(
        "the guard's thread dies, a second injection follows",
        ERROR,
        experiment(
            inject(),
            foreign("kills_the_guard"),
            hold(6.0),
            inject(lease="second"),
            hold(),
            RELEASE,
            rollbacks=[activity("release_all")],
        ),
        output="the guard of this run is dead",
    ),
)

_STRATEGY = {"hypothesis": {"strategy": "default"}, "rollbacks": {"strategy": "default"}}
_DURING = {"hypothesis": {"strategy": "during-method-only"}, "rollbacks": {"strategy": "always"}}
RUNTIME = (
    Scenario("strategy of rollbacks not pinned", NOT_PLAYED, experiment(runtime={})),
    Scenario("strategy of rollbacks pinned to another", NOT_PLAYED, experiment(runtime=_STRATEGY)),
    *(
        Scenario(f"--rollback-strategy {word} by hand", NOT_PLAYED, options=("--rollback-strategy", word))
        for word in ("never", "deviated")
    ),
    *(Scenario(f"--dry {kind}", DRY, options=("--dry", kind), differs=True) for kind in ("actions", "activities")),
    *(Scenario(f"--dry {kind}", REFUSED, options=("--dry", kind), differs=True) for kind in ("probes", "pause")),
    *(
        Scenario(
            f"a dry key on {what}",
            REFUSED,
            experiment({**inject(), **dry}, {**hold(), **held}, RELEASE),
            differs=True,
        )
        for what, dry, held in (
            ("the injection", {"dry": True}, {}),
            ("the wait", {}, {"dry": "actions"}),
        )
    ),
)

# The toolkit's continuous hypothesis holds up a stop, and the control samples every second anyway.
_CONTINUOUSLY = ("--hypothesis-strategy", "continuously")
_LATER_NAN = experiment(**hypothesis(judged(foreign("later", type="probe", value="nan"))))
CONTINUOUS = (
    Scenario(
        "continuously --fail-fast, the SLI breaks and heals",
        REFUSED,
        plays=(Play("canary", "fault", "wrong", 0.0, 1.3),),
        options=(*_CONTINUOUSLY, "--fail-fast"),
        output="only 'default' is taken",
    ),
    Scenario("continuously, a probe gives NaN in the toolkit's thread", REFUSED, _LATER_NAN, options=_CONTINUOUSLY),
    Scenario("hypothesis strategy pinned to another", REFUSED, experiment(runtime=_DURING)),
)

_MISSPELT = inject(sigmma=0.1)
VALUES = (
    Scenario("a value out of bounds", INVALID, experiment(inject(sigma=5.0), hold(), RELEASE)),
    Scenario(
        "a value out of bounds, --no-validation",
        REFUSED,
        experiment(inject(sigma=5.0), hold(), RELEASE),
        options=("--no-validation",),
    ),
    Scenario(
        "a value out of bounds, by a variable",
        REFUSED,
        experiment(inject(sigma="${sigma}"), hold(), RELEASE, configuration={"sigma": 0.1}),
        options=("--var", "sigma:float=5"),
    ),
    Scenario("a misspelt parameter", INVALID, experiment(_MISSPELT, hold(), RELEASE)),
    Scenario(
        "a misspelt parameter, --no-validation",
        REFUSED,
        experiment(_MISSPELT, hold(), RELEASE),
        options=("--no-validation",),
    ),
    Scenario(
        "one lease injected twice",
        REFUSED,
        experiment(inject(), hold(), RELEASE, inject(), hold(), RELEASE),
        output="is injected twice",
    ),
    Scenario(
        "an injection once more by ref",
        REFUSED,
        experiment(inject(), hold(), RELEASE, {"ref": "inject-image-noise"}, hold(), RELEASE),
        output="is repeated by 'ref'",
    ),
    Scenario(
        "an injection in the hypothesis",
        REFUSED,
        experiment(hold(0.1), **hypothesis(judged({**inject(), "type": "probe"}, True))),
        output="stands in the method",
    ),
    Scenario(
        "an objective that nobody wrote",
        REFUSED,
        experiment(**{"steady-state-hypothesis": {"title": "none", "probes": [objective("answrs")]}}),
    ),
)

_PLAIN = {"plain": "a file, so nothing can stand below it"}
DISK = (
    Scenario(
        "journal cannot be written, from the start",
        Expected("error", 4, gone=NEVER, rollbacks=False, journal=""),
        files=_PLAIN,
        journal_path="{folder}/plain/journal.json",
    ),
    Scenario(
        "journal cannot be written, at the end",
        Expected("error", 4, journal=""),
        files={"gone/keep": ""},
        journal_path="{folder}/gone/journal.json",
        steps=(Step("armed", "remove", "{folder}/gone"),),
    ),
    Scenario(
        "the reports folder is gone at the end",
        Expected("error", 4, record=False, folder=False),
        steps=(Step("armed", "remove", "{folder}/reports"),),
    ),
    Scenario(
        "reports folder cannot be written",
        refused("error", 4, record=False, folder=False),
        files=_PLAIN,
        environment={"CHAOS_MM_REPORTS": "{folder}/plain/reports"},
    ),
)

POINTS = (
    Scenario("point absent", NOT_APPLIED, point=None),
    Scenario("point of another version", NOT_APPLIED, point=PointScript(version="0.0.1")),
    Scenario("point stopped by hand", NOT_APPLIED, point=PointScript(latched=True)),
    Scenario("point held by somebody else", NOT_APPLIED, point=PointScript(foreign=True)),
    Scenario("load absent", NOT_APPLIED, load="absent"),
)

EXIT_CODE = (
    Scenario(
        "exit_code false: the toolkit's own status, zero hits",
        Expected("not_exercised", 1),
        experiment(controls=[control(exit_code=False)]),
        point=PointScript(matched=0.0),
    ),
    Scenario("a list of releases, once more", passed(), experiment(inject(), hold(), RELEASE, activity("release_all"))),
)

FILES = {
    "The control": CONTROL,
    "Strategies and dry runs": RUNTIME,
    "Continuous hypotheses": CONTINUOUS,
    "Values": VALUES,
    "The disk": DISK,
    "The points": POINTS,
    "Exit codes": EXIT_CODE,
}
