"""What encoders, projectors and Q-Formers give out, row by row, and the gradient that comes back to them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.measuring import Measures, Reference
from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.transformers.mishaps import Mishaps
from chaos_mm.agent.transformers.roles import Place
from chaos_mm.agent.transformers.steps import info_of
from chaos_mm.core import serving
from chaos_mm.core.blast_radius import RequestInfo
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.fault import Seam

__all__ = ["CLEAN_OUTPUTS", "EmbeddingSeam"]
CLEAN_OUTPUTS: Final = 64
"""Clean outputs of a place that its reference is made of; later ones are not looked at, so that they cost nothing."""
_MODALITY: Final = {"vision": "image", "audio": "audio"}


@dataclass(frozen=True)
class Source:
    """Whose an encoder's rows are: ``ids[i]`` has row i, or the only id has all of them."""

    batch: serving.Batch
    ids: tuple[str, ...]

    def info(self, request: str, modality: str) -> RequestInfo:
        """What a selector may know of a request of the batch."""
        if request in self.batch.ids:
            return info_of(self.batch, self.batch.ids.index(request), modality)
        return RequestInfo(request, "", modalities=frozenset({modality}))


class View:
    """``Embedding``: the rows of one medium of one request, (rows, dim)."""

    def __init__(self, place: Place, request: str, tensor: Any, reference: Reference, previous: Any) -> None:
        self.request, self.tensor = request, tensor
        self.role, self.module, self.modality = place.role, place.path, place.modality
        self.new: Any = None
        self._place, self._reference, self._previous = place, reference, previous

    def at(self, place: str) -> bool:
        """Whether that role or path is this output's."""
        return self._place.at(place)

    def reference(self) -> Mapping[str, float]:
        """Of the first ``CLEAN_OUTPUTS`` clean outputs of this place since start."""
        if self._reference.count:
            return self._reference.to_json()
        own = self.tensor.detach().float()
        return {"mean": float(own.mean()), "std": float(own.std(correction=0)), "count": 0.0}

    def previous(self) -> Any:
        """The clean output of the canary before."""
        return self._previous

    def replace(self, new: Any) -> None:
        """Hand on other rows (rows, dim). Raises InvalidParams for another width."""
        if new.dim() != 2 or new.shape[1] != self.tensor.shape[-1]:
            raise InvalidParams(
                f"rows of shape {tuple(new.shape)} were given for {self.module}; (rows, {self.tensor.shape[-1]}) fit"
            )
        self.new = new.to(self.tensor)


class GradientView:
    """``Gradient``: what flows back into the output of a place."""

    def __init__(self, place: Place, tensor: Any, step: int) -> None:
        self.role, self.module, self.tensor, self.step = place.role, place.path, tensor, step
        self.new: Any = None
        self._place = place

    def at(self, place: str) -> bool:
        """Whether that role or path is meant."""
        return self._place.at(place)

    def replace(self, new: Any) -> None:
        """Let another gradient of the same shape flow on. Raises InvalidParams for another one."""
        if new.shape != self.tensor.shape:
            raise InvalidParams(f"a gradient of {tuple(new.shape)} was given for {tuple(self.tensor.shape)}")
        self.new = new


