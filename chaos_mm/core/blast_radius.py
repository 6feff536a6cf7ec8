"""Who may be hurt: selector, rate and limit stand outside the fault, which never rolls its own dice."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.params import ParamSpec

_RATE = ParamSpec("rate", float, 1.0, "share of matching requests", ge=0, le=1)
_LIMIT = ParamSpec("limit", int, 0, "most requests to change; 0 is no limit", ge=0, le=10**9)
_SELECTOR = ParamSpec("selector", str, "canary", "who may be hurt")
_AUDIENCES = ("canary", "live")
_HEAD_KEYS = ("header", "path")
_BODY_KEYS = ("model", "modality")
_ALLOWED = "'canary', 'live', 'header:NAME=VALUE', 'path:/v1/…', 'model:NAME', 'modality:image', joined by ','"
_MODALITIES = ("image", "audio", "video", "text")


@dataclass(frozen=True)
class RequestInfo:
    """What a point knows of one request; header names in lower case."""

    id: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    modalities: frozenset[str] = frozenset()
    canary: bool = False


@dataclass(frozen=True)
class Selector:
    """A conjunction of terms. Without the word ``live`` only canaries are ever selected."""

    live: bool = False
    terms: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Selector":
        """Read ``canary``, ``live,header:x-tenant=a`` … Raises ValueError naming what is allowed."""
        words = [w.strip() for w in text.split(",")]
        audience = [w for w in words if w in _AUDIENCES]
        if len(audience) > 1:
            raise ValueError(f"selector={text!r} names {' and '.join(audience)}; one of {_AUDIENCES} is allowed")
        return cls("live" in audience, tuple(_term(w, text) for w in words if w not in _AUDIENCES))

    def text(self) -> str:
        """As it is written in a lease."""
        head = "live" if self.live else "canary"
        return ",".join([head, *(f"{key}:{value}" for key, value in self.terms)])

    def may_match(self, info: RequestInfo) -> bool:
        """Judged by the head alone; the body's terms are taken as true."""
        return self._audience(info) and all(_holds(k, v, info) for k, v in self.terms if k in _HEAD_KEYS)

    def matches(self, info: RequestInfo) -> bool:
        """Whether every term holds."""
        return self._audience(info) and all(_holds(k, v, info) for k, v in self.terms)

    def _audience(self, info: RequestInfo) -> bool:
        return self.live or info.canary


def _term(word: str, whole: str) -> tuple[str, str]:
    key, colon, value = word.partition(":")
    bad = not colon or not value or key not in _HEAD_KEYS + _BODY_KEYS
    if bad or (key == "header" and not _is_header(value)) or (key == "modality" and value not in _MODALITIES):
        raise ValueError(f"selector={whole!r}: {word!r} is not allowed; it must be {_ALLOWED}")
    return key, value


def _is_header(value: str) -> bool:
    name, equals, wanted = value.partition("=")
    return bool(name and equals and wanted)


def _holds(key: str, value: str, info: RequestInfo) -> bool:
    if key == "header":
        name, _, wanted = value.partition("=")
        return info.headers.get(name.lower()) == wanted
    if key == "path":
        return info.path == value
    return info.model == value if key == "model" else value in info.modalities


@dataclass(frozen=True)
class BlastRadius:
    """Share, selection and cap of the requests a lease may change."""

    rate: float = 1.0
    selector: Selector = Selector()
    limit: int = 0

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "BlastRadius":
        """Read the ``blast_radius`` of a lease. Raises InvalidParams naming field, value and what is allowed."""
        unknown = sorted(set(body) - {"rate", "selector", "limit"})
        if unknown:
            raise InvalidParams(f"blast_radius: unknown field {unknown[0]!r}; it takes 'rate', 'selector', 'limit'")
        limit = 0 if body.get("limit") is None else body["limit"]
        try:
            selector = Selector.parse(_SELECTOR.check(body.get("selector", "canary")))
            rate, most = _RATE.check(body.get("rate", 1.0)), _LIMIT.check(limit)
        except ValueError as error:
            raise InvalidParams(f"blast_radius: {error}") from None
        return cls(rate, selector, most)

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"rate": self.rate, "selector": self.selector.text(), "limit": self.limit}

    def hits(self, seed: int, lease: str, request_id: str) -> bool:
        """Whether the share picks this request: by hash of its id, so any replica and any order agree."""
        if self.rate >= 1.0:
            return True
        data = f"{seed}|{lease}|{request_id}".encode()
        digest = hashlib.blake2b(data, digest_size=8, person=b"chaos_mm.rate").digest()
        return int.from_bytes(digest, "big") < self.rate * 2.0**64
