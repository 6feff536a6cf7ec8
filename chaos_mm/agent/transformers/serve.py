"""``transformers serve``: whose request its inference thread computes, and which models it loads and lets go.

Three of its modules are patched as they are imported; its code on disk, its routes and its arguments stay as they are.
Where a later release has other names, nothing is patched, and every fault is refused with that reason.
"""

import contextvars
import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from chaos_mm.core import serving

__all__ = ["CONTINUOUS", "serve_patches"]

logger = logging.getLogger("chaos_mm.agent")
CONTINUOUS: Final = (
    "this server batches continuously, with a paged cache that no seam of the agent knows; start it without "
    "--continuous-batching to inject faults"
)
_request: contextvars.ContextVar[tuple[str, frozenset[str]]] = contextvars.ContextVar("chaos_mm_request")
_MODALITY: Final = {"pixel_values": "image", "pixel_values_videos": "video", "input_features": "audio"}
Refuse = Callable[[str], None]


def serve_patches(started: Callable[[], None], refuse: Refuse) -> Mapping[str, Callable[[Any], None]]:
    """Patches by module name. ``started`` is called when the server is built, ``refuse`` with why faults cannot be."""
    prefix = "transformers.cli.serving"
    return {
        f"{prefix}.server": _guarded(lambda module: _patch_server(module, started), refuse),
        f"{prefix}.utils": _guarded(lambda module: _patch_generation(module, refuse), refuse),
        f"{prefix}.model_manager": _guarded(_patch_models, refuse),
        f"{prefix}.transcription": _guarded(_patch_transcription, refuse),
    }


def _guarded(patch: Callable[[Any], None], refuse: Refuse) -> Callable[[Any], None]:
    """A release with other names must still serve: the patch is left out, and said."""

    def apply(module: Any) -> None:
        try:
            patch(module)
        except AttributeError as error:
            reason = f"this release of transformers serves in another way ({module.__name__}: {error})"
            logger.error("chaos_mm agent: %s; no fault can be injected", reason)
            refuse(reason)

    return apply


def _patch_server(module: Any, started: Callable[[], None]) -> None:
    build = module.build_server

    @functools.wraps(build)
    def build_server(*args: Any, **kwargs: Any) -> Any:
        app = build(*args, **kwargs)
        started()
        return app

    module.build_server = build_server


def _patch_models(module: Any) -> None:
    load, delete = module.ModelManager._load_model, module.TimedModel.delete_model

    @functools.wraps(load)
    def _load_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        model = load(self, *args, **kwargs)
        serving.announce_model(model)
        return model

    @functools.wraps(delete)
    def delete_model(self: Any) -> None:
        model = getattr(self, "model", None)
        if model is not None:
            serving.withdraw_model(model)
        del model
        delete(self)

    module.ModelManager._load_model, module.TimedModel.delete_model = _load_model, delete_model


def _patch_generation(module: Any, refuse: Refuse) -> None:
    manager, batching = module.GenerateManager, module.CBGenerateManager
    for name in ("generate_streaming", "generate_non_streaming"):
        setattr(manager, name, _naming(getattr(manager, name)))
    for name in ("submit", "async_submit"):
        setattr(manager, name, _carrying(getattr(manager, name)))
    begin = batching.init_cb

    @functools.wraps(begin)
    def init_cb(self: Any, *args: Any, **kwargs: Any) -> Any:
        refuse(CONTINUOUS)
        return begin(self, *args, **kwargs)

    batching.init_cb = init_cb


def _patch_transcription(module: Any) -> None:
    """Recordings are handed to the inference thread without their request's id, so it is noted beforehand."""
    handle = module.TranscriptionHandler.handle_request

    @functools.wraps(handle)
    def handle_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        _request.set((str(getattr(request.state, "request_id", "")), frozenset(("audio",))))
        return handle(self, request, *args, **kwargs)

    module.TranscriptionHandler.handle_request = handle_request


def _naming(generate: Callable[..., Any]) -> Callable[..., Any]:
    """Note the request that the handler names, in the handler's own context."""

    @functools.wraps(generate)
    def named(
        self: Any, model: Any, processor: Any, inputs: Any, gen_config: Any, request_id: str, *args: Any, **kwargs: Any
    ) -> Any:
        found = frozenset(word for name, word in _MODALITY.items() if name in inputs)
        _request.set((request_id, found | {"text"}))
        return generate(self, model, processor, inputs, gen_config, request_id, *args, **kwargs)

    return named


def _carrying(submit: Callable[..., Any]) -> Callable[..., Any]:
    """Take the noted request along to the inference thread, which computes one at a time."""

    @functools.wraps(submit)
    def carried(self: Any, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        request, modalities = _request.get(("", frozenset()))
        if not request:
            return submit(self, work, *args, **kwargs)

        def run(*given: Any, **named: Any) -> Any:
            with serving.running([request], [modalities]):
                return work(*given, **named)

        return submit(self, run, *args, **kwargs)

    return carried
