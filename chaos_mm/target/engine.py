"""Micro-batching: one worker thread takes what has arrived within a few milliseconds and decodes it together."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from chaos_mm.core import serving
from chaos_mm.target import tokens
from chaos_mm.target.encoder_cache import EncoderCache
from chaos_mm.target.generation import ModelInput, decode
from chaos_mm.target.metrics import Metrics
from chaos_mm.target.network import OmniModel
from chaos_mm.target.refusal import Refusal

MAX_BATCH = 16
GATHER_SECONDS = 0.003
MAX_WAITING = 512
LEAST_LOGPROB = -9999.0  # vLLM's stand-in for minus infinity and what is not a number


class Token(NamedTuple):
    """A generated token; ``logprob`` and the likeliest ``top`` (id, logprob) where asked for."""

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class Finished(NamedTuple):
    """The end of an answer: ``stop`` or ``length``, and how many tokens were generated, ``<eos>`` included."""

    reason: str
    generated: int


class Failed(NamedTuple):
    """The model raised."""

    error: Exception


Event = Token | Finished | Failed


@dataclass(eq=False)
class Job:
    """A prompt on its way through the engine; its events arrive in ``events`` on the loop that made it."""

    entry: ModelInput
    max_tokens: int
    logprobs: int | None = None
    request_id: str = ""
    arrived: float = field(default_factory=time.monotonic)
    events: "asyncio.Queue[Event]" = field(default_factory=asyncio.Queue)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    cancelled: bool = False
    generated: int = 0
    done: bool = False

    def cancel(self) -> None:
        """Nobody waits for the answer any more. May be called from any thread, and after the end."""
        self.cancelled = True


@dataclass(eq=False)
class EmbeddingJob:
    """Texts to embed; the future gets a float32 tensor (n, 128) of unit vectors."""

    ids: list[list[int]]
    future: "asyncio.Future[Any]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    cancelled: bool = False


class Engine:
    """The model and its worker thread. ``clock`` is monotonic seconds."""

    def __init__(self, model: OmniModel, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self.model = model
        self.encoder_cache = EncoderCache(metrics.count_lookup)
        self._metrics, self._clock = metrics, clock
        self._queue: queue.SimpleQueue[Job | EmbeddingJob | None] = queue.SimpleQueue()
        self._running = 0
        self._thread = threading.Thread(target=self._work, name="decode", daemon=True)
        metrics.watch_queue(lambda: self._running, self._queue.qsize)

    def start(self) -> None:
        """Say what is served here, and start the worker thread."""
        serving.announce_model(self.model)
        serving.announce_cache(self.encoder_cache)
        self._thread.start()

    def close(self) -> None:
        """End the worker after the batch in hand."""
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(2.0)
        serving.withdraw_model(self.model)

    def submit(self, job: Job | EmbeddingJob) -> None:
        """Queue a job. Raises Refusal (503) when 512 wait already."""
        if self._queue.qsize() >= MAX_WAITING:
            raise Refusal(f"{MAX_WAITING} requests are waiting already; try later", 503)
        self._queue.put(job)

    def _work(self) -> None:
        torch.set_num_threads(1)
        while (batch := self._gather()) is not None:
            with torch.inference_mode():
                for job in batch:
                    if isinstance(job, EmbeddingJob):
                        self._embed(job)
                self._answer([job for job in batch if isinstance(job, Job)])

    def _gather(self) -> "list[Job | EmbeddingJob] | None":
        """Wait for a job, then for more until the batch is full or GATHER_SECONDS are over; None at the end."""
        batch: list[Job | EmbeddingJob] = []
        ends = float("inf")
        while len(batch) < MAX_BATCH:
            try:
                job = self._queue.get(timeout=max(0.0, ends - self._clock()) if batch else None)
            except queue.Empty:
                break
            if job is None:
                return None
            if not batch:
                ends = self._clock() + GATHER_SECONDS
            batch.append(job)
        return batch

    def _answer(self, jobs: Sequence[Job]) -> None:
        """Decode jobs together until each is done or cancelled."""
        jobs = [job for job in jobs if not self._drop(job)]
        if not jobs:
            return
        self._running = len(jobs)
        for job in jobs:
            self._metrics.queue_time.observe(self._clock() - job.arrived)
        try:
            with serving.running([job.request_id for job in jobs], [job.entry.modalities for job in jobs]):
                self._decode(jobs)
        except Exception as error:  # a broken model answers 500, and the thread lives on
            self._deliver([(job, self._end(job, Failed(error))) for job in jobs if not job.done])
        finally:
            self._running = 0

    def _decode(self, jobs: Sequence[Job]) -> None:
        before = self._clock()
        steps, inputs = max(job.max_tokens for job in jobs), [job.entry for job in jobs]
        media = self.encoder_cache.states(self.model, inputs, [job.request_id for job in jobs])
        for step, logits in enumerate(decode(self.model, inputs, steps, media)):
            chosen = logits.argmax(-1).tolist()
            now = self._clock()
            events: list[tuple[Job, Event]] = []
            for row, job in enumerate(jobs):
                if job.done or self._drop(job):
                    continue
                if step:
                    self._metrics.inter_token_latency.observe(now - before)
                else:
                    self._metrics.time_to_first_token.observe(now - job.arrived)
                    self._metrics.prompt_tokens.inc(len(job.entry.ids))
                events += [(job, event) for event in self._advance(job, chosen[row], logits[row])]
            before = now
            _tell_finished(jobs)
            self._running = sum(not job.done for job in jobs)  # before the news is out
            self._deliver(events)
            if not self._running:
                return
        self._running = 0
        self._deliver([(job, self._end(job, Finished("length", job.generated))) for job in jobs if not job.done])

    def _advance(self, job: Job, chosen: int, logits: torch.Tensor) -> list[Event]:
        """Count a token of a job; what its reader gets to know."""
        job.generated += 1
        self._metrics.generation_tokens.inc()
        if chosen == tokens.EOS:
            return [self._end(job, Finished("stop", job.generated))]
        events: list[Event] = [make_token(chosen, logits, job.logprobs)]
        if job.generated == job.max_tokens:
            events.append(self._end(job, Finished("length", job.generated)))
        return events

    def _end(self, job: Job, event: Finished | Failed) -> Event:
        job.done = True
        self._metrics.count_finished(event.reason if isinstance(event, Finished) else "error")
        if isinstance(event, Finished):
            self._metrics.e2e_latency.observe(self._clock() - job.arrived)
        return event

    def _drop(self, job: Job) -> bool:
        if job.cancelled and not job.done:
            job.done = True
            self._metrics.count_finished("abort")
        return job.cancelled

    def _deliver(self, events: Sequence[tuple[Job, Event]]) -> None:
        """Hand events to their jobs' loops, one wake-up a loop."""
        for loop in {job.loop for job, _ in events}:
            mine = [(job.events, event) for job, event in events if job.loop is loop]
            if not loop.is_closed():
                loop.call_soon_threadsafe(_put_all, mine)

    def _embed(self, job: EmbeddingJob) -> None:
        try:
            result: Any = embed_texts(self.model, job.ids)
        except Exception as error:  # as in _answer
            result = error
        self._metrics.prompt_tokens.inc(sum(len(ids) + 1 for ids in job.ids))
        if not job.loop.is_closed():
            job.loop.call_soon_threadsafe(_resolve, job.future, result)


