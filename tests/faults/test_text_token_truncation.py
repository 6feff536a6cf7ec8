"""text_token_truncation against the tokenizers library, the regex library's graphemes and counting by hand."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos_mm.core import tokenize
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.fault import Outcome, Point
from chaos_mm.core.lease_book import LeaseBook
from chaos_mm.core.rng import Rng
from chaos_mm.faults.text_token_truncation import text_token_truncation
from tests.contract.samples import value_of

SIDES = ("head", "tail", "both")
MARKS = ["<image>", "<|image_pad|>", "<|vision_start|>", "<|vision_end|>", "<audio>", "<video>", "[IMG]", "<image_1>"]
_numbers = itertools.count()


def _cut(text: str, share: float, side: str = "tail", tokenizer: str = "words") -> Any:
    rng = Rng.derive(1, "r", "0", "text_token_truncation")
    return text_token_truncation(text, rng, share=share, side=side, tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("share", "side", "kept"),
    [
        (0.3, "tail", "one two, three  four. five six seven"),
        (0.3, "head", "four. five six seven eight nine ten!"),
        (0.3, "both", "two, three  four. five six seven eight"),
        (0.15, "tail", "one two, three  four. five six seven eight"),  # 1.5 tokens: rounded half up
        (0.04, "tail", "one two, three  four. five six seven eight nine ten!"),
        (1.0, "both", ""),
    ],
)
def test_the_share_is_cut_from_the_side_and_the_rest_is_verbatim(share: float, side: str, kept: str):
    text = "one two, three  four. five six seven eight nine ten!"
    assert value_of(_cut(text, share, side)).strip() == kept
    assert value_of(_cut(text, share, side)) in text


def test_evidence_counts_tokens():
    made = _cut("a b c d e f g h i j", 0.3)
    assert made.achieved == {"tokens_cut": 3, "tokens_kept": 7}


@pytest.mark.parametrize("text", ["", "   ", "<image>", "<image><|audio_pad|>"])
def test_without_tokens_to_cut_the_text_comes_back(text: str):
    made = _cut(text, 0.4)
    assert made is text


@pytest.mark.parametrize("side", SIDES)
def test_placeholders_stay_whole_and_in_order_at_every_share(side: str):
    text = "see " + " then ".join(f"{mark} word{n}" for n, mark in enumerate(MARKS)) + " end of it"
    for step in range(101):
        after = value_of(_cut(text, step / 100, side))
        assert tokenize.PLACEHOLDER.findall(after) == MARKS
    assert value_of(_cut(text, 1.0, side)) == "".join(MARKS)


@pytest.mark.parametrize("mark", [*MARKS, "<|AUDIO|>", "<start_of_image>", "<IMG_CONTEXT>", "[BEGIN_AUDIO]", "</img>"])
def test_marks_of_the_model_families_are_placeholders(mark: str):
    assert tokenize.prose(f"a{mark}b") == [(0, 1), (len(mark) + 1, len(mark) + 2)]


@pytest.mark.parametrize("word", ["<b>", "x < image > y", "[a]", "<imagine>", "<|im_start|>", "image", "a<b and c>d"])
def test_other_words_in_brackets_are_prose(word: str):
    assert tokenize.prose(word) == [(0, len(word))]


def test_hostile_text_costs_linear_time():
    for text in ("<image" * 20_000, "<" + "a_" * 50_000, "[img_" * 20_000, "<image" + "a" * 100_000):
        assert tokenize.prose(text)[-1][1] == len(text)  # quadratic or worse would run into the test's timeout


_texts = st.text(
    st.one_of(
        st.characters(exclude_categories=("Cs", "Cn", "Co")),
        st.sampled_from(
            "ab \u0301\u200d\u094d\u0915\u093f\u1100\u1161\u11a8\U0001f1e9\U0001f1ea\U0001f469\U0001f3fd\r\n"
        ),
    ),
    max_size=40,
)


@settings(max_examples=400, deadline=None)
@given(_texts)
def test_never_a_boundary_within_a_grapheme_of_the_regex_library(text: str):
    regex = pytest.importorskip("regex")
    edges = {match.end() for match in regex.finditer(r"\X", text)} | {0}
    assert {i for i in range(len(text) + 1) if tokenize.is_boundary(text, i)} <= edges
    spans = tokenize.tokenizer("characters")(text)
    assert "".join(text[a:b] for a, b in spans) == text
    assert [a for a, _ in spans] == [i for i in range(len(text)) if tokenize.is_boundary(text, i)]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.one_of(_texts, st.sampled_from(MARKS))).map("".join),
    st.floats(0, 1),
    st.sampled_from(SIDES),
    st.sampled_from(["words", "characters"]),
)
def test_any_text_keeps_a_slice_and_its_placeholders(text: str, share: float, side: str, tokenizer: str):
    made = _cut(text, share, side, tokenizer)
    after = value_of(made)
    marks = tokenize.PLACEHOLDER.findall(text)
    after.encode()
    assert isinstance(made, Outcome) or after is text
    kept = [after.removeprefix("".join(marks[:n])) for n in range(len(marks) + 1)]
    slices = [piece.removesuffix("".join(marks[n:])) for piece in kept for n in range(len(marks) + 1)]
    assert any(piece in text for piece in slices)
    assert len(tokenize.PLACEHOLDER.findall(after)) >= len(marks)


def test_words_tile_the_text_and_split_cjk_by_character():
    text = "Don't  stop: 図の, 42!"
    pieces = [text[a:b] for a, b in tokenize.tokenizer("words")(text)]
    assert pieces == ["Don't  ", "stop: ", "図", "の, ", "42!"]


def _registered(tmp_path: Path, made: Any) -> str:
    """A tokenizer file of the tokenizers library, registered as a point's --tokenizer option does."""
    name = f"test-{next(_numbers)}"
    made.save(str(tmp_path / "tokenizer.json"))
    tokenize.register_file(name, tmp_path / "tokenizer.json")
    return name


