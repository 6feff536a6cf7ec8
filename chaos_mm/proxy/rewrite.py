"""Plan, decode, perturb, re-encode: what happens to the body of a request that a live lease may select.

CPU work on one request, made for a worker thread. What is not changed keeps its bytes: other parts, other JSON.
"""

import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import orjson

from chaos_mm.core.blast_radius import RequestInfo
from chaos_mm.core.fault import Target
from chaos_mm.core.injector import Injector, Plan
from chaos_mm.proxy.bodies import Document, Form, Part
from chaos_mm.proxy.data_uri import read_payload
from chaos_mm.proxy.json_spans import splice
from chaos_mm.proxy.media.audio import open_audio
from chaos_mm.proxy.media.image import open_image
from chaos_mm.proxy.media.medium import Clip, Picture
from chaos_mm.proxy.openai import ENDPOINTS
from chaos_mm.proxy.policy import Limits, OnUndecodable, Refused, Undecodable, whereabouts
from chaos_mm.proxy.samples import Samples

logger = logging.getLogger("chaos_mm.proxy")


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The body to send, whether it is another, and the plan to settle: commit once sent, discard when it was not.

    `committed` is to be called after a commit, from any thread.
    """

    body: bytes
    plan: Plan | None
    changed: bool = False
    committed: Callable[[], None] = lambda: None


class Rewriter:
    """Perturbs bodies; `count` is told the reason of each thing that could not be.

    Every canary's damage is measured after re-encoding, and every `measure_every`-th of the other requests'.
    """

    def __init__(
        self,
        injector: Injector,
        limits: Limits,
        on_undecodable: OnUndecodable,
        count: Callable[[str], object],
        samples: Samples,
        measure_every: int = 1,
    ) -> None:
        self._injector, self._limits, self._on_undecodable, self._count = injector, limits, on_undecodable, count
        self._samples = samples
        self._measure_every, self._turn = measure_every, itertools.count()

    def rewrite(self, body: bytes, info: RequestInfo) -> Rewritten:
        """Plan with what the body holds and carry the plan out. Raises Undecodable (body), Refused (part)."""
        document = ENDPOINTS[info.path].reader(body, info.headers.get("content-type", ""))
        info = replace(info, model=document.model, modalities=document.modalities)
        plan = self._injector.plan(info)
        if plan is None:
            return Rewritten(body, None)
        try:
            return self._carried_out(body, document, plan)
        except Refused as refusal:
            plan.discard(refusal.reason)
            raise
        except Exception as error:  # our own bug must not become the request's: it passes as it came
            logger.error("rewriting failed: %s", whereabouts(error))
            plan.discard(type(error).__name__)
            return Rewritten(body, None)

    def _carried_out(self, body: bytes, document: Document, plan: Plan) -> Rewritten:
        measured = plan.info.canary or next(self._turn) % self._measure_every == 0
        edits: list[tuple[Part, bytes]] = []
        failed = ""
        for part in document.parts:
            if part.target not in plan.targets:
                continue
            try:
                new = self._changed(body, part, document.frame, plan, measured)
            except Undecodable as error:
                failed = error.reason
                plan.undo(part.target, part.name, failed)
                self._failed(failed, part)
                continue
            if new is not None:
                edits.append((part, new))
        if failed and not edits:
            plan.discard(failed)
            return Rewritten(body, None)
        if not edits:
            return Rewritten(body, plan)
        made = splice(body, ((part.span, new) for part, new in edits))
        return Rewritten(made, plan, True, self._samples.of(plan, body, edits))

    def _failed(self, reason: str, part: Part) -> None:
        self._count(reason)
        # A remote URL is not damaged: it passes under either policy.
        if self._on_undecodable == "refuse" and reason != "remote_media":
            raise Refused(reason, part.name)

    def _changed(self, body: bytes, part: Part, frame: bytes, plan: Plan, measured: bool) -> bytes | None:
        """What to put in the part's place; None when it stays as it is."""
        if part.form is Form.TEXT:
            return _changed_text(part.span.text(body), part, plan)
        if part.form is Form.RAW:
            encoded = self._perturbed(body[part.span.start : part.span.end], part, plan, measured)
            if encoded is not None and frame in encoded:
                raise Undecodable("not_encodable")  # once in 2^100 the medium would cut its own envelope
            return encoded
        payload = read_payload(part.span.value(body), bare=part.form is Form.BASE64)
        encoded = self._perturbed(payload.data, part, plan, measured)
        return None if encoded is None else payload.replaced(encoded)

    def _perturbed(self, data: bytes, part: Part, plan: Plan, measured: bool) -> bytes | None:
        """The encoded medium after the planned faults; None when they left it alone."""
        opener: Callable[[bytes, Limits], Picture | Clip] = open_image if part.target is Target.IMAGE else open_audio
        medium: Any = opener(data, self._limits)
        value = plan.apply(part.target, medium.value, part.name)
        if value is medium.value:
            return None
        encoded: bytes = medium.encode(value)
        if measured:
            plan.achieved(part.target, part.name, medium.achieved(encoded, value))
        return encoded


def _changed_text(text: str, part: Part, plan: Plan) -> bytes | None:
    new = plan.apply(Target.TEXT, text, part.name)
    if new is text:
        return None
    try:
        return orjson.dumps(str(new))
    except orjson.JSONEncodeError:  # a lone surrogate: the fault cut through a character
        raise Undecodable("not_encodable") from None
