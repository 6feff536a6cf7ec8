"""A fault is a documented pure function; everything else derives from this declaration.

    @fault(Target.IMAGE, dose="sigma", presets={1: {"sigma": 0.04}})
    def image_noise(image: Image, rng: Rng, *, sigma: Annotated[float, Param("…", ge=0, le=1)] = 0.05) -> Image:
        \"\"\"Add Gaussian noise, as a bad sensor or a dark scene does.\"\"\"

The name is the function's, the documentation its docstring, the schema its keyword-only parameters; the decorator
has no side effect. The shape is read from the function, the points from the target's row in the table.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.params import Param, ParamSpec, bind, read_params

__all__ = [
    "FRAME_WORDS",
    "TARGETS",
    "Effect",
    "Fault",
    "Outcome",
    "Param",
    "Point",
    "Seam",
    "Shape",
    "Target",
    "TargetRow",
    "fault",
]


class Target(StrEnum):
    """What a fault acts on."""

    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    TEXT = "text"
    IMAGE_FILE = "image_file"
    AUDIO_FILE = "audio_file"
    VIDEO_FILE = "video_file"
    MESSAGES = "messages"
    MEDIA_POOL = "media_pool"
    REQUEST = "request"
    TENSOR = "tensor"
    CONNECTION = "connection"
    RESPONSE = "response"
    STREAM = "stream"
    TRAFFIC = "traffic"
    EMBEDDING = "embedding"
    KV_CACHE = "kv_cache"
    ATTENTION = "attention"
    GRADIENT = "gradient"
    CACHE = "cache"
    SCHEDULER = "scheduler"
    MEMORY = "memory"
    PROCESS = "process"
    CLUSTER = "cluster"


class Shape(StrEnum):
    """How a fault is run: value to value, events to events, acquire and release, or on a slice in place."""

    TRANSFORM = "transform"
    STREAM = "stream"
    HOLD = "hold"
    IN_PLACE = "in_place"


class Seam(StrEnum):
    """Where inside an engine a fault takes hold. An adapter says which of them it has; the others are refused by name.

    kv: a request's key-value blocks between two steps · kv_load: a load from a KV connector · attention: one call of
    an attention layer · embedding: what an encoder, projector or Q-Former gives out · gradient: what flows back through
    one of them · media_key: the hash by which media are known again · encoder_cache: kept encoder outputs and their
    budget · block_pool: free key-value blocks · scheduler: who runs and who waits · engine_memory: allocations of the
    engine's process.
    """

    KV = "kv"
    KV_LOAD = "kv_load"
    ATTENTION = "attention"
    EMBEDDING = "embedding"
    GRADIENT = "gradient"
    MEDIA_KEY = "media_key"
    ENCODER_CACHE = "encoder_cache"
    BLOCK_POOL = "block_pool"
    SCHEDULER = "scheduler"
    ENGINE_MEMORY = "engine_memory"


class Effect(StrEnum):
    """What a fault does to the engine beside its harm; an adapter says which of these its engine does not survive.

    raises: an exception leaves the seam · rows: an encoder gives another number of rows than the prompt has
    placeholders · exits: the process ends.
    """

    NONE = ""
    RAISES = "raises"
    ROWS = "rows"
    EXITS = "exits"


class Point(StrEnum):
    """The five injection points."""

    PROXY = "proxy"
    AGENT = "agent"
    HOST = "host"
    LOAD = "load"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True)
class TargetRow:
    """One row of the table: the shape every fault of the target has, and the points that can run it.

    ``selectable`` is False where a request cannot be picked out, so that the fault counts as live traffic;
    ``carries_content`` where a fault moves one request's content into another, which only canaries may suffer;
    ``modality`` what a request must hold to be matched, "" where any request will do.
    """

    shape: Shape
    points: tuple[Point, ...]
    selectable: bool = True
    carries_content: bool = False
    modality: str = ""


_PROXY, _AGENT = (Point.PROXY,), (Point.AGENT,)
TARGETS: Mapping[Target, TargetRow] = MappingProxyType(
    {
        **{
            t: TargetRow(Shape.TRANSFORM, (Point.PROXY, Point.AGENT), modality=t.value)
            for t in (Target.IMAGE, Target.AUDIO, Target.VIDEO, Target.TEXT)
        },
        **{
            t: TargetRow(Shape.TRANSFORM, _PROXY, modality=t.value.removesuffix("_file"))
            for t in (Target.IMAGE_FILE, Target.AUDIO_FILE, Target.VIDEO_FILE)
        },
        Target.MESSAGES: TargetRow(Shape.TRANSFORM, _PROXY),
        Target.MEDIA_POOL: TargetRow(Shape.TRANSFORM, _PROXY, carries_content=True),
        **{t: TargetRow(Shape.TRANSFORM, _PROXY) for t in (Target.REQUEST, Target.TENSOR, Target.RESPONSE)},
        Target.CONNECTION: TargetRow(Shape.HOLD, _PROXY),
        Target.STREAM: TargetRow(Shape.STREAM, _PROXY),
        Target.TRAFFIC: TargetRow(Shape.HOLD, (Point.LOAD,)),
        **{
            t: TargetRow(Shape.IN_PLACE, _AGENT)
            for t in (Target.EMBEDDING, Target.KV_CACHE, Target.ATTENTION, Target.GRADIENT)
        },
        **{t: TargetRow(Shape.HOLD, _AGENT, selectable=False) for t in (Target.CACHE, Target.SCHEDULER)},
        Target.MEMORY: TargetRow(Shape.HOLD, (Point.HOST, Point.AGENT), selectable=False),
        Target.PROCESS: TargetRow(Shape.HOLD, (Point.HOST,), selectable=False),
        Target.CLUSTER: TargetRow(Shape.HOLD, (Point.KUBERNETES,), selectable=False),
    }
)

FRAME_WORDS = frozenset(
    ("lease", "point", "owner", "reason", "rate", "selector", "limit", "ttl_seconds", "keepalive_seconds")
    + ("seed", "mode", "severity", "configuration", "secrets")
)
"""Parameters of every inject action; no fault may use one of them."""


class Outcome(NamedTuple):
    """A changed value together with what the change achieved (name with unit -> finite number)."""

    value: Any
    achieved: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class Fault:
    """One fault of the catalogue; call it like the function it is: ``image_noise(image, rng, sigma=0.1)``."""

    name: str
    target: Target
    shape: Shape
    points: tuple[Point, ...]
    doc: str
    params: Mapping[str, ParamSpec]
    dose: str | None
    presets: Mapping[int, Mapping[str, Any]]
    apply: Callable[..., Any] = field(repr=False)
    known_here: Callable[..., None] | None = field(default=None, repr=False)
    seam: Seam | None = None
    effect: Effect = Effect.NONE
    selectable: bool = True
    carries_content: bool = False
    changes_content: bool = True

    def __call__(self, *args: Any, **params: Any) -> Any:
        return self.apply(*args, **params)

    @property
    def row(self) -> TargetRow:
        """The row of its target."""
        return TARGETS[self.target]

    def bind(self, params: Mapping[str, Any], severity: int | None = None) -> dict[str, Any]:
        """Every parameter, typed and within bounds: defaults, then the preset, then ``params``.

        Raises InvalidParams naming the fault, the parameter, what was given and what is allowed.
        """
        preset: Mapping[str, Any] = {}
        if severity:
            if severity not in self.presets:
                raise InvalidParams(f"{self.name}: severity={severity!r} is not one of {sorted(self.presets)}")
            preset = self.presets[severity]
        return bind(self.name, self.params, {**preset, **params})

    def check_here(self, params: Mapping[str, Any]) -> None:
        """What only the point itself can tell, such as a name registered there. Raises InvalidParams."""
        if self.known_here is None:
            return
        try:
            self.known_here(**params)
        except InvalidParams as error:
            raise InvalidParams(f"{self.name}: {error}") from None

    def is_noop(self, params: Mapping[str, Any]) -> bool:
        """Whether a graded fault's dose is zero, so that the original bytes pass."""
        return self.dose is not None and params[self.dose] == 0

    def schema(self) -> dict[str, Any]:
        """The declaration as strict JSON, as ``GET /faults`` answers it."""
        return {
            "name": self.name,
            "target": self.target.value,
            "shape": self.shape.value,
            "points": [p.value for p in self.points],
            "doc": self.doc,
            "dose": self.dose,
            "seam": self.seam.value if self.seam else "",
            "effect": self.effect.value,
            "selectable": self.selectable,
            "presets": {str(k): dict(v) for k, v in self.presets.items()},
            "params": [spec.schema() for spec in self.params.values()],
        }


