"""The rules for experiment files, by name (docs/writing-an-experiment.md lists them), and a finding."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chaos_mm.controls.placed import Placed

__all__ = ["RULES", "Finding", "Rule", "finding"]


@dataclass(frozen=True)
class Rule:
    """``level``: error or warning. ``demand``: what a file must hold to, in one sentence."""

    level: str
    demand: str


def _error(demand: str) -> Rule:
    return Rule("error", demand)


def _warning(demand: str) -> Rule:
    return Rule("warning", demand)


RULES: Mapping[str, Rule] = {
    "shape": _error("The file is an experiment: lists are lists, objects are objects."),
    "control-missing": _error("Where activities of chaos_mm are used, the file names the verdict control."),
    "control-argument": _error("The verdict control gets only arguments that it takes."),
    "rollbacks-strategy": _error("`runtime.rollbacks.strategy` is `always`."),
    "hypothesis-strategy": _error("`runtime.hypothesis.strategy` is `default`, written in the file."),
    "inject-place": _error("Faults are injected in the method only."),
    "ttl-missing": _error("Every injection says its `ttl_seconds`, the hard end of its lease."),
    "ttl-too-short": _error("A lease outlives the waiting between its injection and its release."),
    "keepalive-missing": _warning("Every injection says its `keepalive_seconds`, after which a dead run's fault ends."),
    "release-missing": _error(
        "Every lease is released in the method, after its injection, and again in the rollbacks."
    ),
    "lease-unknown": _error("An activity names only leases that an injection of the file makes."),
    "fault-not-held": _warning("Between an injection and its release there is something to wait for."),
    "background": _error("Injections and releases are never in the background."),
    "dry": _error("No `dry` key in a file; `chaos run --dry activities` plays it without doing anything."),
    "pauses-after": _error("No `pauses.after` in a method that injects: a signal would have to wait for its end."),
    "selector-live": _warning(
        "An injection hits canaries only; `live` hits users and needs `--allow-live` at the point."
    ),
    "nothing-judged": _error("An experiment that injects names at least one objective that it is judged by."),
    "objective-unknown": _error("Objectives that are named exist."),
    "objective-mismatch": _error("A probe of an objective is judged by that objective."),
    "literal-threshold": _warning("SLIs are judged by named objectives, never by numbers in the experiment."),
    "phase-not-awaited": _warning("A hypothesis that asks for SLIs waits for the whole phase (`whole_phase`)."),
    "phase-literal": _warning(
        "Waiting times come from the configuration, so that CI can run the same file in seconds."
    ),
    "phase-type": _error("A length in the configuration is a number: from the environment with `env_var_type: float`."),
    "environment": _error("The environment holds values of the type that the file asks for."),
    "tolerance-shape": _error("A tolerance can be met, and cannot crash the run, by what its probe answers."),
    "tolerance-float": _error("A tolerance is no bare float: the toolkit takes whole numbers, texts and objects only."),
    "tolerance-target": _warning("A range with `target` needs a probe that always answers an object."),
    "tolerance-ignored": _warning("No tolerance outside the hypothesis: the toolkit never looks at it there."),
    "value": _error("Faults, activities, parameters and values are such as their declarations take."),
    "timeout-ignored": _warning(
        "No `timeout` on a Python activity: the toolkit ignores it; ours have their own deadlines."
    ),
    "secret-literal": _error("No secret stands in the file; it comes from the environment or a vault."),
}


@dataclass(frozen=True)
class Finding:
    """One broken rule: where (JSON path), in which activity ("" for none), what is wrong, what to write instead."""

    rule: str
    where: str
    activity: str
    wrong: str
    instead: str

    @property
    def level(self) -> str:
        """error or warning, as the rule is."""
        return RULES[self.rule].level

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        shown = {"rule": self.rule, "level": self.level, "where": self.where, "activity": self.activity}
        return {**shown, "wrong": self.wrong, "instead": self.instead}


def finding(rule: str, at: Placed | str, wrong: str, instead: str) -> Finding:
    """At an activity, or at a path."""
    if isinstance(at, Placed):
        return Finding(rule, at.path, at.name, wrong, instead)
    return Finding(rule, at, "", wrong, instead)
