"""Traffic that the load sends on behalf of a run: started, kept alive, stopped."""

import threading
from typing import Any

from chaos_mm.controls.guard import Renewal
from chaos_mm.controls.measuring import Load
from chaos_mm.controls.names import ANSWER_SECONDS
from chaos_mm.controls.run import Run

__all__ = ["TTL_SECONDS", "start", "stop"]

TTL_SECONDS = 3600.0
_KEEPALIVE_SECONDS = 10.0
_FIRST_SECONDS = 0.9
_renewing = threading.Lock()


def start(run: Run, rate: float, mix: str = "", ttl_seconds: float = TTL_SECONDS) -> dict[str, Any]:
    """Send ``rate`` requests a second for this run until ``stop``, its end, or the TTL. Raises ChaosMMError."""

    def say(timeout: float) -> dict[str, Any]:
        load = Load(run.configuration, run.secrets, timeout)
        return load.start(run.id, rate, mix, ttl_seconds, _KEEPALIVE_SECONDS)

    answer = say(_FIRST_SECONDS)
    run.traffic_ended.set()  # the renewal of traffic that ran before, if any
    run.traffic_ended = ended = threading.Event()

    def renew(timeout: float) -> None:
        with _renewing:
            if not ended.is_set():
                say(timeout)

    Renewal(run, _KEEPALIVE_SECONDS, ended, renew, "the traffic of this run").start()
    return {**answer, "owner": run.id, "rate": rate}


def stop(run: Run) -> dict[str, Any]:
    """Stop the run's traffic; none is success. Raises ChaosMMError."""
    if run.traffic_ended.is_set():
        return {"stopped": False, "reason": "this run sends no traffic"}
    run.traffic_ended.set()
    # A renewal that is under way would start again what is stopped here.
    waited = _renewing.acquire(timeout=ANSWER_SECONDS / 2)
    try:
        Load(run.configuration, run.secrets).stop(run.id)
    finally:
        if waited:
            _renewing.release()
    return {"stopped": True}
