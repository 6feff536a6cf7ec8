"""Requests thrown out of vLLM's running batch: the seam ``scheduler``."""

import time
from typing import Any

from chaos_mm.agent.armed import Armed
from chaos_mm.core.blast_radius import RequestInfo

__all__ = ["Preemption", "preempt", "request_info"]

_REMEMBERED = 4096


class Preemption:
    """``core.engine.Scheduler`` of one lease. Only the engine core's own loop may call it, between two steps."""

    def __init__(self, scheduler: Any, armed: Armed) -> None:
        """``scheduler``: vLLM's; ``armed`` picks the requests."""
        self._scheduler, self._armed = scheduler, armed
        self._tokens = self._times = 0
        self._done: dict[str, int] = {}

    def preempt_after(self, tokens: int, times: int) -> None:
        """Preempt each selected request when it has generated ``tokens`` tokens, ``times`` times over."""
        self._tokens, self._times = tokens, times

    def stop_preempting(self) -> None:
        """From now on nobody is."""
        self._times = 0

    @property
    def ended(self) -> bool:
        """Whether ``before_step`` has nothing to do any more."""
        return not self._armed.live

    def before_step(self) -> None:
        """Preempt who is due: at every ``tokens`` tokens of its answer."""
        if not (self._times and self._armed.live):
            return
        for request in list(self._scheduler.running):
            if self._armed.chosen(request_info(request)) and self._due(request):
                self._done[request.request_id] = self._done.get(request.request_id, 0) + 1
                preempt(self._scheduler, request)
                self._armed.count(request.request_id, "scheduler", {"output_tokens": float(request.num_output_tokens)})
        while len(self._done) > _REMEMBERED:
            del self._done[next(iter(self._done))]

    def _due(self, request: Any) -> bool:
        done = self._done.get(request.request_id, 0)
        return done < self._times and request.num_output_tokens >= self._tokens * (done + 1)


def request_info(request: Any) -> RequestInfo:
    """What a lease's selector may look at, of vLLM's ``Request`` or ``EngineCoreRequest``."""
    modalities = frozenset(feature.modality for feature in request.mm_features or ())
    return RequestInfo(request.request_id, "", modalities=modalities | {"text"})


def preempt(scheduler: Any, request: Any) -> None:
    """As vLLM does where blocks run out, for one running request: its blocks are freed and it waits first in line.

    Output that is being computed for it is dropped and computed again, or it would arrive out of order.
    """
    scheduler.running.remove(request)
    scheduler._preempt_request(request, time.monotonic(), drop_stale_output=True)
    scheduler.prev_step_scheduled_req_ids.discard(request.request_id)
