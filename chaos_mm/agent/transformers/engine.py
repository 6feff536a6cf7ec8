"""Every seam of the models that this process serves, behind one listener to what the server says it does."""

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.measuring import Measures
from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.transformers.attention import AttentionSeam, lookup_problem
from chaos_mm.agent.transformers.embeddings import EmbeddingSeam
from chaos_mm.agent.transformers.kv import Copied, FinishedCaches, KvView, unsupported
from chaos_mm.agent.transformers.memory import AllocationSites, ProcessMemory
from chaos_mm.agent.transformers.mishaps import Mishaps
from chaos_mm.agent.transformers.quiet import Quiet
from chaos_mm.agent.transformers.roles import Place, Roles, read_roles
from chaos_mm.agent.transformers.steps import Row, Step, Steps, find_cache, given_tokens, info_of, row_starts
from chaos_mm.agent.transformers.stores import KeptView, MediaKeySeam
from chaos_mm.core import serving
from chaos_mm.core.blast_radius import RequestInfo
from chaos_mm.core.engine import NOT_NOW, KvCache
from chaos_mm.core.errors import NotInjectable
from chaos_mm.core.fault import Seam

__all__ = ["Served", "TransformersEngine"]

logger = logging.getLogger("chaos_mm.agent")
_LEASES_REMEMBERED = 64
_PLACED = (Seam.EMBEDDING, Seam.GRADIENT)


class Served:
    """One model: its roles, its device, the hook on its decoder."""

    def __init__(self, model: Any, roles: Roles) -> None:
        self.name, self.roles = type(model).__name__, roles
        self.device = str(next(model.parameters()).device)
        self.attention_problem = lookup_problem(roles.decoder)
        self.cache_problem = ""
        self.hook: Any = None


class _Doors:
    """Where the server's threads come in: whatever of ours fails there, the server goes on."""

    def __init__(self, mishaps: Mishaps) -> None:
        self.models = mishaps.door("hooking or letting go of a model")
        self.cache = mishaps.door("taking up a cache of encoder outputs")
        self.begin = mishaps.door("a batch's beginning", Seam.EMBEDDING, Seam.GRADIENT)
        self.end = mishaps.door("a batch's end", Seam.KV)
        self.key = mishaps.door("a medium's key", Seam.MEDIA_KEY, Seam.EMBEDDING)
        self.step = mishaps.door("a decoder's step", Seam.KV, Seam.ATTENTION, Seam.ENGINE_MEMORY)