def fault(
    target: Target,
    *,
    dose: str | None = None,
    presets: Mapping[int, Mapping[str, Any]] | None = None,
    points: tuple[Point, ...] | None = None,
    known_here: Callable[..., None] | None = None,
    seam: Seam | None = None,
    effect: Effect = Effect.NONE,
    selectable: bool | None = None,
    carries_content: bool | None = None,
    changes_content: bool = True,
) -> Callable[[Callable[..., Any]], Fault]:
    """Declare a fault. ``points`` may narrow the target's row, never widen it.

    ``seam``: where it takes hold inside an engine; CACHE, SCHEDULER and MEMORY at the agent must name it.
    ``effect``: what it does to the engine beside its harm. ``selectable``: False where it hurts requests that no
    selector picks, True where a fault of an unselectable target picks requests itself. ``carries_content``: whether it
    shows one request's content to another, so that only canaries may suffer it. ``changes_content``: False where it
    takes time or raises, and whatever is computed beside that is right: an engine may then share it as always.

    ``known_here`` is called with the bound parameters when a point is asked for a lease, and raises InvalidParams for
    what bounds cannot say and the chaos process cannot know: a name that this point does not have.

    Raises TypeError naming the function when the declaration is incomplete or against the table.
    """

    def declare(function: Callable[..., Any]) -> Fault:
        row = TARGETS[target]
        made = Fault(
            name=function.__name__,
            target=target,
            shape=row.shape,
            points=row.points if points is None else points,
            doc=inspect.getdoc(function) or "",
            params=read_params(function),
            dose=dose,
            presets=MappingProxyType(dict(presets or {})),
            apply=function,
            known_here=known_here,
            seam=_SEAMS.get(target) if seam is None else seam,
            effect=effect,
            selectable=row.selectable if selectable is None else selectable,
            carries_content=row.carries_content if carries_content is None else carries_content,
            changes_content=changes_content,
        )
        _check_declaration(made)
        _check_presets(made)
        return made

    return declare


