"""Signals to one very process: through a pidfd, checked after it was opened, so that no other with its id gets one."""

import os
import signal
import time

from chaos_mm.core.errors import ChaosMMError
from chaos_mm.host.procfs import Identity, state_of

__all__ = ["await_state", "send"]

_STEP_SECONDS = 0.005


def send(who: Identity, number: signal.Signals) -> bool:
    """Send it; False when the process is gone. Raises ChaosMMError when it may not be sent."""
    try:
        handle = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return False
    except OSError as error:
        raise ChaosMMError(f"process {who.pid} cannot be opened: {error.strerror}") from None
    try:
        if state_of(who) in ("", "Z", "X"):
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    except OSError as error:
        raise ChaosMMError(f"{number.name} to process {who.pid}: {error.strerror}") from None
    finally:
        os.close(handle)


def await_state(who: Identity, states: str, seconds: float, *, absent: bool = False) -> bool:
    """Wait until its state is one of ``states`` (with ``absent``: none of them); a process that is gone has "".

    Whether it came to be within ``seconds``.
    """
    until = time.monotonic() + seconds
    while True:
        state = state_of(who)
        if (bool(state) and state in states) != absent:
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(_STEP_SECONDS)
