"""A control that breaks one hook of ``chaos_mm.controls.verdict``, named by TRUTH_BROKEN_HOOK, before it is called.

It stands before the verdict in the file, so it is imported first. The broken hook keeps its signature, by which the
toolkit decides what to hand over.
"""

import functools
import os
import sys
from typing import Any

from chaos_mm.controls import verdict

HOOK = os.environ.get("TRUTH_BROKEN_HOOK", "")


def _break(name: str) -> None:
    whole = getattr(verdict, name)

    @functools.wraps(whole)
    def broken(*given: Any, **arguments: Any) -> None:
        if "chaoslib" in sys._getframe(1).f_code.co_filename:  # the control may call its own hooks
            raise RuntimeError(f"{name} is broken")
        whole(*given, **arguments)

    setattr(verdict, name, broken)


if HOOK:
    _break(HOOK)