def _tell_finished(jobs: Sequence[Job]) -> None:
    """Rows of answered and given-up jobs are computed on with the batch, and are nobody's."""
    for row, job in enumerate(jobs):
        if job.done:
            serving.finished(row)


def make_token(chosen: int, logits: torch.Tensor, logprobs: int | None) -> Token:
    """A token with the log-probabilities that were asked for, finite ones only."""
    if logprobs is None:
        return Token(chosen)
    scores = torch.log_softmax(logits.float(), -1).nan_to_num(LEAST_LOGPROB, LEAST_LOGPROB, LEAST_LOGPROB)
    best = scores.topk(logprobs)
    top = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    return Token(chosen, float(scores[chosen]), top)


def embed_texts(model: OmniModel, texts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Unit vectors float32 (n, 128): the decoder's last states of ``<bos>`` and the text, averaged over tokens."""
    rows = []
    for ids in texts:
        given = torch.tensor([[tokens.BOS, *ids]])
        states = model.language_model.model(input_ids=given, use_cache=False).last_hidden_state[0]
        rows.append(torch.nn.functional.normalize(states.mean(0), dim=0))
    return torch.stack(rows)


def _put_all(events: Sequence[tuple["asyncio.Queue[Event]", Event]]) -> None:
    for events_of_job, event in events:
        events_of_job.put_nowait(event)


def _resolve(future: "asyncio.Future[Any]", result: Any) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
