"""What ``chaos-mm doctor`` looks at: each check yields findings, and one that is not good says what to type."""

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from chaos_mm.commands.points import Answer, ask, known_points
from chaos_mm.commands.version import versions
from chaos_mm.control.client import ControlClient
from chaos_mm.control.token import read_token, token_path
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
    yield _token(any(answer.error is None for answer in answers))
    for answer in answers:
        if not answer.absent or answer.at.kind in _START:
            yield _point(answer)


def about_target(configuration: Mapping[str, Any] | None = None) -> Iterator[Finding]:
    """The service under test and the model that is asked for."""
    url, model = text_of(TARGET_URL, configuration), text_of(TARGET_MODEL, configuration)
    served = models(url, _SECONDS)
    what = f"target {url}"
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
    reasons = refusals(experiment, configuration, secrets, load_needed)
    for reason in reasons:
        yield Finding(False, f"experiment {path.name}", reason, DEMO_UP if "answers" in reason else "correct the file")
    if not reasons:
        yield Finding(True, f"experiment {path.name}", "nothing speaks against it", f"chaos run {path}")


def _token(needed: bool) -> Finding:
    what = f"token {token_path()}"
    try:
        read_token()
    except ChaosMMError as error:
        # The first point to start makes it: without points its absence is no trouble.
        return Finding(False if needed else None, what, str(error), "read and follow that sentence" if needed else "")
    return Finding(True, what, "readable by you alone")


def _look(client: ControlClient, health: dict[str, Any]) -> dict[str, Any]:
    return {**health, "sending": health["point"] != "load" or bool(client.get("/status")["sending"])}


def _point(answer: Answer) -> Finding:
    from chaos_mm import __version__

    what = f"{answer.at.kind} {answer.at.url}"
    if answer.error is not None:
        by = "" if answer.absent else f" ({answer.at.source} names it)"
        return Finding(False, what, f"{answer.error}{by}", _START.get(answer.at.kind, "start it, or name another"))
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
