"""What the agent costs a model of Hugging Face transformers: a decode step with its hooks and without them.

``python -m benchmarks.transformers_bench`` prints one table: CPU time of the decoding thread per step, disarmed, in
blocks that alternate between hooked and unhooked, with a 95 % interval over the blocks; the same with a lease armed
that matches nobody in the batch; and what torch takes for a hook that does nothing. Exit code 1 where the whole
interval of the disarmed cost lies above 1 %.
"""

import os
import statistics
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS, PAIRS, BATCH = 24, 40, 1
LIMIT_PERCENT = 1.0


def prepare(folder: str) -> None:
    """A state folder and a token of our own."""
    os.environ.update(
        CHAOS_MM_AGENT="1",
        CHAOS_MM_STATE_DIR=folder,
        CHAOS_MM_TOKEN_FILE=f"{folder}/token",
        CHAOS_MM_AGENT_CONTROL_URL=f"unix://{folder}/control",
    )
    from chaos_mm.control.token import load_or_create_token

    load_or_create_token(Path(folder) / "token")


def seconds_per_step(model: Any, inputs: Any) -> float:
    """Thread CPU time of one decode step, prefill left out, within a batch that the agent knows of."""
    import torch

    from chaos_mm.core import serving
    from chaos_mm.target.generation import decode

    with torch.inference_mode(), serving.running(["someone"] * len(inputs)):
        steps = decode(model, inputs, STEPS + 1)
        next(steps)
        begin = time.thread_time()
        for _ in steps:
            pass
        return (time.thread_time() - begin) / STEPS


def compare(model: Any, inputs: Any, on: Callable[[], None], off: Callable[[], None]) -> tuple[float, list[float]]:
    """(seconds a step without, percent more with it, pair by pair); the order within a pair alternates."""
    plain: list[float] = []
    more: list[float] = []
    for pair in range(PAIRS):
        found: dict[bool, float] = {}
        for hooked in ((True, False), (False, True))[pair % 2]:
            (on if hooked else off)()
            found[hooked] = min(seconds_per_step(model, inputs) for _ in range(3))
        plain.append(found[False])
        more.append(100 * (found[True] / found[False] - 1))
    return statistics.median(plain), more


def announce(agent: Any, model: Any) -> None:
    """Hook the model, and wait until the agent's own canaries, which arm the page, have gone through it."""
    from chaos_mm.core import serving

    serving.announce_model(model)
    mirror = agent.point.mirror
    while any(mirror.proofs.reason(seam) is None for seam in mirror.adapter.seams):
        time.sleep(0.01)


def interval(values: list[float]) -> tuple[float, float, float]:
    """Median and its 95 % interval by order statistics."""
    ordered, n = sorted(values), len(values)
    half = 1.96 * n**0.5 / 2
    low, high = max(0, round(n / 2 - half) - 1), min(n - 1, round(n / 2 + half))
    return statistics.median(ordered), ordered[low], ordered[high]


def hooks_alone(agent: Any, model: Any) -> float:
    """Seconds a step that the disarmed hooks take by themselves: the decoder's, and one wrapper a layer."""
    import torch

    from chaos_mm.core import serving

    module = model.language_model.model
    hook = next(iter(module._forward_pre_hooks.values()))
    wrapper = agent.engine.attention._wrapped(lambda *args, **kwargs: None)
    given = {"input_ids": torch.zeros((1, 1), dtype=torch.long), "attention_mask": None}
    layer = module.layers[0].self_attn

    def best(call: Callable[[], Any]) -> float:
        return min(timeit.repeat(call, number=1000, repeat=50)) / 1000

    with serving.running(["someone"]):
        whole = best(lambda: hook(module, (), given)) + len(module.layers) * best(lambda: wrapper(layer, 1, 2, 3))
    empty = best(lambda: None)
    return whole - (1 + len(module.layers)) * empty


def empty_hook(model: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """What puts a hook that does nothing on the decoder, and what takes it out: torch's own price for one."""
    handles: list[Any] = []

    def off() -> None:
        while handles:
            handles.pop().remove()

    def on() -> None:
        off()
        handles.append(model.language_model.model.register_forward_pre_hook(lambda *_: None, with_kwargs=True))

    return on, off


def main() -> int:
    """Measure and print; 1 where the disarmed cost is above the limit."""
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder)
        import torch

        from chaos_mm.agent import attach
        from chaos_mm.core import serving
        from chaos_mm.target import model as shipped
        from chaos_mm.target import tokens
        from chaos_mm.target.generation import ModelInput

        torch.set_num_threads(1)
        model = shipped.load()
        inputs = [ModelInput(tokens.prompt_ids(tokens.text_ids("repeat the code 1234"), False, False))] * BATCH
        agent = attach()
        step, more = compare(model, inputs, lambda: announce(agent, model), lambda: serving.withdraw_model(model))
        announce(agent, model)
        median, low, high = interval(more)
        print(f"decode step of the demo target, batch {BATCH}, unhooked: {1e6 * step:.0f} us of thread CPU time")
        print(f"hooked, disarmed: {median:+.2f} % [{low:+.2f}, {high:+.2f}], {PAIRS} pairs of {STEPS} steps")
        alone = hooks_alone(agent, model)
        print(f"the hooks alone: {1e6 * alone:.2f} us a step, {100 * alone / step:.3f} % of it")
        serving.withdraw_model(model)
        median_empty, low_empty, high_empty = interval(compare(model, inputs, *empty_hook(model))[1])
        print(f"an empty hook in the decoder's place: {median_empty:+.2f} % [{low_empty:+.2f}, {high_empty:+.2f}]")
        announce(agent, model)
        board = agent.runtime.page
        _, armed = compare(model, inputs, lambda: board.probe(time.monotonic_ns() + 10**11), lambda: board.probe(0))
        median_armed, low_armed, high_armed = interval(armed)
        print(f"hooked, gate open, nobody selected: {median_armed:+.2f} % [{low_armed:+.2f}, {high_armed:+.2f}]")
        agent.close()
    return int(low > LIMIT_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
