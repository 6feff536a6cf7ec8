"""What the contract asks of a seam: fresh samples, what stands in them, what is damage, and how it is undone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from chaos_mm.core.fault import Seam
from tests.contract.engine_samples import DTYPES, SampleAttentionCall, SampleKvCache, SampleKvLoad, name_of


@dataclass(frozen=True)
class Subject:
    """``make(label, request)`` a fresh value; ``state`` what stands in it, byte for byte; ``damage`` done since fresh.

    ``undo`` puts back what was written and fails where something was changed behind ``write``. ``place`` is a
    selection, ``outside`` the bytes of what is not in it, ``early`` the same value before anything is due.
    """

    labels: tuple[str, ...]
    make: Callable[[str, str], Any]
    state: Callable[[Any], bytes]
    damage: Callable[[Any, Any], float]
    undo: Callable[[Any], None]
    place: dict[str, str]
    outside: Callable[[Any], bytes]
    early: Callable[[Any], None]


_DTYPES = {name_of(dtype): dtype for dtype in DTYPES}


def _cache(label: str, request: str) -> SampleKvCache:
    dtype, _, kind = label.partition(" ")
    sizes = {"tokens": 1} if kind == "one token" else {"tokens": 61}
    donor = SampleKvCache.make(_DTYPES[dtype], seed=9, request="donor", **sizes)
    return SampleKvCache.make(_DTYPES[dtype], request=request, donors=[donor], **sizes)


def _distance(clean: SampleKvCache, hurt: SampleKvCache) -> float:
    """Sum of absolute changes, each a thousand at most; what is not a number counts as a thousand."""
    total = 0.0
    for place, tensor in clean.store.items():
        change = (hurt.store[place].double() - tensor.double()).abs().nan_to_num(1e3, 1e3, 1e3)
        total += float(change.clamp(max=1e3).sum())
    return total


def _outside_cache(cache: SampleKvCache) -> bytes:
    """Everything but layer 1, keys, heads 1 and 2, tokens 3 to 20 and 40."""
    masked = SampleKvCache({place: tensor.clone() for place, tensor in cache.store.items()})
    chosen = masked.store[1, "keys"]
    for head in (1, 2):
        for positions in (slice(3, 21), slice(40, 41)):
            chosen[head, positions] = torch.zeros(chosen[head, positions].shape).to(chosen.dtype)
    return masked.bytes()


def _early_cache(cache: SampleKvCache) -> None:
    cache.output_index = 0


def _call(label: str, request: str) -> SampleAttentionCall:
    return SampleAttentionCall(
        layer=0, heads=8, requests=(request,), lease_ends=1e6, survives_raise=label == "survives an exception"
    )


def _answer(call: SampleAttentionCall) -> bytes:
    return bytes(call.launch().numpy()) + str(call.now).encode()


def _harm(clean: SampleAttentionCall, hurt: SampleAttentionCall) -> float:
    """Seconds lost and elements of the output changed."""
    return hurt.now - clean.now + float((hurt.launch() != clean.launch()).sum())


def _nothing(call: SampleAttentionCall) -> None:
    """A call leaves nothing behind: the next one is made of the same keys and values."""
    call.change, call.now = None, 0.0


def _early_call(call: SampleAttentionCall) -> None:
    call.output_index = -1  # before every ``after_tokens``


def _load(label: str, request: str) -> SampleKvLoad:
    return SampleKvLoad(SampleKvCache.make(seed=1), SampleKvCache.make(seed=2), request)


def _loaded(load: SampleKvLoad) -> bytes:
    return repr((load.run(), load.delay_seconds)).encode() + load.target.bytes()


SUBJECTS: dict[Seam, Subject] = {
    Seam.KV: Subject(
        (*_DTYPES, "float32 one token"),
        _cache,
        SampleKvCache.bytes,
        _distance,
        SampleKvCache.restore,
        {"layers": "1", "heads": "1-2", "positions": "3-20,40", "which": "keys"},
        _outside_cache,
        _early_cache,
    ),
    Seam.ATTENTION: Subject(
        ("survives an exception", "dies of an exception"),
        _call,
        _answer,
        _harm,
        _nothing,
        {"layers": "1-2"},  # the sample is layer 0: all of it is outside
        _answer,
        _early_call,
    ),
    Seam.KV_LOAD: Subject(
        ("a load",), _load, _loaded, lambda clean, hurt: 0.0, lambda load: None, {}, lambda load: b"", lambda load: None
    ),
}
