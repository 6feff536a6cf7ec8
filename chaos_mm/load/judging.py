"""Judges answers as they come: right, wrong, or somebody else's."""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from chaos_mm.load.canaries import Canary
from chaos_mm.load.codes import NEIGHBOURS
from chaos_mm.sli.answers import codes_said, exact

MAX_REFERENCES = 4096
REFERENCES = ("code", "baseline")


@dataclass(frozen=True, slots=True)
class Verdict:
    """``expected`` is what the answer was held against, "" when there was nothing yet; then ``exact`` is None."""

    expected: str
    exact: bool | None
    leak: bool = False


class Judge(Protocol):
    """Told of every request as it goes out and, once, as it ends."""

    def asked(self, request_id: str, canary: Canary, index: int, baseline: str) -> str:
        """A request goes out; ``baseline`` names the run in whose baseline phase it is due, "" otherwise.

        Returns what the answer will be held against, as far as that is known: ``Verdict.expected``.
        """

    def judge(self, request_id: str, canary: Canary, answer: str, *, ok: bool) -> Verdict:
        """A request has ended; what fell short of an answer is never right."""


class CodeJudge:
    """canary_reference ``code``: the right answer is known from the start.

    A leak is an answer that holds the code of another request: one in flight, or one of the last few. Codes of
    neighbours differ in three digits or more (``codes``), so a misread code is hardly ever one.
    """

    def __init__(self) -> None:
        self._open: dict[str, str] = {}
        self._recent: deque[tuple[str, str]] = deque(maxlen=NEIGHBOURS + 1)

    def asked(self, request_id: str, canary: Canary, index: int, baseline: str) -> str:
        """See Judge."""
        self._open[request_id] = canary.code
        self._recent.append((request_id, canary.code))
        return canary.expected

    def judge(self, request_id: str, canary: Canary, answer: str, *, ok: bool) -> Verdict:
        """See Judge."""
        self._open.pop(request_id, None)
        right = ok and exact(canary.kind, canary.expected, answer)
        said = codes_said("audio" if canary.kind == "audio" else "text", answer)
        others = {*self._open.values(), *(code for key, code in self._recent if key != request_id)}
        return Verdict(canary.expected, right, leak=bool(others & (said - {canary.code})))


class BaselineJudge:
    """canary_reference ``baseline``: each canary of a fixed set is held against its own clean answer of the baseline.

    For models that cannot read codes. The first whole answer in a run's baseline phase becomes the reference; the next
    run starts over. Without a reference nothing is judged. Leaks cannot be told apart from wrong answers here.
    """

    def __init__(self) -> None:
        self._run = ""
        self._references: dict[tuple[str, int], str] = {}
        self._open: dict[str, tuple[tuple[str, int], bool]] = {}

    def asked(self, request_id: str, canary: Canary, index: int, baseline: str) -> str:
        """See Judge."""
        if baseline and baseline != self._run:
            self._run = baseline
            self._references.clear()
        key = (canary.kind, index)
        self._open[request_id] = (key, bool(baseline))
        return self._references.get(key, "")

    def judge(self, request_id: str, canary: Canary, answer: str, *, ok: bool) -> Verdict:
        """See Judge."""
        key, clean = self._open.pop(request_id)
        said = " ".join(answer.split())
        if clean and ok and said and len(self._references) < MAX_REFERENCES:
            self._references.setdefault(key, said)
        reference = self._references.get(key, "")
        if not ok:
            return Verdict(reference, False)
        return Verdict(reference, said == reference if reference else None)


def make_judge(reference: str) -> Judge:
    """The judge for a ``canary_reference``."""
    return BaselineJudge() if reference == "baseline" else CodeJudge()
