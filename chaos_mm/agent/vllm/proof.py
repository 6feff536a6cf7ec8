"""The agent's own canary: a short request through the engine client, so that every seam is seen to be passed."""

import secrets
from typing import Any

__all__ = ["send"]

_SIDE = 56  # pixels; any model resizes


async def send(client: Any, request_id: str, *, media: bool, length: int, tokens: int) -> str:
    """Empty when it was answered, else why not. ``length``: tokens of its prompt; ``media``: with a picture."""
    from vllm import SamplingParams

    vocabulary = int(client.vllm_config.model_config.get_vocab_size())
    if media:
        prompt = _picture_prompt(client.vllm_config.model_config)
        if prompt is None:
            return "no placeholder for a picture is known of this model"
    else:  # other tokens every time: a prefix hit would skip what is to be seen
        prompt = {"prompt_token_ids": [secrets.randbelow(vocabulary // 2) for _ in range(length)]}
    sampling = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
    answered = 0
    async for output in client.generate(prompt, sampling, request_id):
        answered = len(output.outputs[0].token_ids)
    return "" if answered else "the agent's own canary came back empty"


def _picture_prompt(model_config: Any) -> dict[str, Any] | None:
    import numpy as np
    from vllm.model_executor.model_loader import get_model_cls

    try:
        placeholder = get_model_cls(model_config).get_placeholder_str("image", 1)
    except (ValueError, RuntimeError):
        return None
    if not placeholder:
        return None
    pixels = np.frombuffer(secrets.token_bytes(_SIDE * _SIDE * 3), dtype=np.uint8).reshape(3, _SIDE, _SIDE).copy()
    text = f"{secrets.token_hex(4)} {placeholder} what is this"
    return {"prompt": text, "multi_modal_data": {"image": pixels}}
