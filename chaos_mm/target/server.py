"""The demo target's HTTP server: OpenAI's API over the micro-batching engine."""

import asyncio
import base64
import logging
import re
import time
import traceback
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from aiohttp import web

from chaos_mm.target import media, questions, tokens
from chaos_mm.target.chat import ChatRequest, check_text, read_chat, read_json
from chaos_mm.target.encoder_cache import medium_key
from chaos_mm.target.engine import EmbeddingJob, Engine, Event, Failed, Finished, Job, Token
from chaos_mm.target.generation import ModelInput
from chaos_mm.target.metrics import Metrics
from chaos_mm.target.model import MODEL_NAME
from chaos_mm.target.multipart import read_form
from chaos_mm.target.network import MAX_POSITIONS, OmniModel
from chaos_mm.target.refusal import Refusal, error_json
from chaos_mm.target.replies import DONE, ChatReply, embeddings_json, models_json, sse

MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_EMBEDDED_TEXTS = 64
REQUEST_ID = web.RequestKey("request_id", str)
_SAFE_ID = re.compile(r"[\x21-\x7e]{1,256}")
_log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def model_input(text: str, picture: bytes | None, speech: bytes | None) -> ModelInput:
    """Decode the media and tokenise the text. Raises Refusal for broken media and a prompt that is too long."""
    words = tokens.text_ids(text)
    ids = tokens.prompt_ids(words, picture is not None, speech is not None)
    if len(ids) >= MAX_POSITIONS:
        length = f"This model's maximum context length is {MAX_POSITIONS} tokens"
        raise Refusal(f"{length}. However, your request has {len(ids)} input tokens.", 400, "messages")
    pixels = mel = None
    if picture is not None:
        pixels = torch.from_numpy(media.read_picture(picture).copy()).permute(2, 0, 1).float() / 255
    if speech is not None:
        mel = torch.from_numpy(media.read_speech(speech))
    return ModelInput(ids, pixels, mel, medium_key(pixels), medium_key(mel))


