"""``--var`` on the command line: the toolkit drops a name that no configuration has, and runs as if it had not come."""

import difflib
from collections.abc import Iterable, Iterator, Sequence

from chaos_mm.runner.sources import Source

__all__ = ["unknown"]


def unknown(names: Iterable[str], sources: Sequence[Source]) -> list[str]:
    """A sentence for each name that none of the sources has in its configuration.

    Nothing is said where none of them is ours, or where one must be fetched first.
    """
    if not any(one.ours for one in sources) or any(one.experiment is None for one in sources):
        return []
    known = sorted({key for one in sources for key in _keys(one)})
    wrong = [name for name in names if name not in known]
    return [f"--var {name}: no configuration has that name, so nothing was run; {_hint(name, known)}" for name in wrong]


def _keys(source: Source) -> Iterator[str]:
    configuration = (source.experiment or {}).get("configuration")
    yield from map(str, configuration if isinstance(configuration, dict) else ())


def _hint(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else f"there are: {', '.join(known) or 'none'}"
