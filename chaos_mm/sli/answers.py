"""Did the answer say what was asked? Exact comparison after one documented normalisation, and how near a miss was.

Normalisation (``normalise``), by kind of question:

* a code (image, audio, text): compatibility forms folded (NFKC, so full-width digits count), lower case; digits and the
  words zero … nine stand for digits, "oh" and "o" for 0 beside other digits; in speech answers also what a recogniser
  writes for a digit it heard ("to", "too", "for", "fore", "won", "ate", "tree"). Punctuation and spaces between digits
  do not count. A sentence around it does not count either: one run of exactly four digits is the code; without one,
  all digits of the answer, in order. A line end and a full stop end a run; what stands in <think> … </think> is left
  out.
* colour: the one colour word in the answer ("violet" is purple); several different ones are no answer.
* agreement: the one of "yes" and "no" in the answer; both are no answer. A "no" before a noun ("no audio was provided",
  "I have no idea") denies something else.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby

CODE_KINDS = frozenset({"image", "audio", "text"})
COLOURS = ("red", "green", "blue", "yellow", "purple", "white", "black")
CODE_DIGITS = 4
MAX_COMPARED = 64  # characters of an answer that similarity looks at; bounds the quadratic cost of a runaway answer

_DIGIT_WORDS = {
    word: str(digit)
    for digit, word in enumerate(("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"))
}
_WITHIN_A_RUN = {"oh": "0", "o": "0"}
_HEARD = {"to": "2", "too": "2", "for": "4", "fore": "4", "won": "1", "ate": "8", "tree": "3"}
_STOP = "\n"  # stands for the end of a line or sentence among the words
_TOKEN = re.compile(r"[a-z]+|[0-9]+|\n|[.!?;]+(?=\s|$)")
_THINKING = re.compile(r"<think>.*?</think>", re.DOTALL)
_YES_OR_NO = re.compile(r"\b(?:yes|no(?!\s+(?!(?:they|it|the|these|this|and)\b)\w))\b")


def normalise(kind: str, answer: str) -> str:
    """The comparable core of an answer: digits, a colour word, "yes" or "no"; "" when the answer holds none.

    Another ``kind`` gives the answer's words.
    """
    text = _plain(answer)
    if kind == "agreement":
        return _only(iter(_YES_OR_NO.findall(text)))
    words = _words(text)
    if kind in CODE_KINDS:
        return _code(words, spoken=kind == "audio")
    if kind == "colour":
        return _only("purple" if word == "violet" else word for word in words if word in (*COLOURS, "violet"))
    return " ".join(word for word in words if word != _STOP)


def codes_said(kind: str, answer: str) -> set[str]:
    """Every code in an answer: its runs of four digits, and its normal form should that be a code."""
    runs = {*_runs(_words(_plain(answer)), spoken=kind == "audio"), normalise(kind, answer)}
    return {run for run in runs if len(run) == CODE_DIGITS and run.isdigit()}


def exact(kind: str, expected: str, answer: str) -> bool:
    """True when the answer says ``expected``; an empty expectation is never met."""
    wanted = normalise(kind, expected)
    return bool(wanted) and normalise(kind, answer) == wanted


def digit_errors(kind: str, expected: str, answer: str) -> tuple[int, int]:
    """(wrong digits, asked digits) of a code: substitutions, insertions and deletions as word error rate counts them.

    Word error rate = (S + D + I) / N with each digit a word (Levenshtein 1966; NIST scoring). May exceed N.
    """
    wanted = normalise(kind, expected)
    return edit_distance(wanted, normalise(kind, answer)[:MAX_COMPARED]), len(wanted)


def similarity(kind: str, expected: str, answer: str) -> float:
    """1 - edit distance / longer length, in 0 … 1, over the normalised forms.

    Over the words where ``expected`` has no normalised form: a model that cannot read codes is held against its own
    earlier sentence (``canary_reference`` baseline).
    """
    kind = kind if normalise(kind, expected) else ""
    wanted, given = normalise(kind, expected)[:MAX_COMPARED], normalise(kind, answer)[:MAX_COMPARED]
    longest = max(len(wanted), len(given))
    return 1.0 - edit_distance(wanted, given) / longest if longest else 1.0


def edit_distance(a: Sequence[str], b: Sequence[str]) -> int:
    """Levenshtein distance with unit costs; two rows, O(len(a) · len(b))."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        above, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (left != right))
    return row[-1]


def _plain(answer: str) -> str:
    return _THINKING.sub(" ", unicodedata.normalize("NFKC", answer).lower())


def _words(text: str) -> list[str]:
    found = _TOKEN.findall(text)
    return [word if word[0].isalnum() else _STOP for word in found]


def _code(words: Sequence[str], *, spoken: bool) -> str:
    runs = {run for run in _runs(words, spoken=spoken) if len(run) == CODE_DIGITS}
    if len(runs) == 1:
        return runs.pop()
    return "".join(word if word.isdigit() else _DIGIT_WORDS.get(word, "") for word in words)


def _runs(words: Sequence[str], *, spoken: bool) -> Iterator[str]:
    """The digits of each maximal stretch of words that all stand for digits."""
    meaning = _DIGIT_WORDS | _WITHIN_A_RUN | (_HEARD if spoken else {})
    digits = (word if word.isdigit() else meaning.get(word, "") for word in words)
    for is_digit, stretch in groupby(digits, bool):
        if is_digit:
            yield "".join(stretch)


def _only(found: Iterator[str]) -> str:
    distinct = set(found)
    return distinct.pop() if len(distinct) == 1 else ""
