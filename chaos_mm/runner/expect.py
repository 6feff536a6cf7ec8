"""The word each run of a game day is to end with, and the exit status that comes of it."""

from collections.abc import Sequence

from chaos_mm.report.words import EXIT_CODES, WORDS, highest
from chaos_mm.runner.planned import Ended

__all__ = ["exit_status", "words_for"]


def words_for(given: Sequence[str], sources: int) -> list[str]:
    """A word for each source, "" where the file's own holds. Raises ValueError for what is no word, or for a number of
    words that is neither one nor that of the sources."""
    for word in given:
        if word not in WORDS:
            raise ValueError(f"{word!r} is no verdict; a run ends with one of {', '.join(reversed(WORDS))}")
    if len(given) not in (0, 1, sources):
        raise ValueError(f"given {len(given)} times for {sources} sources; give it once for all or once for each")
    return [given[0]] * sources if len(given) == 1 else list(given) or [""] * sources


def exit_status(ended: Sequence[Ended], planned: int) -> int:
    """0 when every planned run ended with the word it was to end with, else the highest status of those that did not
    (at least 1); a list that was stopped counts as interrupted."""
    stopped = [EXIT_CODES["interrupted"]] if len(ended) < planned else []
    return highest([*stopped, *(max(1, one.exit_code) for one in ended if not one.as_expected)])