def _byte_level(corpus: list[str]) -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator(corpus, trainer)
    return made


PROMPT = "Read the four digits in the picture and say them one after the other, with nothing before or after them."


@pytest.mark.parametrize("share", [0.15, 0.3, 0.5])
def test_a_registered_tokenizer_loses_exactly_its_last_tokens(tmp_path: Path, share: float):
    library = _byte_level([PROMPT] * 3)
    made = _cut(PROMPT, share, "tail", _registered(tmp_path, library))
    ids = library.encode(PROMPT).ids
    cut = int(share * len(ids) + 0.5)
    assert made.achieved == {"tokens_cut": cut, "tokens_kept": len(ids) - cut}
    assert library.encode(made.value).ids == ids[: len(ids) - cut]


def test_a_byte_level_tokenizer_never_splits_a_character_or_grapheme(tmp_path: Path):
    regex = pytest.importorskip("regex")
    text = "\U0001f468\u200d\U0001f469\u200d\U0001f467 e\u0301 नमस्ते 図 \U0001f1e9\U0001f1ea " * 2
    name = _registered(tmp_path, _byte_level(["plain words only"]))
    edges = {match.end() for match in regex.finditer(r"\X", text)} | {0}
    for step, side in itertools.product(range(1, 100), SIDES):
        after = value_of(_cut(text, step / 100, side, name))
        at = text.index(after)
        assert any({i, i + len(after)} <= edges for i in range(at, len(text)) if text.startswith(after, i))


def test_a_cut_within_a_grapheme_moves_outwards_and_keeps_it_whole(tmp_path: Path):
    name = _registered(tmp_path, _byte_level(["plain words only"]))  # five tokens, then one for each of 18 bytes
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    text = f"{family}abcd {family}"
    assert _cut(text, 0.1, "tail", name) is text
    assert _cut(text, 0.1, "head", name) is text
    assert value_of(_cut(text, 0.43, "tail", name)) == f"{family}abcd "
    assert value_of(_cut(text, 0.43, "head", name)) == f"abcd {family}"


def test_truncation_and_padding_set_in_the_file_do_not_count(tmp_path: Path):
    library = _byte_level([PROMPT])
    library.enable_truncation(5)
    library.enable_padding(length=4096)
    made = _cut(PROMPT, 0.5, "tail", _registered(tmp_path, library))
    assert 0.3 * len(PROMPT) < len(made.value) < 0.7 * len(PROMPT)


@pytest.mark.parametrize("name", ["wrods", "/etc/passwd", "../secret.json", "tiktoken:nope", "tiktoken:../x", ""])
def test_an_unknown_tokenizer_is_refused_with_those_there_are(name: str):
    with pytest.raises(InvalidParams) as caught:
        _cut(PROMPT, 0.5, "tail", name)
    assert repr(name) in str(caught.value)
    assert "characters" in str(caught.value) and "words" in str(caught.value)


def test_the_point_refuses_a_lease_with_an_unknown_tokenizer():
    book = LeaseBook({"text_token_truncation": text_token_truncation}, point=Point.PROXY)
    body = {"owner": "run-a", "fault": "text_token_truncation", "params": {"tokenizer": "wrods"}}
    with pytest.raises(InvalidParams, match="text_token_truncation: tokenizer='wrods'"):
        book.put("cut", {**body, "ttl_seconds": 60, "keepalive_seconds": 10})
    assert not book.leases()


def test_tiktoken_is_offered_only_with_a_whole_file_in_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    (tmp_path / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4").write_bytes(b"IQ== 0\n")  # where cl100k_base would lie
    with pytest.raises(InvalidParams, match="tiktoken:cl100k_base"):
        tokenize.tokenizer("tiktoken:cl100k_base")
    assert not [name for name in tokenize.names() if name.startswith("tiktoken")]
    assert list(tmp_path.iterdir())  # tiktoken, which would have replaced it, was not asked


def test_registration_refuses_bad_names_taken_names_and_missing_files(tmp_path: Path):
    with pytest.raises(ValueError, match="not allowed"):
        tokenize.register("a b", list)
    with pytest.raises(ValueError, match="registered already"):
        tokenize.register("words", list)
    with pytest.raises(ValueError, match="there is no file"):
        tokenize.register_file("absent", tmp_path / "absent.json")