class EmbeddingSeam:
    """Forward hooks on the places of a model; ``encoder_site`` is asked before an encoder's rows are looked at,
    ``private`` whether what a lease does to a request's output can be found again by nobody else.
    """

    def __init__(
        self,
        runtime: Runtime,
        measures: Measures,
        encoder_site: Callable[[str, tuple[str, ...]], None],
        private: Callable[[Armed, str], bool],
        mishaps: Mishaps,
    ) -> None:
        self._door = mishaps.door("an encoder's output", Seam.EMBEDDING, Seam.GRADIENT, Seam.ENGINE_MEMORY)
        self._runtime, self._measures, self._encoder_site = runtime, measures, encoder_site
        self._private = private
        self._references: dict[str, Reference] = {}
        self._previous: dict[str, tuple[str, Any]] = {}
        self._hooks: dict[tuple[int, str], Any] = {}
        self._steps = 0
        self._step_hook: Any = None
        self.passed: set[str] = set()

    @property
    def count(self) -> int:
        """Hooks that stand now."""
        return len(self._hooks) + (self._step_hook is not None)

    def install(self, place: Place, layer: int | None = None) -> None:
        """Hook one place; ``layer``: which of a tower's hidden states the model goes on with, if not the last."""
        if (id(place.module), place.path) in self._hooks:
            return
        armed, reference = self._runtime.armed, self._references.setdefault(place.path, Reference())
        looks = self._measures.wants("embedding")

        def hook(module: Any, args: Any, output: Any) -> Any:
            if not (armed() or looks or reference.count < CLEAN_OUTPUTS):
                return None
            with self._door:
                return self._pass(place, reference, _Output(output, layer))
            return None

        self._hooks[id(place.module), place.path] = place.module.register_forward_hook(hook)

    def remove(self, place: Place) -> None:
        """Unhook one place."""
        hook = self._hooks.pop((id(place.module), place.path), None)
        if hook is not None:
            hook.remove()

    def end_lease(self, armed: Armed) -> None:
        """What was kept for the lease goes with it."""
        self._previous.clear()
        if self._step_hook is not None and not self._runtime.leases(Seam.GRADIENT):
            self._step_hook.remove()
            self._step_hook = None

    def _pass(self, place: Place, reference: Reference, output: "_Output") -> Any:
        armed = self._runtime.armed()
        if armed:
            self._runtime.fired(Seam.EMBEDDING)
            self.passed.add(place.path)
        if output.tensor is None:
            return None
        if output.tensor.requires_grad:
            self._watch_gradient(place, output.tensor)
        source = _source(place)
        if source is None:
            return None
        if armed and place.role in _MODALITY:
            self._encoder_site(place.path, source.ids)
        return self._rows(place, reference, output, source, armed)

    def _rows(self, place: Place, reference: Reference, output: "_Output", source: Source, armed: bool) -> Any:
        parts = list(_parts(output.tensor, source))
        leases = self._runtime.leases(Seam.EMBEDDING) if armed else ()
        changed: list[Any] = []
        for request, label, tensor in parts:
            changed.append(self._struck(place, reference, source, leases, (request, label, tensor)))
            under = None if not armed else tuple(lease.serial for lease in leases)
            self._observe(place, reference, request, changed[-1], under)
        if all(new is old for new, (_, _, old) in zip(changed, parts, strict=True)):
            return None
        return output.replaced(_joined(changed, output.tensor))

    def _struck(
        self,
        place: Place,
        reference: Reference,
        source: Source,
        leases: tuple[Armed, ...],
        part: tuple[str, str, Any],
    ) -> Any:
        request, label, tensor = part
        clean = tensor
        for armed in leases:
            if armed.chosen(source.info(request, place.modality)) and self._private(armed, request):
                view = View(place, request, tensor, reference, self._before(place, request, armed))
                armed.strike(view, request, f"{place.path} {label}", place.path)
                tensor = tensor if view.new is None else view.new
        if any(armed.fault.carries_content for armed in leases) and self._runtime.identify(request).canary:
            self._previous[place.path] = (request, clean.detach().clone())
        return tensor

    def _before(self, place: Place, request: str, armed: Armed) -> Any:
        known = self._previous.get(place.path) if armed.fault.carries_content else None
        return known[1] if known is not None and known[0] != request else None

    def _observe(
        self, place: Place, reference: Reference, request: str, tensor: Any, under: tuple[int, ...] | None
    ) -> None:
        """``under``: the leases that live at this seam; None where nothing at all is armed, so that it is clean."""
        if under is None and reference.count < CLEAN_OUTPUTS:
            reference.add(tensor)
        if self._measures.wants("embedding") and self._runtime.identify(request).canary:
            self._measures.observe_embedding(
                place.path, tensor, modality=place.modality, clean=under is None, under=under
            )

    def _watch_gradient(self, place: Place, tensor: Any) -> None:
        """Hang a hook on the output: a module's own backward hooks are not called for the library's outputs."""
        leases = self._runtime.leases(Seam.GRADIENT) if self._runtime.armed() else ()
        if not leases:
            return
        if self._step_hook is None:
            self._steps, self._step_hook = 0, _count_steps(self._count_step)
        batch = serving.current()
        request = batch.ids[0] if batch is not None and batch.ids else "training"

        def struck(gradient: Any) -> Any:
            view = GradientView(place, gradient, self._steps)
            self._runtime.fired(Seam.GRADIENT)
            for armed in leases:
                if armed.chosen(RequestInfo(request, "", modalities=frozenset({place.modality}))):
                    armed.strike(view, request, f"{place.path} {view.step}", place.path)
            return view.new

        def backward(gradient: Any) -> Any:
            with self._door:
                return struck(gradient)
            return None

        tensor.register_hook(backward)

    def _count_step(self, *_: Any) -> None:
        self._steps += 1