class TargetServer:
    """The application and what it needs; ``app`` is the aiohttp application."""

    def __init__(self, model: OmniModel, name: str = MODEL_NAME) -> None:
        self.name, self.created = name, int(time.time())
        self.metrics = Metrics(name)
        self.engine = Engine(model, self.metrics)
        self._pool = ThreadPoolExecutor(1, "preprocess")
        self.app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[answer_errors])
        self.app.add_routes(
            [
                web.post("/v1/chat/completions", self.chat),
                web.post("/v1/audio/transcriptions", self.transcribe),
                web.post("/v1/embeddings", self.embed),
                web.get("/v1/models", self.models),
                web.get("/health", self.health),
                web.get("/metrics", self.show_metrics),
            ]
        )
        self.app.on_startup.append(self._start)
        self.app.on_cleanup.append(self._close)

    async def _start(self, _: web.Application) -> None:
        self.engine.start()

    async def _close(self, _: web.Application) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.engine.close()

    async def health(self, _: web.Request) -> web.Response:
        """200 with an empty body, as vLLM answers."""
        return web.Response()

    async def models(self, _: web.Request) -> web.Response:
        """The one model there is."""
        return web.json_response(models_json(self.name, self.created, MAX_POSITIONS))

    async def show_metrics(self, _: web.Request) -> web.Response:
        """Prometheus text."""
        return web.Response(body=self.metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """``POST /v1/chat/completions``."""
        body = await request.read()
        asked, entry = await self._off_loop(self._prepare_chat, body)
        reply = ChatReply(request[REQUEST_ID], self.name, len(entry.ids), asked.logprobs is not None)
        job = Job(entry, asked.max_tokens, asked.logprobs, request[REQUEST_ID])
        return await (
            self._stream(request, job, reply, asked.include_usage) if asked.stream else self._whole(job, reply)
        )

    async def transcribe(self, request: web.Request) -> web.Response:
        """``POST /v1/audio/transcriptions``: what four digits a recording says."""
        form = await read_form(request, MAX_BODY_BYTES)
        self._check_model(form.text("model"))
        shape = form.text("response_format") or "json"
        if shape not in ("json", "text"):
            raise Refusal("response_format is not one of json, text", 400, "response_format")
        entry = await self._off_loop(model_input, questions.QUESTIONS["audio"][0], None, form.file("file"))
        reply = ChatReply(request[REQUEST_ID], self.name, len(entry.ids))
        await self._collect(Job(entry, MAX_POSITIONS, request_id=request[REQUEST_ID]), reply)
        return web.Response(text=reply.text) if shape == "text" else web.json_response({"text": reply.text})

    async def embed(self, request: web.Request) -> web.Response:
        """``POST /v1/embeddings`` of texts."""
        fields = read_json(await request.read())
        self._check_model(fields.get("model"))
        shape = fields.get("encoding_format") or "float"
        if shape not in ("float", "base64"):
            raise Refusal("encoding_format is not one of float, base64", 400, "encoding_format")
        job = EmbeddingJob(_embedding_ids(fields.get("input")))
        self.engine.submit(job)
        vectors = (await job.future).numpy()
        shown = [base64.b64encode(row.tobytes()).decode() if shape == "base64" else row.tolist() for row in vectors]
        return web.json_response(embeddings_json(self.name, shown, sum(len(ids) + 1 for ids in job.ids)))

    async def _off_loop(self, work: Callable[..., Any], *values: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *values)

    def _prepare_chat(self, body: bytes) -> tuple[ChatRequest, ModelInput]:
        asked = read_chat(body)
        self._check_model(asked.model)
        return asked, model_input(asked.text, asked.picture, asked.speech)

    def _check_model(self, name: Any) -> None:
        if not isinstance(name, str) or not name:
            raise Refusal("model is missing", 400, "model")
        if name != self.name:
            raise Refusal(f"The model `{name[:100]}` does not exist.", 404, "model")

    async def _events(self, job: Job) -> AsyncIterator[Event]:
        """The job's events up to its end; leaving early (a client that hung up) cancels it."""
        self.engine.submit(job)
        try:
            while True:
                event = await job.events.get()
                yield event
                if not isinstance(event, Token):
                    return
        finally:
            job.cancel()

    async def _collect(self, job: Job, reply: ChatReply) -> Finished:
        async for event in self._events(job):
            if isinstance(event, Token):
                reply.add(event)
            elif isinstance(event, Failed):
                raise event.error
            else:
                return event
        raise RuntimeError("the engine ended an answer without an event")

    async def _whole(self, job: Job, reply: ChatReply) -> web.Response:
        end = await self._collect(job, reply)
        return web.json_response(reply.completion(end.reason, end.generated))

    async def _stream(self, request: web.Request, job: Job, reply: ChatReply, with_usage: bool) -> web.StreamResponse:
        """Server-sent events: the role, a delta a token, the finish reason, the usage if wanted, ``[DONE]``."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        response.headers["x-request-id"] = request[REQUEST_ID]
        await response.prepare(request)
        await response.write(sse(reply.chunk({"role": "assistant", "content": ""})))
        async for event in self._events(job):
            if isinstance(event, Token):
                await response.write(sse(reply.chunk({"content": reply.add(event)})))
            elif isinstance(event, Failed):
                _log_failure(event.error)
                await response.write(sse(error_json("the model failed", 500)))
            else:
                reply.scores.clear()
                await response.write(sse(reply.chunk({"content": ""}, event.reason)))
                if with_usage:
                    await response.write(sse(reply.usage_chunk(event.generated)))
        await response.write(DONE)
        await response.write_eof()
        return response


def _embedding_ids(texts: Any) -> list[list[int]]:
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise Refusal("input is neither a string nor a list of strings", 400, "input")
    if len(texts) > MAX_EMBEDDED_TEXTS:
        raise Refusal(f"input holds {len(texts)} texts; at most {MAX_EMBEDDED_TEXTS}", 400, "input")
    for text in texts:
        check_text(text, "input")
    ids = [tokens.text_ids(text) for text in texts]
    longest = max(map(len, ids))
    if longest >= MAX_POSITIONS:
        raise Refusal(f"input has a text of {longest} tokens; at most {MAX_POSITIONS - 1}", 400, "input")
    return ids


def _log_failure(error: BaseException) -> None:
    """Log what broke and where, without the error's own text: it could quote a request."""
    _log.error("a request failed: %s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give every request an id and every error OpenAI's JSON."""
    given = request.headers.get("x-request-id", "")
    request[REQUEST_ID] = given if _SAFE_ID.fullmatch(given) else uuid.uuid4().hex
    try:
        response = await handler(request)
    except Refusal as refusal:
        response = web.json_response(refusal.to_json(), status=refusal.status)
    except web.HTTPRequestEntityTooLarge:
        message = f"body is larger than {MAX_BODY_BYTES} bytes"
        response = web.json_response(error_json(message, 413), status=413)
    except web.HTTPException as error:
        response = web.json_response(error_json(error.reason, error.status), status=error.status)
    except (asyncio.CancelledError, ConnectionError):
        raise  # the client hung up
    except Exception as error:
        _log_failure(error)
        response = web.json_response(error_json("the model failed", 500), status=500)
    if not response.prepared:
        response.headers["x-request-id"] = request[REQUEST_ID]
    return response
