"""The exit status of ``chaos run`` itself: the verdict's, once the toolkit has written its journal.

The toolkit knows 0 and 1. What a command's context calls when it closes runs last, and what it raises decides.
"""

import sys
import traceback
from collections.abc import Callable

from chaos_mm.report.words import EXIT_CODES

__all__ = ["ExitStatus", "record", "recorded"]

_recorded = ""


def record(folder: str) -> None:
    """The run of this process whose verdict is on disk in ``folder``."""
    global _recorded
    _recorded = folder


def recorded() -> str:
    """The folder of the last run of this process that left a verdict; "" while none did."""
    return _recorded


class ExitStatus:
    """Of one run. ``word`` is its verdict, "" while there is none. ``decides``: whether the verdict is the status.

    ``scrub`` takes out of a traceback what nobody may read.
    """

    def __init__(self, decides: bool = True, scrub: Callable[[str], str] = str) -> None:
        self.word = ""
        self._decides, self._scrub = decides, scrub
        self._leaving: Callable[[BaseException | None], None] = lambda crash: None

    def install(self, leaving: Callable[[BaseException | None], None]) -> None:
        """From now on the command under way ends with the verdict's status; without a command line nothing changes.

        ``leaving`` is called then, with what broke the command, a signal or an exit apart; it may change ``word``.
        """
        self._leaving = leaving
        import click

        context = click.get_current_context(silent=True)
        if context is not None:
            context.call_on_close(self.leave)

    def leave(self) -> None:
        """Raise SystemExit with the status. A command that broke after a good verdict did not end well."""
        import click

        error = sys.exc_info()[1]
        ended = error is None or isinstance(error, (SystemExit, KeyboardInterrupt, click.exceptions.Exit))
        self._leaving(None if ended else error)
        if not self._decides:
            return
        code = EXIT_CODES.get(self.word, EXIT_CODES["error"])
        if error is not None and not ended:
            sys.stderr.write(self._scrub("".join(traceback.format_exception(error))))
            code = max(code, EXIT_CODES["error"])
        raise SystemExit(code)