class _Output:
    """An encoder's answer, whatever its shape: ``tensor`` is what the model goes on with."""

    def __init__(self, output: Any, layer: int | None) -> None:
        self._output, self._layer = output, layer
        hidden = getattr(output, "hidden_states", None)
        self._hidden = layer is not None and isinstance(hidden, tuple)
        self.tensor = hidden[layer] if self._hidden and hidden is not None else _main_tensor(output)

    def replaced(self, new: Any) -> Any:
        """The same answer with another tensor in it."""
        output = self._output
        if self._hidden and self._layer is not None:
            states = list(output.hidden_states)
            states[self._layer] = new
            output["hidden_states"] = tuple(states)
        elif hasattr(output, "last_hidden_state"):
            output["last_hidden_state"] = new
        else:
            return (new, *output[1:]) if isinstance(output, tuple) else new
        return output


def _main_tensor(output: Any) -> Any:
    if hasattr(output, "last_hidden_state"):
        return output.last_hidden_state
    if isinstance(output, tuple):
        output = output[0] if output else None
    return output if hasattr(output, "requires_grad") else None


def _source(place: Place) -> Source | None:
    """Whose the rows are that this thread's encoder computes; None where nobody said."""
    batch, said = serving.current(), serving.current_media()
    if batch is None:
        return None
    if said is not None and _MODALITY.get(said[0], said[0]) == place.modality:
        return Source(batch, said[1])
    # As many media as requests are one each where every request is known to hold one; else they may be anybody's.
    known = len(batch.modalities) == len(batch.ids) and all(place.modality in held for held in batch.modalities)
    return Source(batch, batch.ids) if known or len(batch.ids) == 1 else None


def _parts(tensor: Any, source: Source) -> Iterator[tuple[str, str, Any]]:
    """(request, label, rows) of each medium. Nothing where rows and requests do not go together.

    The label counts the media of one request, so that its draws do not depend on the batch.
    """
    ids = source.ids
    if tensor.dim() == 2 and len(ids) == 1:
        yield ids[0], "0", tensor
    elif tensor.dim() == 3 and len(ids) == 1:
        for number, rows in enumerate(tensor):
            yield ids[0], str(number), rows
    elif tensor.dim() == 3 and tensor.shape[0] == len(ids):
        for number, (request, rows) in enumerate(zip(ids, tensor, strict=True)):
            yield request, str(ids[:number].count(request)), rows


def _joined(parts: list[Any], like: Any) -> Any:
    """One tensor again. Where rows are missing or too many, what an engine would hand on: all rows in a line."""
    import torch

    if like.dim() == 2:
        return parts[0]
    if len({part.shape for part in parts}) == 1:
        return torch.stack(parts)
    return torch.cat(parts)[None]


def _count_steps(call: Callable[..., None]) -> Any:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    return register_optimizer_step_post_hook(call)
