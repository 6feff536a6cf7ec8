"""Requests, responses and routes of the control API as plain values."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from chaos_mm.core.errors import BadRequest

_MAX_DEPTH = 32


@dataclass(frozen=True)
class Request:
    """One request, its header names in lower case, its query decoded; ``arrived`` on the point's clock."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    arrived: float | None = None

    def json(self) -> dict[str, Any]:
        """The body as an object. Raises BadRequest on anything that is not strict JSON."""
        try:
            found = json.loads(self.body or b"{}", parse_constant=_refuse, object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            raise BadRequest(f"the body is not strict JSON: {error}") from None
        if not isinstance(found, dict):
            raise BadRequest(f"the body must be a JSON object, not {type(found).__name__}")
        _check_depth(found)
        return found


@dataclass(frozen=True)
class Response:
    """One response; a body that is an iterable is streamed."""

    status: int
    body: bytes | Iterable[bytes]
    content_type: str = "application/json"

    @classmethod
    def json(cls, answer: Any, status: int = 200) -> "Response":
        """Strict JSON. Raises ValueError on a number that is not finite."""
        return cls(status, json.dumps(answer, allow_nan=False).encode() + b"\n")


@dataclass(frozen=True)
class Route:
    """``handler(request, **path variables)`` for a method and a pattern such as ``/marks/{run}/{phase}``.

    ``open`` routes answer without the token.
    """

    method: str
    pattern: str
    handler: Callable[..., Response]
    open: bool = False

    def match(self, path: str) -> dict[str, str] | None:
        """The path's variables, or None."""
        found = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]{1,128})", self.pattern), path)
        return None if found is None else found.groupdict()


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _check_depth(value: Any, depth: int = 0) -> None:
    if depth > _MAX_DEPTH:
        raise BadRequest(f"the body is nested deeper than {_MAX_DEPTH}")
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        _check_depth(child, depth + 1)
