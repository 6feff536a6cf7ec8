"""Holds an experiment to the rules of the house, before anything runs: a pure look at the file.

What the verdict control refuses when a run begins is an error here too, and much that it cannot see is said as well.
"""

import os
from collections.abc import Mapping
from typing import Any

from chaos_mm.controls.lint_judging import check_judging
from chaos_mm.controls.lint_rules import RULES, Finding, finding
from chaos_mm.controls.lint_run import check_run
from chaos_mm.controls.placed import Document, shape_troubles

__all__ = ["RULES", "Finding", "lint"]


def lint(experiment: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> list[Finding]:
    """Every broken rule, errors first, else as they stand in the file. ``environment``: what it would run in."""
    troubles = [finding("shape", path, f"it is not {what}", what) for path, what in shape_troubles(experiment)]
    if not isinstance(experiment.get("method"), list):
        troubles.append(finding("shape", "method", "there is no method", '"method": [ activities ]'))
    if troubles:
        return troubles
    document = Document.read(experiment, environment)
    found = [*check_run(document), *check_judging(document)]
    return sorted(found, key=lambda one: one.level != "error")
