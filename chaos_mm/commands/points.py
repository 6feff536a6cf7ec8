"""Which injection points there are to ask: those the environment, an experiment, the demo or the defaults name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaos_mm.control.client import ControlClient
from chaos_mm.control.state import state_dir
from chaos_mm.controls.names import POINT_NAMES, Name, given
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.demo.state import DemoState

__all__ = ["Answer", "PointAt", "ask", "known_points"]

Question = Callable[[ControlClient, dict[str, Any]], Any]
NOT_ANSWERING_EXIT = 3
"""Exit status when a point that somebody named did not answer, so that nobody can say what is armed there."""


@dataclass(frozen=True)
class PointAt:
    """A control URL and who named it; ``expected`` is False where only the default stands."""

    kind: str
    url: str
    source: str
    expected: bool = True


@dataclass(frozen=True)
class Answer:
    """What a point said, or the error instead; a default address where nothing listens is ``absent``."""

    at: PointAt
    value: Any = None
    error: ChaosMMError | None = None

    @property
    def absent(self) -> bool:
        """Nobody answers, and nobody said that somebody would."""
        return self.error is not None and self.error.kind == "point_unreachable" and not self.at.expected


def known_points(
    extra: Sequence[str] = (), configuration: Mapping[str, Any] | None = None, source: str = ""
) -> list[PointAt]:
    """Every point once: ``extra`` URLs, the experiment's ``configuration`` (from ``source``), environment, demo, and
    the defaults of the kinds that none of them names.
    """
    found = [PointAt("point", url, "--url") for url in extra]
    for kind, name in POINT_NAMES.items():
        named = list(_named(kind, name, configuration, source))
        found += named or [PointAt(kind, url, "default", expected=False) for url in _split(name.default)]
    first: dict[str, PointAt] = {}
    for point in found:
        first.setdefault(point.url, point)
    return list(first.values())


def ask(points: Iterable[PointAt], question: Question, timeout: float = 2.0) -> list[Answer]:
    """``question(client, health)`` at each point; one that fails does not keep the others from being asked."""
    return [_ask_one(point, question, timeout) for point in points]


def _ask_one(point: PointAt, question: Question, timeout: float) -> Answer:
    try:
        client = ControlClient(point.url, timeout=timeout)
        health = client.health()  # first, since it needs no token: a point that is not there is told from a closed one
        return Answer(point, value=question(client, health))
    except ChaosMMError as error:
        return Answer(point, error=error)


def _named(kind: str, name: Name, configuration: Mapping[str, Any] | None, source: str) -> Iterable[PointAt]:
    if configuration and configuration.get(name.key):
        yield from (PointAt(kind, url, source) for url in _split(str(configuration[name.key])))
    yield from (PointAt(kind, url, name.variable) for url in _split(given(name, None) or ""))
    demo = DemoState.read(state_dir() / "demo.json")
    if demo is not None and demo.supervised:
        yield from (PointAt(kind, url, "demo") for url in _split(demo.exports.get(name.variable, "")))


def _split(urls: str) -> list[str]:
    return [url.strip().rstrip("/") for url in urls.split(",") if url.strip()]
