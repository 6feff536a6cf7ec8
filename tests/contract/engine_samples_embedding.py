"""Small real engines behind the seams of embeddings, gradients, media keys, encoder cache, scheduler and memory.

Each does with torch and the standard library what a serving engine does at that seam: hooks on modules, an LRU of
encoder outputs under content hashes, a batch that recomputes what it preempted, a process's own memory limit.
"""

import hashlib
import resource
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from chaos_mm.agent.measuring import Reference
from chaos_mm.core.errors import ChaosMMError, InvalidParams
from chaos_mm.core.fault import Fault, Seam
from chaos_mm.core.rng import Rng
from tests.contract.engine_samples import SampleBlockPool

DIM, PATCHES = 32, 16


class Tower(torch.nn.Module):
    """Pictures (n, 3, 16, 16) to rows (n, 16, 32): patches, one transformer layer, a projector."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(11)
            self.vision = torch.nn.Sequential(
                torch.nn.Conv2d(3, DIM, 4, 4),
                torch.nn.Flatten(2),
            )
            self.projector = torch.nn.Linear(DIM, DIM)
        self.to(dtype).eval()

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.projector(self.vision(pixels).mT)


def pictures(count: int, seed: int = 5, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Different pictures."""
    return torch.rand(count, 3, 16, 16, generator=torch.Generator().manual_seed(seed)).to(dtype)


@dataclass
class TowerEmbedding:
    """One request's rows of the projector's output."""

    request: str
    tensor: torch.Tensor
    tap: "EmbeddingTap"
    role: str = "projector"
    module: str = "projector"
    modality: str = "image"

    def at(self, place: str) -> bool:
        return place in (self.role, self.module)

    def reference(self) -> Mapping[str, float]:
        reference = self.tap.reference
        if reference.count == 0:
            return {"mean": float(self.tensor.mean()), "std": float(self.tensor.float().std(correction=0)), "count": 0}
        return reference.to_json()

    def previous(self) -> torch.Tensor | None:
        return self.tap.before

    def replace(self, new: torch.Tensor) -> None:
        self.tap.handed_on[self.request] = new


@dataclass
class EmbeddingTap:
    """A forward hook on the projector; row i of the batch is request ``r-i``, and ``strike`` is what an armed fault is.

    The clean output of the last request is kept as what the next one would replay.
    """

    model: Tower
    strike: Callable[[TowerEmbedding], Any] | None = None
    reference: Reference = field(default_factory=Reference)
    before: torch.Tensor | None = None
    handed_on: dict[str, torch.Tensor] = field(default_factory=dict)
    answers: list[Any] = field(default_factory=list)

    def __enter__(self) -> "EmbeddingTap":
        self._hook = self.model.projector.register_forward_hook(self._forward)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _forward(self, module: torch.nn.Module, args: Any, output: torch.Tensor) -> Any:
        rows = []
        for i, clean in enumerate(output):
            self.handed_on.pop(f"r-{i}", None)
            if self.strike is None:
                self.reference.add(clean)
            else:
                self.answers.append(self.strike(TowerEmbedding(f"r-{i}", clean, self)))
            self.before = clean.clone()
            rows.append(self.handed_on.get(f"r-{i}", clean))
        return torch.stack(rows) if len({row.shape for row in rows}) == 1 else torch.cat(rows)


@dataclass
class LayerGradient:
    """What flows back out of a module, as its full backward hook sees it."""

    role: str
    module: str
    tensor: torch.Tensor
    step: int
    new: torch.Tensor | None = None

    def at(self, place: str) -> bool:
        return place in (self.role, self.module)

    def replace(self, new: torch.Tensor) -> None:
        self.new = new


