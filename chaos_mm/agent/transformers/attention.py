"""The decoder's attention calls: a wrapper around the very function that the model's code looks up for each call.

The library looks an implementation up by name in a table at every call, and calls its module's own function where the
name is ``eager``. The wrapper stands in that table, or in that module; it asks the gate first, then whether the
calling module is one of the decoder's layers, so the vision tower, which shares the table, pays for the gate alone.
"""

import sys
from collections.abc import Callable
from typing import Any, Protocol

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.measuring import Measures
from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.transformers.mishaps import Mishaps
from chaos_mm.agent.transformers.roles import Decoder
from chaos_mm.agent.transformers.steps import Row, Step
from chaos_mm.core.errors import NotInjectable
from chaos_mm.core.fault import Seam

__all__ = ["AttentionSeam", "implementation", "lookup_problem"]
_EAGER = "eager_attention_forward"
_TABLE = "ALL_ATTENTION_FUNCTIONS"


class Watcher(Protocol):
    """What else happens at a call while the gate is open."""

    def before_call(self, step: Step, layer: int) -> None:
        """Before it is launched; may raise what an engine's allocation would."""


def implementation(module: Any) -> str:
    """The name by which an attention module looks its function up, such as ``sdpa``."""
    return str(getattr(getattr(module, "config", None), "_attn_implementation", None))


def lookup_problem(decoder: Decoder) -> str:
    """Why the calls of these layers cannot be met, by name; empty when they can."""
    for module in decoder.attention:
        name, code = implementation(module), sys.modules.get(type(module).__module__)
        table = getattr(code, _TABLE, None)
        if table is None:
            return f"{type(module).__name__} does not look its attention up in the library's table"
        if name == "eager":
            if not callable(getattr(code, _EAGER, None)):
                return f"{type(module).__name__} has no function {_EAGER} of its own for the implementation 'eager'"
        elif name not in table:
            return f"the attention implementation {name!r} is not in the library's table"
    return ""


