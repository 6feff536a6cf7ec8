"""What a server in Python may tell whoever listens in its process: its model, and whose rows a batch holds.

Anybody's own server calls it; an agent in the same process listens. Nobody listening, each call is one test of an
empty tuple. Nothing here is sent anywhere, and a request is named by its id alone.

    from chaos_mm.core import serving

    serving.announce_model(model)                   # once, when it is loaded
    with serving.running(["id-1", "id-2"]):         # row i of the decoder's batch belongs to ids[i]
        with serving.media("vision", ["id-2"]):     # row i of the encoder's batch belongs to ids[i]
            features = model.vision(pixels)
        model.generate(...)
"""

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Protocol

__all__ = [
    "Batch",
    "KeptOutputs",
    "Listener",
    "announce_cache",
    "announce_model",
    "current",
    "current_media",
    "finished",
    "listen",
    "media",
    "media_key",
    "running",
    "withdraw_model",
]


@dataclass(frozen=True, eq=False)
class Batch:
    """The requests that one thread is computing now; a new one for every ``running``.

    ``modalities``: of each request, empty where it was not said. ``finished``: rows whose request is answered already,
    while others of the batch go on.
    """

    ids: tuple[str, ...]
    modalities: tuple[frozenset[str], ...] = ()
    finished: set[int] = field(default_factory=set)


class KeptOutputs(Protocol):
    """A server's cache of encoder outputs, and what an agent may do to it; keys are those that ``media_key`` gave."""

    budget: int
    """Entries it may hold."""

    def __len__(self) -> int: ...

    def __contains__(self, key: object) -> bool: ...

    def drop(self, keys: Iterable[bytes]) -> int:
        """Forget what is kept under these; how many outputs that were."""

    def evict(self, share: float) -> int:
        """Forget that share (0-1, rounded up) of the entries, the longest unused first; how many."""

    def resize(self, budget: int) -> None:
        """Another budget, at least 0; what no longer fits is forgotten."""


class Listener(Protocol):
    """Whoever wants to know. Called on the thread that tells; what it raises reaches the server."""

    def model(self, model: Any) -> None:
        """A model is ready to serve. A listener that comes late is told of the models that still exist."""

    def gone(self, model: Any) -> None:
        """It serves no longer: let go of it."""

    def cache(self, kept: KeptOutputs) -> None:
        """There is a cache of encoder outputs."""

    def begin(self, batch: Batch) -> None:
        """This thread begins to compute a batch."""

    def end(self, batch: Batch) -> None:
        """It is done, or failed; of a batch that this listener saw begin, and of no other."""

    def key(self, key: bytes, request: str) -> bytes:
        """The key by which a medium of that request is to be known: ``key`` itself, as a rule."""


_lock: Final = threading.Lock()
_here: Final = threading.local()
_nothing: Final = nullcontext()
_listeners: tuple[Listener, ...] = ()
_models: list[Callable[[], Any]] = []
_caches: list[Callable[[], Any]] = []


def announce_model(model: Any) -> None:
    """Say that ``model`` (a torch module) is ready to serve. Who listens keeps it until ``withdraw_model``."""
    _remember(_models, model)
    for listener in _listeners:
        listener.model(model)


def withdraw_model(model: Any) -> None:
    """Say that an announced model serves no longer, before it is let go. Harmless for one that nobody knows."""
    with _lock:
        _models[:] = [reference for reference in _models if reference() not in (None, model)]
    for listener in _listeners:
        listener.gone(model)


def announce_cache(kept: KeptOutputs) -> None:
    """Say that encoder outputs are kept in ``kept``. It is not kept alive by this."""
    _remember(_caches, kept)
    for listener in _listeners:
        listener.cache(kept)


def running(ids: Sequence[str], modalities: Sequence[Iterable[str]] = ()) -> AbstractContextManager[object]:
    """While it is entered, row i of what this thread's decoder computes belongs to ``ids[i]``.

    ``modalities``: what each request holds (image, audio, text), for selectors that ask for one. One generation a
    block: the first call of the decoder is taken for the prompt's.
    """
    if not _listeners:
        return _nothing
    return _Running(tuple(ids), tuple(frozenset(one) for one in modalities))


def finished(row: int) -> None:
    """The request of that row is answered, or was given up; what its row still computes is nobody's."""
    batch = current()
    if batch is not None:
        batch.finished.add(row)


def media(role: str, ids: Sequence[str]) -> AbstractContextManager[object]:
    """While it is entered, row i of what this thread's encoder of that role computes belongs to ``ids[i]``.

    ``role``: vision or audio; what follows the encoder (projector, Q-Former) is meant too. Where nobody says it, what
    is computed for a single request is its own, and a batch as long as ``running``'s is in the same order if that said
    of every request that it holds such a medium; of any other nobody knows whose it is.
    """
    return _Media(role, tuple(ids)) if _listeners else _nothing


def media_key(key: bytes, request: str) -> bytes:
    """The key by which a medium of that request shall be looked up and kept; ``key`` itself unless a fault masks it."""
    for listener in _listeners:
        key = listener.key(key, request)
    return key


def current() -> Batch | None:
    """The batch that this thread is computing."""
    running: _Running | None = getattr(_here, "running", None)
    return None if running is None else running.batch


def current_media() -> tuple[str, tuple[str, ...]] | None:
    """Role of the encoder that this thread runs, and whose rows its batch holds; None when nobody said."""
    return getattr(_here, "media", None)


def listen(listener: Listener) -> Callable[[], None]:
    """Tell ``listener`` from now on, and at once of what was announced and still exists; the answer ends it."""
    global _listeners
    with _lock:
        _listeners = (*_listeners, listener)
    for tell, known in ((listener.model, _models), (listener.cache, _caches)):
        for value in [reference() for reference in known]:
            if value is not None:
                tell(value)
    return lambda: _forget(listener)


def _forget(listener: Listener) -> None:
    global _listeners
    with _lock:
        _listeners = tuple(other for other in _listeners if other is not listener)


def _remember(known: list[Callable[[], Any]], value: Any) -> None:
    with _lock:
        known[:] = [reference for reference in known if reference() not in (None, value)]
        known.append(weakref.ref(value))


class _Running(AbstractContextManager[object]):
    """A block. A server may leave its blocks in any order and in another thread: a generator that is closed late."""

    before: "_Running | None"
    batch: Batch | None = None
    """None when it was left."""

    def __init__(self, ids: tuple[str, ...], modalities: tuple[frozenset[str], ...]) -> None:
        self._said = (ids, modalities)

    def __enter__(self) -> Batch:
        self.before, self._told = _innermost(), _listeners
        self.batch = batch = Batch(*self._said)
        _here.running = self
        for listener in self._told:
            listener.begin(batch)
        return batch

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        batch, self.batch = self.batch, None
        _here.running = _innermost()
        if batch is None:
            return
        for listener in self._told:  # one that came meanwhile saw no beginning
            listener.end(batch)
        batch.finished.update(range(len(batch.ids)))  # for whoever still has it before them in another thread


def _innermost() -> _Running | None:
    """This thread's innermost block that has not been left."""
    running: _Running | None = getattr(_here, "running", None)
    while running is not None and running.batch is None:
        running = running.before
    return running


class _Media(AbstractContextManager[object]):
    def __init__(self, role: str, ids: tuple[str, ...]) -> None:
        self._said = (role, ids)

    def __enter__(self) -> None:
        self._before = current_media()
        _here.media = self._said

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _here.media = self._before
