"""What may leave an activity: strict JSON or one sentence, by its deadline; and a stop of the run, which passes.

Chaos Toolkit puts whatever an activity raises into the journal, text, traceback and all. The text of an error nobody
expected may hold a prompt or a token, so of such an error only its kind and place are said.
"""

import traceback
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, NoReturn

from chaoslib.exceptions import ActivityFailed, ChaosException

from chaos_mm.control.deadline import within
from chaos_mm.controls.strict import strict
from chaos_mm.core.errors import ChaosMMError

__all__ = ["ACTION_SECONDS", "Unable", "fail", "outcome"]

ACTION_SECONDS = 1.0  # design: an action answers within a second
Unable = Callable[[str], dict[str, Any]]


def outcome(
    what: str, call: Callable[[], dict[str, Any]], unable: Unable, seconds: Callable[[], float] = lambda: ACTION_SECONDS
) -> dict[str, Any]:
    """The call's answer as strict JSON; what it asks of others ends after ``seconds()`` at the latest.

    An error becomes ``unable(sentence)``. The toolkit's own exceptions, which stop a run or say it in words, pass.
    """
    try:
        with within(seconds()):
            answer: dict[str, Any] = strict(call())
            return answer
    except ChaosException:
        raise
    except ChaosMMError as error:
        why = str(error)
    except Exception as error:  # whatever it is: its text and its traceback stay here
        why = _kind_and_place(error)
    return unable(f"{what}: {why}")  # outside the handler, so that the error does not travel along as its context


def fail(reason: str) -> NoReturn:
    """An action that could not be done: the toolkit goes on, or the verdict control stops the run."""
    raise ActivityFailed(reason)


def _kind_and_place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    at = f"{PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
    said = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
    return f"unexpected {type(error).__name__}{said} at {at}: please report it"