class TransformersEngine:
    """``serving.Listener``: hooks models as they are announced, and strikes at their seams while a lease lives."""

    def __init__(self, runtime: Runtime, measures: Measures | None = None) -> None:
        """Nothing is hooked before ``listen``."""
        self.runtime, self.measures = runtime, measures or Measures(frozenset())
        self.quiet, self.sites, self.finished = Quiet(), AllocationSites(), FinishedCaches()
        self.served: list[Served] = []
        self.loads = 0
        self.refused = ""
        self.kept: KeptView | None = None
        self.mishaps = Mishaps(runtime)
        self._doors = _Doors(self.mishaps)
        self.attention = AttentionSeam(runtime, lambda: self._steps.step, self, self.measures, self.mishaps)
        self.keys = MediaKeySeam(runtime, lambda: self._kept_outputs)
        self.embeddings = EmbeddingSeam(runtime, self.measures, self._before_encoder, self.keys.private, self.mishaps)
        self._kept_outputs: serving.KeptOutputs | None = None
        self._steps = Steps()
        self._named: dict[str, Place] = {}
        self._struck: dict[tuple[str, str], weakref.WeakSet[serving.Batch]] = {}
        self._open: weakref.WeakSet[serving.Batch] = weakref.WeakSet()
        self._end: Callable[[], None] = _nothing
        self.on_change: Callable[[], None] = _nothing

    def listen(self) -> None:
        """Hook what is announced, now and later; every seam of this process is declared to the runtime."""
        runtime = self.runtime
        for seam in (Seam.KV, Seam.ATTENTION, Seam.EMBEDDING, Seam.GRADIENT):
            runtime.declare(seam)
        runtime.declare(Seam.ENGINE_MEMORY, self._memory, place="own")
        runtime.on_release.append(self._release)
        self._end = serving.listen(self)
        runtime.watch(self.quiet)

    def close(self) -> None:
        """Take every hook out; models go on untouched."""
        self._end()
        for served in list(self.served):
            self.detach(served)
        self.attention.remove()
        self.count_hooks()

    # -- what the server says

    def model(self, model: Any) -> None:
        """Hook a model. One without a decoder, or compiled, is refused by name and left as it is."""
        if any(served.roles.model is model for served in self.served):
            return
        with self._doors.models:
            self._take(model)
            return
        self.refused = f"{type(model).__name__} could not be hooked; the server's log says why"

    def gone(self, model: Any) -> None:
        """Unhook a model that is about to be let go."""
        with self._doors.models:
            for served in [served for served in self.served if served.roles.model is model]:
                self.detach(served)

    def cache(self, kept: serving.KeptOutputs) -> None:
        """The server keeps encoder outputs: two seams more."""
        with self._doors.cache:
            self._kept_outputs, self.kept = kept, KeptView(kept)
            self.runtime.declare(Seam.ENCODER_CACHE, lambda armed: self.kept or NOT_NOW, place="watcher")
            # A batch that has looked a key up and not yet kept its output must not be overtaken by the flush.
            self.runtime.declare(Seam.MEDIA_KEY, self.keys.value, place="step")
            self.on_change()

    def begin(self, batch: serving.Batch) -> None:
        """A batch begins in this thread."""
        self.quiet.enter()
        with self._doors.begin:
            self._steps.enter(batch, self._open)
            self._open.add(batch)
            if self.runtime.armed():
                self._hook_named_places()

    def end(self, batch: serving.Batch) -> None:
        """It has ended: its requests are forgotten, and what a fault may want of a canary's cache is copied."""
        step = self._steps.of(batch)
        try:
            with self._doors.end:
                if step is not None and step.cache is not None:
                    self._keep_finished(step)
            self._steps.leave(batch)
            with self._doors.end:
                for request in batch.ids:
                    if not self._steps.waits_for(request):
                        self.runtime.forget(request)
        finally:
            self._open.discard(batch)
            self.quiet.leave()

    def key(self, key: bytes, request: str) -> bytes:
        """Masked, or private to its request, where a lease wants that."""
        if self.runtime.armed():
            with self._doors.key:
                return self._rewritten(key, request)
        return key

    def _rewritten(self, key: bytes, request: str) -> bytes:
        batch, media = serving.current(), frozenset(("image", "audio"))
        if batch is not None and request in batch.ids:
            # Where nobody said what it holds it may be either: an output that is struck must never have a shared key.
            media = info_of(batch, batch.ids.index(request)).modalities & media or media
        return self.keys.rewrite(key, RequestInfo(request, "", modalities=media))

    # -- a step

    def before_call(self, step: Step, layer: int) -> None:
        """An attention call is about to be launched."""
        self.sites.check("attention", f"attention layer {layer}", _first(step))

    def _take(self, model: Any) -> None:
        try:
            roles = read_roles(model)
            _check_not_compiled(model)
        except NotInjectable as error:
            self.refused = str(error)
            logger.error("chaos_mm agent: %s is not hooked: %s", type(model).__name__, error)
            return
        served = Served(model, roles)
        try:
            self._hook(served, model)
        except Exception:
            self._unhook(served)
            raise
        self.refused = ""
        self.served.append(served)
        self.loads += 1
        self.count_hooks()
        self.on_change()

    def _hook(self, served: Served, model: Any) -> None:
        served.hook = self._hook_decoder(served)
        if not served.attention_problem:
            self.attention.install(served.roles.decoder)
        for place in served.roles.places:
            self.embeddings.install(place, _hidden_layer(model, place))

    def detach(self, served: Served) -> None:
        """Take a model's hooks out."""
        self.served.remove(served)
        self._unhook(served)

    def _unhook(self, served: Served) -> None:
        if served.hook is not None:
            served.hook.remove()
        self.attention.forget(served.roles.decoder)
        for place in (*served.roles.places, *self._named.values()):
            self.embeddings.remove(place)
        self._named.clear()
        self.count_hooks()

    def count_hooks(self) -> None:
        """Tell how many hooks and wrappers stand."""
        self.runtime.hooks(len(self.served) + self.attention.count + self.embeddings.count)

    def in_flight(self, lease: str, owner: str) -> int:
        """Batches that were computed under a lease and are not done yet."""
        return sum(batch in self._open for batch in self._struck.get((lease, owner), ()))

    def _hook_decoder(self, served: Served) -> Any:
        looks, door, steps = self.measures.wants("attention"), self._doors.step, self._steps
        runtime, tick, gate = self.runtime, self.runtime.tick, self.runtime.gate

        # One function with no context in it: between two steps of a model nothing of Python's is in the processor's
        # caches, and each object more that a step goes through costs several times what it does in a loop.
        def before(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            try:
                tick()
                step = steps.step
                if step.batch is None:
                    return
                given = kwargs.get("input_ids")
                if given is None:
                    given = given_tokens(args, kwargs)
                if given is None or given.shape[1] != 1:
                    step.begin()
                else:
                    step.index += 1
                if gate[0] and runtime.armed():
                    step.size = 0 if given is None else given.shape[0]
                    self._step(served, step, args, kwargs)
                elif looks:
                    step.size, step.starts = len(step.batch.ids), row_starts(kwargs.get("attention_mask"))
            except Exception as error:
                door.met(error)
                steps.step.lose()

        return served.roles.decoder.module.register_forward_pre_hook(before, with_kwargs=True)

    def _step(self, served: Served, step: Step, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._note_struck(step)
        cache = find_cache(args, kwargs)
        served.cache_problem = unsupported(cache)
        if step.starts is None:
            step.starts = row_starts(kwargs.get("attention_mask"))
        if not served.attention_problem:
            self.attention.follow(served.roles.decoder)
        rows = list(step.rows())
        self.runtime.observe([row.info for row in rows])
        self.sites.check("kv_growth", served.roles.decoder.path, _first(step))
        if not served.cache_problem and cache.get_seq_length() > 0:
            self.runtime.fired(Seam.KV)
            self._strike_kv(served, step, cache, rows)

    def _strike_kv(self, served: Served, step: Step, cache: Any, rows: Sequence[Row]) -> None:
        for armed in self.runtime.leases(Seam.KV):
            if armed.fault.carries_content:
                step.cache = cache  # kept to the batch's end, where its canaries' rows are copied
            copies: list[KvCache] = []
            for row in rows:
                if armed.chosen(row.info):
                    others = self._others(step, cache, row.id, rows, copies)
                    view = KvView(cache, row.number, row.id, step.index, step.start(row.number), armed, others)
                    armed.strike(view, row.id, "kv", served.roles.decoder.path)

    def _others(
        self, step: Step, cache: Any, request: str, rows: Sequence[Row], copies: list[KvCache]
    ) -> Callable[[], Sequence[KvCache]]:
        """What other canaries hold. The batch's are copied once a step, before the first of them is struck: two that
        take from each other must not take back what they gave."""

        def others() -> list[KvCache]:
            if not copies:
                canaries = [row for row in rows if self.runtime.identify(row.id).canary]
                copies.extend(Copied(cache, r.number, step.start(r.number), r.id, step.index) for r in canaries)
            return [*(copy for copy in copies if copy.request != request), *self.finished.but(request)]

        return others

    def _keep_finished(self, step: Step) -> None:
        batch = step.batch
        for number, request in enumerate(batch.ids if batch is not None else ()):
            if self.runtime.identify(request).canary:
                self.finished.keep(step.cache, number, step.start(number), request, step.index)

    def _note_struck(self, step: Step) -> None:
        """Whoever is in flight under a lease may carry what it did, until the batch is done."""
        for seam in (Seam.KV, Seam.ATTENTION, Seam.EMBEDDING):
            for armed in self.runtime.leases(seam):
                if step.batch is not None:
                    self._struck.setdefault((armed.name, armed.owner), weakref.WeakSet()).add(step.batch)
        if len(self._struck) > _LEASES_REMEMBERED:
            self._struck = {lease: batches for lease, batches in self._struck.items() if batches}

    def _before_encoder(self, where: str, ids: tuple[str, ...]) -> None:
        self.sites.check("encoder", where, ids[0] if ids else "")

    # -- leases

    def _memory(self, armed: Armed) -> ProcessMemory:
        device = next((served.device for served in self.served), "cpu")
        return ProcessMemory(armed, self.sites, device)

    def _hook_named_places(self) -> None:
        """Hook modules that a live lease names by path and that have no role."""
        for armed in (lease for seam in _PLACED for lease in self.runtime.leases(seam)):
            name = str(armed.params.get("place", ""))
            for served in self.served:
                for place in served.roles.named(name):
                    if place.role == "" and name not in self._named:
                        self._named[name] = place
                        self.embeddings.install(place)
                        self.count_hooks()

    def _release(self, armed: Armed) -> Mapping[str, float]:
        self.finished.clear()
        self.embeddings.end_lease(armed)
        live = {str(lease.params.get("place", "")) for seam in _PLACED for lease in self.runtime.leases(seam)}
        for name in [name for name in self._named if name not in live]:
            self.embeddings.remove(self._named.pop(name))
        self.count_hooks()
        return self.keys.flush(armed)


def _nothing() -> None:
    return None


def _first(step: Step) -> str:
    return step.batch.ids[0] if step.batch is not None and step.batch.ids else ""


def _hidden_layer(model: Any, place: Place) -> int | None:
    """Which hidden state of a vision tower the model goes on with, where its configuration says so (LLaVA)."""
    layer = getattr(getattr(model, "config", None), "vision_feature_layer", None)
    layer = layer[-1] if isinstance(layer, (list, tuple)) and layer else layer
    return layer if place.role == "vision" and isinstance(layer, int) else None


def _check_not_compiled(model: Any) -> None:
    """Raises NotInjectable where torch.compile has made hooks and wrappers part of a graph, or has left them out."""
    for path, module in model.named_modules():
        compiled = hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
        if compiled:
            raise NotInjectable(
                f"{type(module).__name__} {path or 'itself'!r} is compiled by torch.compile, where hooks would not "
                "fire; serve it uncompiled to inject faults"
            )
