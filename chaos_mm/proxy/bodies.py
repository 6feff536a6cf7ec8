"""The request bodies in which the proxy finds media and text, by path, and where the parts lie in their bytes."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

import orjson

from chaos_mm.core.fault import Target
from chaos_mm.proxy.json_spans import Node, Span
from chaos_mm.proxy.policy import Undecodable


class Form(Enum):
    """How a part's bytes stand in the body."""

    TEXT = auto()
    """A JSON string of text."""
    URI = auto()
    """A JSON string of a data URI, or of a remote URL."""
    BASE64 = auto()
    """A JSON string of base64 alone."""
    RAW = auto()
    """The medium's own bytes."""


@dataclass(frozen=True, slots=True)
class Part:
    """One text, picture or clip. `name` is its path in the request; `span` where its `form` of bytes stands."""

    name: str
    target: Target
    span: Span
    form: Form


@dataclass(frozen=True, slots=True)
class Document:
    """A request's body: the model it names, its parts in order; `frame` must not occur in a RAW part."""

    model: str
    parts: tuple[Part, ...]
    frame: bytes = b""

    @property
    def modalities(self) -> frozenset[str]:
        """Which of "text", "image", "audio" it holds."""
        return frozenset(part.target.value for part in self.parts)


Reader = Callable[[bytes, str], Document]
"""(body, Content-Type) to its parts. Raises Undecodable."""


def checked_json(body: bytes) -> None:
    """Raises Undecodable("invalid_json")."""
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Undecodable("invalid_json") from None


def text_of(body: bytes, node: Node) -> str:
    """A string's value; nothing for anything else."""
    return node.text(body) if isinstance(node, Span) else ""