def _check_declaration(made: Fault) -> None:
    name, target, row = made.name, made.target, made.row
    _require(made.doc != "", f"{name}: a fault's docstring is its documentation; it has none")
    _require(_shape(made.apply) in _shapes_for(row.shape), f"{name}: a fault on {target} must be a {row.shape}")
    allowed = bool(made.points) and set(made.points) <= set(row.points)
    _require(allowed, f"{name}: points must be among {list(row.points)}")
    words = FRAME_WORDS & set(made.params)
    _require(not words, f"{name}: {sorted(words)} are words of the frame")
    _require(made.dose is None or made.dose in made.params, f"{name}: dose {made.dose!r} is no parameter of it")
    placed = made.seam is not None or _outside_the_engine(target, made.points)
    _require(placed, f"{name}: a fault on {target} in an engine names its seam")


_SEAMS = MappingProxyType(
    {
        Target.KV_CACHE: Seam.KV,
        Target.ATTENTION: Seam.ATTENTION,
        Target.EMBEDDING: Seam.EMBEDDING,
        Target.GRADIENT: Seam.GRADIENT,
    }
)
_MEDIA = frozenset((Target.IMAGE, Target.AUDIO, Target.VIDEO, Target.TEXT))


def _outside_the_engine(target: Target, points: tuple[Point, ...]) -> bool:
    return Point.AGENT not in points or target in _MEDIA


def _shape(function: Callable[..., Any]) -> Shape:
    if inspect.isasyncgenfunction(function):
        return Shape.STREAM
    return Shape.HOLD if inspect.isgeneratorfunction(function) else Shape.TRANSFORM


def _shapes_for(declared: Shape) -> tuple[Shape, ...]:
    # An in-place fault is written as a plain function: what makes it in-place is the engine's tensor.
    return (Shape.TRANSFORM,) if declared is Shape.IN_PLACE else (declared,)


def _check_presets(made: Fault) -> None:
    for severity in made.presets:
        try:
            made.bind({}, severity)
        except InvalidParams as error:
            raise TypeError(f"{made.name}: preset {severity}: {error}") from None


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise TypeError(message)
