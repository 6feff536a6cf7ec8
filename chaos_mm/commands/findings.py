"""What ``chaos-mm doctor`` looks at: each check yields findings, and one that is not good says what to type."""

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from chaos_mm.commands.points import Answer, ask, known_points
from chaos_mm.commands.version import versions
from chaos_mm.control.client import ControlClient
from chaos_mm.control.timed import without_credentials
from chaos_mm.control.token import read_token, token_path
from chaos_mm.controls.command_line import CommandLine
from chaos_mm.controls.facts import Reason
from chaos_mm.controls.lint import lint
from chaos_mm.controls.names import LOAD_RATE, OBJECTIVES_DIR, TARGET_MODEL, TARGET_URL, given, text_of
from chaos_mm.controls.refusals import needs_load, refusals
from chaos_mm.controls.target import models
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.demo import lifecycle
from chaos_mm.demo.ports import Ports
from chaos_mm.sli.objectives import find, load

__all__ = [
    "Finding",
    "about_demo",
    "about_experiment",
    "about_installation",
    "about_objectives",
    "about_points",
    "about_target",
]

DEMO_UP = 'eval "$(chaos-mm demo up)"'
_EXTRAS = {
    "proxy": ("cryptography", "numpy", "PIL"),
    "load": ("aiohttp", "soundfile"),
    "target": ("torch", "transformers"),
}
_START = {
    "proxy": f"{DEMO_UP}, or before a service of yours: chaos-mm proxy --upstream URL",
    "load": f"{DEMO_UP}, or: chaos-mm load --proxy-url URL",
}
_OTHER_TOKEN = "export CHAOS_MM_TOKEN_FILE=FILE, the one that the point was started with (or CHAOS_MM_STATE_DIR)"
_NOT_READY = {
    " is held by ": "wait for that run to end; chaos-mm status shows it",
    "stopped by hand": "chaos-mm stop --clear",
    "another token": _OTHER_TOKEN,
    "runs chaos_mm": "install one version in both places and restart the point",
    "answers": DEMO_UP,
}
_SECONDS = 2.0


class Finding(NamedTuple):
    """One line: ``good`` is None for what is only worth knowing."""

    good: bool | None
    what: str
    found: str
    do: str = ""


def about_installation() -> Iterator[Finding]:
    """Versions and extras."""
    yield Finding(None, "versions", ", ".join(f"{name} {version}" for name, version in versions()))
    for extra, modules in _EXTRAS.items():
        absent = [module for module in modules if importlib.util.find_spec(module) is None]
        what = f"extra [{extra}]"
        if absent:
            do = f"only if {extra} is to run on this machine: pip install 'chaostoolkit-multimodal[{extra}]'"
            yield Finding(None, what, f"without {', '.join(absent)}", do)
        else:
            yield Finding(True, what, "installed")


def about_demo() -> Iterator[Finding]:
    """Whether the demo is up, or could be."""
    demo, taken = lifecycle.read(), Ports().taken()
    if demo is not None and demo.supervised:
        yield Finding(True, "demo", f"{demo.state} at ports from {demo.base_port}", "chaos-mm demo status")
    elif taken:
        found = f"not up, and port {', '.join(taken)} is taken by another program"
        yield Finding(None, "demo", found, "chaos-mm demo up --base-port N")
    else:
        yield Finding(None, "demo", "not up; its ports are free", DEMO_UP)


def about_points(configuration: Mapping[str, Any] | None = None, source: str = "") -> Iterator[Finding]:
    """Token and points: who answers, in which version, and whether it would take a fault."""
    answers = ask(known_points((), configuration, source), _look, _SECONDS)
    yield _token(any(answer.error is None or answer.error.kind != "point_unreachable" for answer in answers))
    for answer in answers:
        if not answer.absent or answer.at.kind in _START:
            yield _point(answer)
            yield from _model_of_load(answer, text_of(TARGET_MODEL, configuration))


def about_target(configuration: Mapping[str, Any] | None = None) -> Iterator[Finding]:
    """The service under test and the model that is asked for."""
    url, model = text_of(TARGET_URL, configuration), text_of(TARGET_MODEL, configuration)
    served = models(url, _SECONDS)
    what = f"target {without_credentials(url)}"
    if not served:
        do = f"{DEMO_UP}, or name a service of yours in {TARGET_URL.variable}"
        yield Finding(False, what, "no OpenAI-compatible API answers there", do)
    elif model not in served:
        do = f"export {TARGET_MODEL.variable}={served[0]}"
        yield Finding(False, what, f"serves {', '.join(served)}, not {model}", do)
    else:
        yield Finding(True, what, f"serves {model}")


