"""Rules about the run: who watches over it, that what is injected ends, and where it waits."""

from collections.abc import Iterator, Mapping
from typing import Any

from chaos_mm.controls import arguments
from chaos_mm.controls.declared import FRAME
from chaos_mm.controls.lint_rules import Finding, finding
from chaos_mm.controls.placed import Document, Placed
from chaos_mm.core.errors import InvalidParams

__all__ = ["check_run"]

VERDICT = "chaos_mm.controls.verdict"
_CONTROL = '{"name": "verdict", "provider": {"type": "python", "module": "' + VERDICT + '"}}'
_NEVER_BEHIND = ("release", "release_all", "start_load", "stop_load")


def check_run(document: Document) -> Iterator[Finding]:
    """Every broken rule about the run. A file without activities of ours is left alone but for its control."""
    yield from _control(document)
    if document.ours:
        yield from _strategies(document.experiment.get("runtime") or {})
        yield from _leases(document)
    for one in document.injections:
        yield from _injection(document, one)
    for one in document.placed:
        yield from _behind(one)
        if document.ours:
            yield from _dry(one)
        if document.injections and one.part == "method":
            yield from _pause(one)
    if document.ours and document.experiment.get("dry"):
        yield finding("dry", "dry", "the file asks for a dry run", "leave it out; chaos run --dry activities")


def _control(document: Document) -> Iterator[Finding]:
    controls = [one for one in document.experiment.get("controls") or [] if isinstance(one, Mapping)]
    named = [one for one in controls if (one.get("provider") or {}).get("module") == VERDICT]
    for one in named:
        yield from _control_arguments(one)
    if document.ours and not any(one.get("automatic", True) is True for one in named):
        wrong = (
            "activities of chaos_mm are used, but its verdict control does not watch over the run: nothing is injected"
        )
        yield finding("control-missing", "controls", wrong, f"add {_CONTROL}, or run it with --control-file")


def _control_arguments(control: Mapping[str, Any]) -> Iterator[Finding]:
    given = control["provider"].get("arguments") or {}
    try:
        arguments.check(given if isinstance(given, Mapping) else {str(given): ""})
    except InvalidParams as error:
        yield finding("control-argument", "controls", str(error), "leave out or correct that argument")


def _strategies(runtime: Mapping[str, Any]) -> Iterator[Finding]:
    for part, wanted in (("rollbacks", "always"), ("hypothesis", "default")):
        found = runtime.get(part)
        given = found.get("strategy") if isinstance(found, Mapping) else None
        if given != wanted:
            wrong = f"the strategy is {given!r}" if given is not None else "no strategy is pinned"
            instead = f'"runtime": {{"{part}": {{"strategy": "{wanted}"}}}}'
            yield finding(f"{part}-strategy", f"runtime.{part}.strategy", wrong, instead)


def _injection(document: Document, one: Placed) -> Iterator[Finding]:
    if one.part != "method":
        yield finding("inject-place", one, f"a fault is injected in the {one.part}", "inject in the method")
        return
    for name, rule in (("ttl_seconds", "ttl-missing"), ("keepalive_seconds", "keepalive-missing")):
        if name not in one.arguments:
            default = FRAME[name].default
            yield finding(
                rule, one, f"no {name}; the default is {default:g} s", f'"{name}": {default:g} or what it takes'
            )
    if document.value(one.arguments.get("selector")) == "live":
        wrong = "real users are hit"
        yield finding(
            "selector-live", one, wrong, '"selector": "canary"; live needs --allow-live --max-rate at the point'
        )
    yield from _ended(document, one)


def _ended(document: Document, one: Placed) -> Iterator[Finding]:
    lease, method = document.lease(one), document.within("method")
    later = method[method.index(one) + 1 :]
    number = next((n for n, other in enumerate(later) if _releases(document, other, lease)), None)
    instead = f'{{"module": "chaos_mm.actions", "func": "release", "arguments": {{"lease": "{lease}"}}}}'
    if number is None:
        wrong = f"lease {lease!r} is not released in the method after this, so no recovery is measured"
        yield finding("release-missing", one, wrong, instead)
    else:
        yield from _length(document, one, later[:number], later[number])
    if not any(_releases(document, other, lease) for other in document.within("rollbacks")):
        yield finding("release-missing", one, f"no rollback releases lease {lease!r}", instead)


def _releases(document: Document, one: Placed, lease: str) -> bool:
    return one.is_action("release_all") or (one.is_action("release") and document.lease(one) == lease)


def _length(document: Document, one: Placed, between: list[Placed], release: Placed) -> Iterator[Finding]:
    before = [(other.body.get("pauses") or {}).get("before", 0) for other in (*between, release)]
    held = [other.arguments for other in between if other.is_action("hold")]
    holds = [other.get("seconds", 10.0) for other in held]
    holds += [other.get("within_seconds", 120.0) for other in held if other.get("lease")]
    waited = sum(document.number(seconds, 0.0) for seconds in (*before, *holds))
    ttl = document.number(one.arguments.get("ttl_seconds"), float("inf"))
    if waited >= ttl:
        wrong = f"the lease ends after {ttl:g} s, but its release comes after {waited:g} s or more"
        yield finding("ttl-too-short", one, wrong, f"a ttl_seconds well above {waited:g}")
    foreign = [other for other in between if not other.ours or other.arguments.get("whole_phase")]
    if not (any(before) or holds or foreign):
        yield finding(
            "fault-not-held",
            one,
            "it is released at once",
            "a 'hold' action with seconds ${fault_seconds} between them",
        )


def _leases(document: Document) -> Iterator[Finding]:
    made = {document.lease(one) for one in document.injections}
    for one in document.ours:
        lease = one.arguments.get("lease")
        if one.fault or lease is None or document.value(lease) in made or "${" in str(document.value(lease)):
            continue
        there = ", ".join(sorted(made)) or "none"
        yield finding("lease-unknown", one, f"no injection of this file makes lease {lease!r}", f"one of: {there}")


def _behind(one: Placed) -> Iterator[Finding]:
    if one.body.get("background") and (one.fault or one.is_action(*_NEVER_BEHIND)):
        wrong = f"{one.func} is in the background: the engine would go on without knowing whether it happened"
        yield finding("background", one, wrong, "leave background out; it answers within a second")


def _dry(one: Placed) -> Iterator[Finding]:
    if "dry" in one.body:
        wrong = "one activity alone would be played dry, and the rest unwatched"
        yield finding("dry", one, wrong, "leave it out; chaos run --dry activities")


def _pause(one: Placed) -> Iterator[Finding]:
    if (one.body.get("pauses") or {}).get("after"):
        instead = "a 'hold' action, or pauses.before of the next activity"
        yield finding("pauses-after", one, "pauses.after is slept through even when the run is to stop", instead)
