"""A prompt that arrives cut."""

from typing import Annotated, Any, Literal

from chaos_mm.core.fault import Outcome, Param, Target, fault
from chaos_mm.core.rng import Rng
from chaos_mm.core.tokenize import PLACEHOLDER, is_boundary, prose
from chaos_mm.core.tokenize import tokenizer as named_tokenizer


def _known_here(tokenizer: str, **_: Any) -> None:
    named_tokenizer(tokenizer)


@fault(
    Target.TEXT,
    dose="share",
    presets={1: {"share": 0.05}, 2: {"share": 0.15}, 3: {"share": 0.3}, 4: {"share": 0.5}, 5: {"share": 0.7}},
    known_here=_known_here,
)
def text_token_truncation(
    text: str,
    rng: Rng,
    *,
    share: Annotated[float, Param("tokens to cut, of all in the text", ge=0, le=1)] = 0.15,
    side: Annotated[Literal["head", "tail", "both"], Param("which end is cut; both halves the share")] = "tail",
    tokenizer: Annotated[str, Param("whose tokens: words, characters, or a name registered at the point")] = "words",
) -> str | Outcome:
    """Cut tokens off the head, the tail or both ends, as a full context window or a careless middleware does.

    The number cut is share times the tokens there are, rounded half up; ``both`` takes the smaller half from the head.
    What stays is a slice of the source, character for character, never cut within a grapheme (as UAX #29 has it).
    A media placeholder (``<image>``, ``<|image_pad|>``, ``<|vision_start|>``, ``<image_1>``, ``[IMG]`` and their like
    for audio and video) is no token: it is neither counted nor cut, and one in the part cut off stays, in order, since
    losing a picture is another fault. ``words`` are runs of letters and digits with the punctuation and space that
    follow them, one ideograph or kana being a word.

    Reports ``tokens_cut`` and ``tokens_kept``. Raises InvalidParams for a tokenizer the point does not have.
    """
    spans_of = named_tokenizer(tokenizer)
    starts = [left + start for left, right in prose(text) for start, _ in spans_of(text[left:right])]
    cut = int(share * len(starts) + 0.5)
    if cut == 0:
        return text
    head = {"head": cut, "tail": 0, "both": cut // 2}[side]
    start, stop = _kept(text, starts, head, cut - head)
    kept = "".join([*PLACEHOLDER.findall(text[:start]), text[start:stop], *PLACEHOLDER.findall(text[stop:])])
    if kept == text:
        return text  # the tokens to cut were parts of one grapheme
    return Outcome(kept, {"tokens_cut": float(cut), "tokens_kept": float(len(starts) - cut)})


def _kept(text: str, starts: list[int], head: int, tail: int) -> tuple[int, int]:
    """Where the slice that stays begins and ends; within a grapheme both ends move outwards, to keep it whole."""
    if head + tail == len(starts):
        return len(text), len(text)
    start = starts[head] if head else 0
    stop = starts[len(starts) - tail] if tail else len(text)
    edges = {edge for span in prose(text) for edge in span}
    while start not in edges and not is_boundary(text, start):
        start -= 1
    while stop not in edges and not is_boundary(text, stop):
        stop += 1
    return start, stop
