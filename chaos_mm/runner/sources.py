"""Finding out about an experiment before it runs: is it there, has it activities of ours, and is our verdict on it?"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos_mm.core.errors import ChaosMMError

__all__ = ["VERDICT", "BadSource", "Source", "global_controls", "has_ours", "names_us", "read", "reruns"]

VERDICT = "chaos_mm.controls.verdict"
_OURS = "chaos_mm."
_CONTROLS = "chaos_mm.controls"
_SUFFIXES = (".json", ".yaml", ".yml")


class BadSource(ChaosMMError):
    """A source that cannot be run; the text names it."""


@dataclass(frozen=True)
class Source:
    """What is known of an experiment; ``experiment`` is None for one that must be fetched.

    ``ours``: it has activities of ours. ``judged``: our verdict control is on it. ``expect``: the word that control
    is told to expect, "" when none.
    """

    given: str
    experiment: Mapping[str, Any] | None
    ours: bool = False
    judged: bool = False
    expect: str = ""

    @property
    def fatal(self) -> bool:
        """Whether its tags say that it takes the service down; such a one comes after the others."""
        tags = (self.experiment or {}).get("tags")
        return isinstance(tags, list) and "fatal" in tags

    @property
    def refusal(self) -> str:
        """Why it must not run, in one sentence; "" when it may."""
        if not self.ours or self.judged:
            return ""
        return (
            f"{self.given} has activities of chaos_mm but not the control {VERDICT}, so nothing was run: name it under "
            "'controls' in the file, or give it with --control-file"
        )


def read(given: str, controls: Sequence[Mapping[str, Any]] = ()) -> Source:
    """Read a local file as the toolkit does; ``controls`` are those that every experiment gets.

    Raises BadSource when it is not there, cannot be parsed or is no object.
    """
    if given.startswith(("http://", "https://")):
        return Source(given, None)
    experiment = _parsed(Path(given))
    on_it = [one for one in [*_own_controls(experiment), *controls] if _is_verdict(one)]
    return Source(given, experiment, has_ours(experiment), bool(on_it), next(filter(None, map(_expect, on_it)), ""))


def global_controls(settings_path: str, control_files: Iterable[str]) -> list[Mapping[str, Any]]:
    """The controls of the settings file and of ``--control-file``. What cannot be read has none: the toolkit says so
    when it comes to it."""
    found = _values(_mapping_in(Path(settings_path)).get("controls"))
    for path in control_files:
        found += _values(_mapping_in(Path(path)))
    return found


def has_ours(experiment: Any) -> bool:
    """Whether any activity anywhere in it has a provider of ours; a control is no activity."""
    return any(
        str(module).startswith(_OURS) and not str(module).startswith(_CONTROLS) for module in _modules(experiment)
    )


def names_us(given: str) -> bool:
    """Whether a file that cannot be parsed was meant to have activities of ours."""
    try:
        return b'"chaos_mm.' in Path(given).read_bytes()
    except OSError:
        return False


def reruns(experiment: Any) -> bool:
    """Whether this process will hand the experiment to another Python (``runtime.python`` of newer toolkits), which
    then judges it and whose exit status is the run's."""
    try:
        from chaostoolkit import runtime
    except ImportError:
        return False
    try:
        return not runtime.in_runtime_child() and runtime.get_python_runtime_info(experiment) is not None
    except runtime.PythonRuntimeError:
        return False  # the toolkit refuses it itself


def _parsed(path: Path) -> Mapping[str, Any]:
    if path.is_dir():
        raise BadSource(f"{path} is a folder; name the files in it: {path}/*.json")
    if not path.is_file():
        raise BadSource(f"{path}: there is no such file")
    if path.suffix not in _SUFFIXES:
        raise BadSource(f"{path}: an experiment's name ends in {', '.join(_SUFFIXES)}")
    try:
        experiment = _load(path)
    except (OSError, ValueError, RecursionError) as error:
        raise BadSource(f"{path}: cannot be read: {error}") from None
    if not isinstance(experiment, Mapping):
        raise BadSource(f"{path}: holds {type(experiment).__name__}, not an object: it is no experiment")
    return experiment


def _load(path: Path) -> Any:
    """Raises OSError, ValueError."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return json.loads(text)
    import yaml  # settings files are YAML whatever they are called

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _mapping_in(path: Path) -> Mapping[str, Any]:
    try:
        found = _load(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, Mapping) else {}


def _values(controls: Any) -> list[Mapping[str, Any]]:
    return [one for one in controls.values() if isinstance(one, Mapping)] if isinstance(controls, Mapping) else []


def _own_controls(experiment: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = experiment.get("controls")
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _is_verdict(control: Mapping[str, Any]) -> bool:
    provider = control.get("provider")
    return (
        isinstance(provider, Mapping) and provider.get("module") == VERDICT and control.get("automatic", True) is True
    )


def _expect(control: Mapping[str, Any]) -> str:
    """What it is told to expect; what a variable says is known to the run alone."""
    arguments = control["provider"].get("arguments")
    word = arguments.get("expect") if isinstance(arguments, Mapping) else ""
    return word if isinstance(word, str) and "${" not in word else ""


def _modules(part: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """Each part of the file once: YAML may name one again, even within itself."""
    seen = set() if seen is None else seen
    if isinstance(part, (Mapping, list)):
        if id(part) in seen:
            return
        seen.add(id(part))
    if isinstance(part, Mapping):
        provider = part.get("provider")
        if isinstance(provider, Mapping):
            yield provider.get("module")
        for value in part.values():
            yield from _modules(value, seen)
    elif isinstance(part, list):
        for value in part:
            yield from _modules(value, seen)