def about_objectives(configuration: Mapping[str, Any] | None = None) -> Iterator[Finding]:
    """Where objectives are read from."""
    named = given(OBJECTIVES_DIR, configuration)
    what = "objectives"
    try:
        found = load(named)
        yield Finding(True, what, f"{len(found)} in {find(named)}")
    except ChaosMMError as error:
        yield Finding(False, what, str(error), "chaos-mm init DIR, then export CHAOS_MM_OBJECTIVES=DIR/objectives")
        return


def about_experiment(
    experiment: Mapping[str, Any], configuration: Mapping[str, Any], secrets: Mapping[str, Any], path: Path
) -> Iterator[Finding]:
    """What the verdict control would refuse this file for."""
    load_needed = needs_load(experiment) or text_of(LOAD_RATE, configuration) != LOAD_RATE.default
    what, broken = f"experiment {path.name}", [one for one in lint(experiment) if one.level == "error"]
    reasons = refusals(experiment, configuration, secrets, load_needed, CommandLine.read(experiment))
    for reason in reasons:
        yield Finding(False, what, reason.reason, _against(reason, bool(broken), path))
    if broken:
        yield Finding(None, what, f"breaks {', '.join(sorted({one.rule for one in broken}))}", f"chaos-mm lint {path}")
    if not reasons:
        yield Finding(True, what, "nothing speaks against it", f"chaos run {path}")


def _against(reason: Reason, broken: bool, path: Path) -> str:
    """What to do about a refusal: about the file, or about a point that would not take it now."""
    if reason.word == "error":
        return f"chaos-mm lint {path}" if broken else "correct the file or the environment"
    return _about_point(reason.reason)


def _about_point(said: str) -> str:
    return next((do for words, do in _NOT_READY.items() if words in said), "read and follow that sentence")


def _token(needed: bool) -> Finding:
    what = f"token {token_path()}"
    try:
        read_token()
    except ChaosMMError as error:
        # The first point to start makes it: without points its absence is no trouble.
        return Finding(False if needed else None, what, str(error), "read and follow that sentence" if needed else "")
    return Finding(True, what, "readable by you alone")


def _look(client: ControlClient, health: dict[str, Any]) -> dict[str, Any]:
    # Health needs no token; what a run will ask needs the right one.
    status = client.get("/status" if health["point"] == "load" else "/leases")
    status = status if health["point"] == "load" else {"sending": True}
    return {**health, "sending": bool(status["sending"]), "model": status.get("model", "")}


def _model_of_load(answer: Answer, model: str) -> Iterator[Finding]:
    asked = answer.value["model"] if answer.error is None else ""
    if asked and asked != model:
        do = f"chaos-mm load --model {model}, or export {TARGET_MODEL.variable}={asked}"
        yield Finding(False, f"load {answer.at.url}", f"asks for the model {asked}, not {model}", do)


def _point(answer: Answer) -> Finding:
    from chaos_mm import __version__

    what = f"{answer.at.kind} {answer.at.url}"
    if answer.error is not None:
        by = "" if answer.absent else f" ({answer.at.source} names it)"
        do = _START.get(answer.at.kind, "start it, or name another")
        if answer.error.kind == "unauthorized":
            do = _about_point(str(answer.error))
        return Finding(False, what, f"{answer.error}{by}", do)
    if answer.value["version"] != __version__:
        found = f"runs version {answer.value['version']}, here is {__version__}"
        return Finding(False, what, found, "install one version in both places and restart the point")
    if answer.value["stopped"]:
        return Finding(False, what, "stopped by hand, takes no faults", "chaos-mm stop --clear")
    if answer.value["armed"]:
        return Finding(None, what, "answers; a fault is armed", "chaos-mm status")
    if not answer.value["sending"]:
        do = f"start it with --background-rate, or export {LOAD_RATE.variable}=8"
        return Finding(None, what, "answers, but sends no requests by itself", do)
    return Finding(True, what, "answers, nothing armed")
