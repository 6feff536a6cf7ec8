"""The bodies of answers in OpenAI's shapes, with vLLM's ways: completions, stream chunks, usage, log-probabilities."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos_mm.target import tokens
from chaos_mm.target.engine import Token

DONE = b"data: [DONE]\n\n"


def sse(event: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


def usage(prompt: int, completion: int | None = None) -> dict[str, int]:
    """Token counts; ``<eos>`` counts as generated, the placeholders of media as prompt."""
    counts = {"prompt_tokens": prompt, "total_tokens": prompt + (completion or 0)}
    return counts if completion is None else {**counts, "completion_tokens": completion}


def logprobs_json(token: Token) -> dict[str, Any]:
    """One entry of ``logprobs.content``."""
    top = [_scored(alternative, logprob) for alternative, logprob in token.top]
    return {**_scored(token.id, token.logprob), "top_logprobs": top}


def _scored(token: int, logprob: float | None) -> dict[str, Any]:
    word = tokens.vocabulary_words()[token]
    return {"token": word, "logprob": logprob, "bytes": list(word.encode())}


@dataclass
class ChatReply:
    """One answer as it grows; makes its chunks or, at the end, its completion."""

    request_id: str
    model: str
    prompt_tokens: int
    with_logprobs: bool = False
    text: str = ""
    created: int = field(default_factory=lambda: int(time.time()))
    scores: list[dict[str, Any]] = field(default_factory=list)

    def add(self, token: Token) -> str:
        """Take a token; returns the text that it adds."""
        delta = tokens.delta_text(token.id, self.text)
        self.text += delta
        if self.with_logprobs:
            self.scores.append(logprobs_json(token))
        return delta

    def chunk(self, delta: Mapping[str, str], reason: str | None = None) -> dict[str, Any]:
        """A stream chunk with a delta; the scores are those of the token added last."""
        scores = {"content": self.scores[-1:]} if self.with_logprobs and self.scores and "role" not in delta else None
        choice = {"index": 0, "delta": dict(delta), "logprobs": scores, "finish_reason": reason}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def usage_chunk(self, generated: int) -> dict[str, Any]:
        """The chunk that ``stream_options.include_usage`` asks for, after the last choice."""
        head = self._head("chat.completion.chunk")
        return {**head, "choices": [], "usage": usage(self.prompt_tokens, generated)}

    def completion(self, reason: str, generated: int) -> dict[str, Any]:
        """The whole answer."""
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": self.text},
            "logprobs": {"content": self.scores} if self.with_logprobs else None,
            "finish_reason": reason,
        }
        head = self._head("chat.completion")
        return {**head, "choices": [choice], "usage": usage(self.prompt_tokens, generated)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{self.request_id}", "object": kind, "created": self.created, "model": self.model}


def models_json(model: str, created: int, context: int) -> dict[str, Any]:
    """The answer to ``GET /v1/models``."""
    card = {"id": model, "object": "model", "created": created, "owned_by": "chaos_mm", "max_model_len": context}
    return {"object": "list", "data": [card]}


def embeddings_json(model: str, vectors: Sequence[Any], prompt_tokens: int) -> dict[str, Any]:
    """The answer to ``POST /v1/embeddings``; ``vectors`` are lists of floats or base64 texts."""
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    return {"object": "list", "model": model, "data": data, "usage": usage(prompt_tokens)}
