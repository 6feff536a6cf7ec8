"""How the toolkit was asked to play the file: its command line, where there is one, and what of it we refuse."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos_mm.controls.facts import Reason

__all__ = ["CommandLine", "make_way"]

_HARMLESS_DRY = ("actions", "activities")


@dataclass(frozen=True)
class CommandLine:
    """What is in force: ``source`` and ``journal_path`` are "" where no command line gave them; ``dry`` "" for none."""

    source: str = ""
    journal_path: str = ""
    dry: str = ""
    rollbacks: str = "default"
    hypothesis: str = "default"

    @classmethod
    def read(cls, experiment: Mapping[str, Any]) -> "CommandLine":
        """As the toolkit sees it: its options come before the file's ``runtime``, that before its settings file."""
        import click

        context = click.get_current_context(silent=True)
        given: Mapping[str, Any] = context.params if context is not None else {}
        return cls(
            source=_one(given.get("source")),
            journal_path=str(given.get("journal_path") or ""),
            dry=dry_word(experiment.get("dry")),
            rollbacks=str(given.get("rollback_strategy") or _in_file(experiment, "rollbacks")),
            hypothesis=str(given.get("hypothesis_strategy") or _in_file(experiment, "hypothesis")),
        )

    @property
    def stem(self) -> str:
        """The experiment file's name without folder and suffix."""
        return self.source.rsplit("/", 1)[-1].rsplit(".", 1)[0]

    def refusals(self) -> Iterator[Reason]:
        """What may not be asked of an experiment of ours."""
        if self.rollbacks != "always":
            yield _refused(
                f"rollbacks would be played by the strategy {self.rollbacks!r}; an experiment of ours pins "
                "runtime.rollbacks.strategy: always, and the command line leaves it so"
            )
        if self.hypothesis != "default":
            yield _refused(
                f"the hypothesis strategy is {self.hypothesis!r}; only 'default' is taken: the verdict control samples "
                "every objective itself, and the toolkit's continuous strategy holds up a stop"
            )
        if self.dry and self.dry not in _HARMLESS_DRY:
            yield _refused(f"--dry {self.dry} would inject and watch nothing; use --dry actions or --dry activities")


def dry_word(dry: Any) -> str:
    """The word of the toolkit's ``Dry``, which is an enumeration, a text, or None."""
    return str(getattr(dry, "value", dry) or "")


def make_way(journal: str, run_id: str) -> None:
    """See that the toolkit will be able to write its journal, and move that of an earlier run away, to
    ``<journal>.previous``: were this run killed, the old one would be taken for its own.

    Leaves no file behind. Raises OSError.
    """
    path = Path(journal)
    if path.exists() and not path.is_file():
        with path.open("a"):  # a device or a pipe is fine, a folder is not
            return
    probe = path.with_name(f".{path.name}.{run_id}")
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    probe.unlink()
    if path.exists():
        path.replace(path.with_name(f"{path.name}.previous"))


def _refused(reason: str) -> Reason:
    return Reason("error", reason)


def _one(source: Any) -> str:
    if isinstance(source, (list, tuple)):
        return str(source[0]) if source else ""
    return str(source or "")


def _in_file(experiment: Mapping[str, Any], part: str) -> str:
    from chaoslib.settings import get_loaded_settings

    # Any runtime block in the file resets what it does not name to the default, whatever the settings say.
    runtime = experiment.get("runtime") or (get_loaded_settings() or {}).get("runtime") or {}
    return str((runtime.get(part) or {}).get("strategy") or "default")