class Call:
    """``AttentionCall`` of one request in one call. What several requests wait for together is waited for once."""

    batch_wide = True
    survives_raise = True

    def __init__(
        self, armed: Armed, module: Any, layer: int, layers: int, row: Row, step: Step, waits: list[float]
    ) -> None:
        config = module.config
        self.layer, self.layers, self.output_index = layer, layers, step.index
        self.heads = int(config.num_attention_heads)
        self.head_dim = int(getattr(module, "head_dim", None) or config.hidden_size // self.heads)
        self.backend, self.requests = implementation(module), (row.id,)
        self.state = armed.state
        self.changes: list[Callable[[Any], Any]] = []
        self._armed, self._waits, self._asked = armed, waits, 0

    def sleep(self, seconds: float) -> float:
        """Hold the call up; where another request of the batch was struck first, the same wait is both's."""
        if self._asked == len(self._waits):
            self._waits.append(self._armed.wait(seconds))
        self._asked += 1
        return self._waits[self._asked - 1]

    def edit_output(self, change: Callable[[Any], Any]) -> None:
        """Let ``change`` at this request's rows of the output, (tokens, heads, head_dim), after the call."""
        self.changes.append(change)


class AttentionSeam:
    """Puts the wrappers in and takes them out; ``step()`` gives the calling thread's generation."""

    def __init__(
        self, runtime: Runtime, step: Callable[[], Step], watcher: Watcher, measures: Measures, mishaps: Mishaps
    ) -> None:
        self._runtime, self._step, self._watcher, self._measures = runtime, step, watcher, measures
        self._door = mishaps.door("an attention call", Seam.ATTENTION, Seam.ENGINE_MEMORY)
        self._layers: dict[Any, tuple[int, int, str]] = {}
        self._undo: dict[tuple[str, str], Callable[[], None]] = {}

    @property
    def count(self) -> int:
        """Wrappers that stand now."""
        return len(self._undo)

    def install(self, decoder: Decoder) -> None:
        """Meet the calls of these layers from now on. Raises NotInjectable where they cannot be met."""
        problem = lookup_problem(decoder)
        if problem:
            raise NotInjectable(problem)
        for index, module in enumerate(decoder.attention):
            self._layers[module] = (index, len(decoder.attention), decoder.path)
        self.follow(decoder)

    def follow(self, decoder: Decoder) -> None:
        """Wrap what the layers use now: an implementation may be changed while the model is loaded."""
        module = decoder.attention[0]
        code, name = type(module).__module__, implementation(module)
        if (code, name) in self._undo:
            return
        if name == "eager":
            self._undo[code, name] = self._replace_function(sys.modules[code])
        else:
            self._undo[code, name] = self._replace_entry(getattr(sys.modules[code], _TABLE), name)

    def forget(self, decoder: Decoder) -> None:
        """These layers are of no interest any more; the wrappers go with the last of them."""
        for module in decoder.attention:
            self._layers.pop(module, None)
        if not self._layers:
            self.remove()

    def remove(self) -> None:
        """Take every wrapper out."""
        while self._undo:
            self._undo.popitem()[1]()
        self._layers.clear()

    def _replace_function(self, code: Any) -> Callable[[], None]:
        real = getattr(code, _EAGER)
        wrapper = self._wrapped(real)
        setattr(code, _EAGER, wrapper)
        return lambda: setattr(code, _EAGER, real) if getattr(code, _EAGER) is wrapper else None

    def _replace_entry(self, table: Any, name: str) -> Callable[[], None]:
        mapping = table._local_mapping
        before, wrapper = mapping.get(name), self._wrapped(table[name])
        mapping[name] = wrapper

        def undo() -> None:
            if mapping.get(name) is not wrapper:
                return  # somebody has put another one over ours, and keeps ours alive, disarmed
            del mapping[name]
            if before is not None:
                mapping[name] = before

        return undo

    def _wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        runtime, gate = self._runtime, self._runtime.gate
        layers, looks = self._layers, self._measures.wants("attention")

        def attention(module: Any, *args: Any, **kwargs: Any) -> Any:
            if not (gate[0] or looks) or module not in layers:
                return real(module, *args, **kwargs)
            if looks:
                with self._door:
                    self._observe(layers[module][0], args, kwargs)
            calls = self._before(module) if runtime.armed() else []
            output = real(module, *args, **kwargs)
            return self._edited(output, calls) if calls else output

        attention.__wrapped__ = real  # type: ignore[attr-defined]
        return attention

    def _before(self, module: Any) -> list[tuple[Armed, Row, Call]]:
        """Everything before the call; which outputs are to be changed after it."""
        calls: list[tuple[Armed, Row, Call]] = []
        with self._door:
            self._strike(module, calls)
        return calls

    def _strike(self, module: Any, calls: list[tuple[Armed, Row, Call]]) -> None:
        layer, layers, path = self._layers[module]
        step, runtime = self._step(), self._runtime
        runtime.fired(Seam.ATTENTION)
        self._watcher.before_call(step, layer)
        for armed in runtime.leases(Seam.ATTENTION):
            waits: list[float] = []
            for row in step.rows():
                if armed.chosen(row.info):
                    call = Call(armed, module, layer, layers, row, step, waits)
                    armed.strike(call, row.id, f"{step.index} {layer}", f"{path}.layers.{layer}")
                    if call.changes and armed.chosen(row.info):  # not so where the fault failed after asking for one
                        calls.append((armed, row, call))

    def _edited(self, output: Any, calls: list[tuple[Armed, Row, Call]]) -> Any:
        with self._door:
            return _edited(output, calls, self._step())
        return output

    def _observe(self, layer: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Show the measures what canaries' prompts bring: queries and keys (heads, tokens, dim) beside the padding."""
        step = self._step()
        if step.index != 0 or len(args) < 2:
            return
        query, key = args[0].detach(), args[1].detach()
        for row in step.rows():
            if self._runtime.identify(row.id).canary:
                start = step.start(row.number)
                mine, kept = query[row.number, :, start:], key[row.number, :, start:]
                self._measures.observe_attention(mine, kept, layer, scale=kwargs.get("scaling"))


def _edited(output: Any, calls: list[tuple[Armed, Row, Call]], step: Step) -> Any:
    """The output (batch, tokens, heads, head_dim), its victims' rows changed; everybody else's are the very same bits.

    Beside the padding a row's tokens are all of a prompt, and one in later steps. A row whose change fails stays.
    """
    first = output[0] if isinstance(output, tuple) else output
    made = first.clone()
    for armed, row, call in calls:
        padding = max(0, step.start(row.number)) if step.index == 0 else 0
        rows = made[row.number, padding:]
        before = rows.clone()
        try:
            _change(rows, call.changes)
        except Exception as error:  # the fault's own change may raise anything: it must not become the engine's error
            rows.copy_(before)
            armed.broke(row.id, error)
    return (made, *output[1:]) if isinstance(output, tuple) else made


def _change(rows: Any, changes: list[Callable[[Any], Any]]) -> None:
    for change in changes:
        new = change(rows)
        if new is not None:
            rows.copy_(new)
