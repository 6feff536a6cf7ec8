"""The demo model's words: a WordLevel tokenizer (one token a word or digit), its special tokens, its making."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from chaos_mm.target import questions

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ASSETS = Path(__file__).parent / "assets"
TOKENIZER_FILE = ASSETS / "tokenizer.json"

SPECIAL = ("<pad>", "<bos>", "<eos>", "<ans>", "<img>", "<aud>", "<unk>")
PAD, BOS, EOS, ANS, IMG, AUD, UNK = range(len(SPECIAL))
DIGIT_ZERO = len(SPECIAL)
IMAGE_TOKENS = AUDIO_TOKENS = 6


def vocabulary() -> list[str]:
    """Every word by id: specials, digits, answers, then the words of the questions and of the padding, sorted."""
    answers = [*questions.COLOURS, "yes", "no", questions.UNKNOWN]
    texts = [text for wordings in questions.QUESTIONS.values() for text in wordings] + list(questions.PADDING)
    words = {word for text in texts for word in text.split()} | questions.KEY_WORDS
    return [*SPECIAL, *"0123456789", *answers, *sorted(words - {"{}"} - set(answers))]


def build_tokenizer() -> "Tokenizer":
    """The tokenizer: NFKC, lower case, punctuation is space, every digit its own token, other words ``<unk>``.

    The special tokens are plain words of the vocabulary that no text can spell ("<" is punctuation), so a
    prompt cannot smuggle in a placeholder.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary())}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(r"[^\p{L}\p{M}\p{N}\s]"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(individual_digits=True)]
    )
    return tokenizer


@cache
def tokenizer() -> "Tokenizer":
    """The shipped tokenizer, read once from assets/tokenizer.json."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(TOKENIZER_FILE))


def text_ids(text: str) -> list[int]:
    """Token ids of a text, without any special token but ``<unk>``."""
    return list(tokenizer().encode(text, add_special_tokens=False).ids)


def prompt_ids(text: Sequence[int], has_image: bool, has_audio: bool) -> list[int]:
    """``<bos>``, six placeholders a medium present, the text, ``<ans>``."""
    return [BOS, *[IMG] * IMAGE_TOKENS * has_image, *[AUD] * AUDIO_TOKENS * has_audio, *text, ANS]


def answer_text(ids: Sequence[int]) -> str:
    """The answer's words joined by spaces, digits joined without: ``4072``, ``red``, ``unknown``."""
    text = ""
    for token in ids:
        text += delta_text(token, text)
    return text


def delta_text(token: int, before: str) -> str:
    """What ``token`` adds to the answer ``before``: a space first, unless it starts the answer or continues a number.

    Special tokens add nothing.
    """
    if token < len(SPECIAL):
        return ""
    word = vocabulary_words()[token]
    joined = not before or (word.isdigit() and before[-1].isdigit())
    return word if joined else f" {word}"


@cache
def vocabulary_words() -> tuple[str, ...]:
    """Every word of the shipped tokenizer by id."""
    words = tokenizer().get_vocab()
    return tuple(sorted(words, key=words.__getitem__))