class GradientTap:
    """Hands the gradient with respect to a module's output to ``strike`` and lets what it answers flow on.

    A forward hook that hangs a hook on the output tensor: torch's full backward hooks are never called on modules that
    return a transformers ``ModelOutput``, and a new gradient behind the module would leave its own weights alone.
    ``step`` is counted by the training loop.
    """

    def __init__(self, module: torch.nn.Module, strike: Callable[[LayerGradient], Any]) -> None:
        self.step = 0
        self.answers: list[Any] = []
        self._strike = strike
        self._hook = module.register_forward_hook(self._forward)

    def _forward(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        tensor = getattr(output, "last_hidden_state", output)
        if tensor.requires_grad:
            tensor.register_hook(self._backward)

    def _backward(self, gradient: torch.Tensor) -> torch.Tensor | None:
        value = LayerGradient("qformer", "qformer", gradient, self.step)
        self.answers.append(self._strike(value))
        return value.new

    def remove(self) -> None:
        self._hook.remove()


class EncoderStore:
    """An LRU of encoder outputs under blake2b of the picture: a media-key seam and an encoder-cache seam in one.

    ``canaries``: the requests that a selector picked. Entries in ``in_use`` are never evicted.
    """

    def __init__(self, budget: int = 64, canaries: frozenset[str] = frozenset()) -> None:
        self._budget, self._canaries = budget, canaries
        self.kept: OrderedDict[bytes, torch.Tensor] = OrderedDict()
        self.in_use: set[bytes] = set()
        self.encoded = 0
        self._mask: tuple[int, bytes] | None = None
        self._model = Tower()

    def key(self, request: str, picture: torch.Tensor) -> bytes:
        """The key that this request's picture is kept under."""
        whole = hashlib.blake2b(picture.numpy().tobytes(), digest_size=32).digest()
        if self._mask is None or request not in self._canaries:
            return whole
        bits, salt = self._mask
        return b"chaos" + salt + (int.from_bytes(whole, "big") % (1 << bits)).to_bytes(2, "big")

    def rows(self, request: str, picture: torch.Tensor) -> torch.Tensor:
        """The encoder's output, kept or computed."""
        key = self.key(request, picture)
        if key not in self.kept:
            self.encoded += 1
            with torch.inference_mode():
                self.kept[key] = self._model(picture[None])[0]
        self.kept.move_to_end(key)
        self._fit()
        return self.kept[key]

    def _fit(self) -> None:
        while len(self.kept) > self._budget:
            self.kept.popitem(last=False)

    def mask(self, bits: int, salt: bytes) -> None:
        self._mask = (bits, salt)

    def restore(self) -> Mapping[str, float]:
        self._mask = None
        masked = [key for key in self.kept if key.startswith(b"chaos")]
        for key in masked:
            del self.kept[key]
        if any(key.startswith(b"chaos") for key in self.kept):
            raise ChaosMMError("an entry under a cut key is still there")
        return {"flushed_entries": float(len(masked))}

    @property
    def entries(self) -> int:
        return len(self.kept)

    @property
    def budget(self) -> int:
        return self._budget

    def evict(self, share: float) -> int:
        idle = [key for key in self.kept if key not in self.in_use]
        gone = idle[: round(share * len(idle))]
        for key in gone:
            del self.kept[key]
        return len(gone)

    def set_budget(self, budget: int) -> None:
        self._budget = budget
        self._fit()


@dataclass
class Sequence:
    """A request on its way: prompt, what it said, and the state that preemption throws away."""

    id: str
    prompt: list[int]
    wanted: int
    said: list[int] = field(default_factory=list)
    state: torch.Tensor | None = None
    preempted: int = 0


class Batch:
    """Continuous batching over a recurrent cell: a preempted request is computed again from prompt and answer."""

    def __init__(self, selected: frozenset[str]) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self._embed, self._cell = torch.nn.Embedding(50, 24), torch.nn.GRUCell(24, 24)
            self._head = torch.nn.Linear(24, 50)
        self.selected = selected
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.computed = 0
        self.plan: tuple[int, int] | None = None

    def preempt_after(self, tokens: int, times: int) -> None:
        self.plan = (tokens, times)

    def stop_preempting(self) -> None:
        self.plan = None

    @torch.inference_mode()
    def run(self, sequences: list[Sequence]) -> dict[str, list[int]]:
        """Every answer by request id."""
        self.waiting.extend(sequences)
        while self.waiting or self.running:
            self.running.extend(self.waiting)
            self.waiting.clear()
            for sequence in list(self.running):
                self._advance(sequence)
        return {sequence.id: sequence.said for sequence in sequences}

    def _advance(self, sequence: Sequence) -> None:
        known = sequence.prompt + sequence.said
        fresh = known if sequence.state is None else known[-1:]
        state = torch.zeros(1, 24) if sequence.state is None else sequence.state
        for token in fresh:
            state = self._cell(self._embed(torch.tensor([token])), state)
        self.computed += len(fresh)
        sequence.state = state
        sequence.said.append(int(self._head(state).argmax()))
        if len(sequence.said) >= sequence.wanted:
            self.running.remove(sequence)
        elif self._due(sequence):
            sequence.preempted, sequence.state = sequence.preempted + 1, None
            self.running.remove(sequence)
            self.waiting.append(sequence)

    def _due(self, sequence: Sequence) -> bool:
        if self.plan is None or sequence.id not in self.selected:
            return False
        tokens, times = self.plan
        return sequence.preempted < times and len(sequence.said) >= tokens * (sequence.preempted + 1)


class OwnMemory:
    """This process's memory on the CPU: a ceiling by RLIMIT_AS, and allocations at three sites that can be failed."""

    device = "cpu"

    def __init__(self) -> None:
        self._before: tuple[int, int] | None = None
        self._failing: dict[str, int] = {}
        self.failed = 0
        self.ends_at = float("inf")

    def used(self) -> int:
        return self._pages(1)

    def _pages(self, column: int) -> int:
        return int(Path("/proc/self/statm").read_text().split()[column]) * resource.getpagesize()

    def set_ceiling(self, headroom_bytes: int) -> int:
        self._before = resource.getrlimit(resource.RLIMIT_AS)
        ceiling = self._pages(0) + headroom_bytes
        resource.setrlimit(resource.RLIMIT_AS, (ceiling, self._before[1]))
        return ceiling

    def lift_ceiling(self) -> None:
        if self._before is not None:
            resource.setrlimit(resource.RLIMIT_AS, self._before)
            self._before = None

    def fail_at(self, site: str, times: int) -> None:
        if site not in ("attention", "encoder"):
            raise InvalidParams(f"site={site!r}: this engine allocates at attention and encoder")
        self._failing[site] = times

    def stop_failing(self) -> None:
        self._failing.clear()

    def state(self) -> Any:
        """What a fault must leave as it was."""
        return resource.getrlimit(resource.RLIMIT_AS), dict(self._failing)

    def sleep(self, seconds: float) -> bool:
        time.sleep(max(0.0, min(seconds, self.ends_at - time.monotonic())))
        return time.monotonic() < self.ends_at

    def allocate(self, site: str, size: int) -> torch.Tensor:
        """What the engine does at a site. Raises torch.OutOfMemoryError, as a device without room does."""
        if self._failing.get(site, 0) > 0:
            self._failing[site] -= 1
            self.failed += 1
            raise torch.OutOfMemoryError(f"tried to allocate {size} bytes")
        return torch.empty(size, dtype=torch.uint8)


@dataclass(frozen=True)
class HoldSample:
    """A value for holds of one seam, what of it must be as before when one has ended, and parameters for here."""

    make: Callable[[], Any]
    state: Callable[[Any], Any]
    params: Mapping[str, Any] = field(default_factory=dict)

    def begin(self, fault: Fault, value: Any) -> Any:
        """The fault's generator on the value, not yet begun."""
        params = {name: given for name, given in self.params.items() if name in fault.params}
        return fault(value, Rng.derive(7, "", "hold", fault.name), **fault.bind(params))


def _store() -> EncoderStore:
    store = EncoderStore(12, frozenset({"c"}))
    for picture in pictures(6):
        store.rows("u", picture)
    return store


def _keys(store: EncoderStore) -> Any:
    return store.budget, [store.key(who, pictures(1)[0]) for who in ("c", "u")]


HOLDS: Mapping[Seam, HoldSample] = {
    Seam.BLOCK_POOL: HoldSample(SampleBlockPool, lambda pool: sorted(pool.list)),
    Seam.MEDIA_KEY: HoldSample(_store, _keys),
    Seam.ENCODER_CACHE: HoldSample(_store, _keys),
    Seam.SCHEDULER: HoldSample(lambda: Batch(frozenset({"r-1"})), lambda batch: batch.plan),
    Seam.ENGINE_MEMORY: HoldSample(OwnMemory, OwnMemory.state, {"headroom_mib": 65_536.0}),  # the tests' own
}


def embedding(rows: int = 16, seed: int = 1, dtype: torch.dtype = torch.float32) -> TowerEmbedding:
    """An output with a clean reference and a different one before it, at every place at once."""
    generator = torch.Generator().manual_seed(seed)
    outputs = [(3 * torch.randn(rows, DIM, generator=generator)).to(dtype) for _ in range(2)]
    tap = EmbeddingTap(Tower(), before=outputs[0])
    tap.reference.add(outputs[0])
    return _Everywhere("r-1", outputs[1], tap)


class _Everywhere(TowerEmbedding):
    def at(self, place: str) -> bool:
        return True


def gradient(step: int = 0, seed: int = 1) -> LayerGradient:
    """A gradient of usual size."""
    drawn = 1e-3 * torch.randn(4, 16, DIM, generator=torch.Generator().manual_seed(seed))
    return LayerGradient("qformer", "qformer", drawn, step)
