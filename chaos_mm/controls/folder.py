"""The folder of a run: everything that happened, on disk, without a secret in it.

    <reports_dir>/<UTC>-<experiment>-<6 hex of the run>/
        events.jsonl  records.jsonl  journal.json  verdict.json  samples/  index.html

Every file but the event log is written whole: to the side, then renamed. A disk that fills while a run goes on must not
cost it its verdict: some space is set aside from the beginning, under no name, so that it is free again after any end.
"""

import base64
import errno
import json
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaos_mm.controls.eventlog import EventLog
from chaos_mm.controls.strict import strict

if TYPE_CHECKING:
    from chaos_mm.controls.redact import Scrubber

__all__ = ["FOLDER_VARIABLE", "RUNNER_VARIABLE", "RunFolder"]

FOLDER_VARIABLE, RUNNER_VARIABLE = "CHAOS_MM_RUN_FOLDER", "CHAOS_MM_RUNNER"
_SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/webp": ".webp",
    "text/plain": ".txt",
    "audio/wav": ".wav",
}
_SPARE_BYTES = 128 << 10  # a verdict is some 20 KiB
_FULL = (errno.ENOSPC, errno.EDQUOT)
_MOST_SAMPLES, _MOST_SAMPLE_BYTES = 32, 1 << 20
_SAMPLE_FACTS = ("lease", "fault", "kind", "part", "request_id", "achieved", "axes")
_MEDIA = ("before", "after", "media_before", "media_after")


class RunFolder:
    """One run's folder and its event log. Folders are 0755 and files 0644 (less the umask): a report is to be shown."""

    def __init__(self, path: Path, events: EventLog, scrub: "Scrubber") -> None:
        self.path, self.events, self._scrub = path, events, scrub
        self._spare = _set_aside(self, path)

    @classmethod
    def make(
        cls,
        reports_dir: Path,
        experiment: str,
        run_id: str,
        scrub: "Scrubber",
        environment: Mapping[str, str] = os.environ,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> "RunFolder":
        """Make it, with an empty event log in it: it can be written to. Raises OSError when it cannot.

        Where our own runner started this process it has made the folder already (CHAOS_MM_RUN_FOLDER); a variable that
        was merely inherited, by a shell or another tool in between, means nothing.
        """
        path = _runners_folder(environment)
        if path is None:
            named = f"{now():%Y%m%dT%H%M%SZ}-{_slug(experiment)}-{run_id[-6:]}"
            path = reports_dir.absolute() / named
            path.mkdir(mode=0o755, parents=True)
        return cls(path, EventLog(path / "events.jsonl", scrub.value), scrub)

    def keep_records(self, lines: Iterable[bytes]) -> None:
        """The load's records as they come, a JSON object a line. Raises what ``lines`` raises, having kept the rest."""
        part = self.path / ".records.jsonl.part"
        stream = part.open("wb")
        try:
            with stream:
                for line in lines:
                    stream.write(self._clean_line(line.rstrip(b"\n")) + b"\n")
        finally:
            part.replace(self.path / "records.jsonl")

    def keep_samples(self, found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Write what the proxy kept of canaries before and after; the verdict's ``samples``, paths within the folder.

        Of what is no picture, sound or text of a kind known here, or too large, nothing is written.
        """
        kept = []
        for number, sample in enumerate(found[:_MOST_SAMPLES], start=1):
            shown = {key: self._scrub.value(sample[key]) for key in _SAMPLE_FACTS if key in sample}
            for name in _MEDIA:
                path = self._keep_medium(number, str(sample.get("lease", "")), name, sample.get(name))
                shown |= {name: path} if path else {}
            kept.append(shown)
        return kept

    def keep_journal(self, journal: Mapping[str, Any]) -> None:
        """journal.json, scrubbed strict JSON."""
        self._write_json("journal.json", journal)

    def keep_verdict(self, verdict: Mapping[str, Any]) -> None:
        """verdict.json, scrubbed strict JSON."""
        self._write_json("verdict.json", verdict)

    def render(self) -> None:
        """index.html here, and the pages and summaries beside the folders. Raises what the renderer raises."""
        from chaos_mm.report import render

        render.run(self.path)
        render.all(self.path.parent)

    def close(self) -> str:
        """End the event log; "" or what of it was not written, in words."""
        return self.events.close()

    def _clean_line(self, line: bytes) -> bytes:
        text = line.decode("utf-8", "replace")
        if not self._scrub.holds_secret(text):
            return line
        try:
            return _json(self._scrub.value(json.loads(text)), indent=None)
        except ValueError:
            return _json({"unreadable": len(line)}, indent=None)  # cut off on its way: no object, but not lost unsaid

    def _keep_medium(self, number: int, lease: str, name: str, medium: object) -> str:
        if not isinstance(medium, Mapping):
            return ""
        suffix = _SUFFIXES.get(str(medium.get("type", "")).partition(";")[0].strip())
        try:
            data = base64.b64decode(str(medium.get("data", "")), validate=True)
        except ValueError:
            return ""
        if suffix is None or not 0 < len(data) <= _MOST_SAMPLE_BYTES:
            return ""
        if suffix == ".txt":
            data = self._scrub.text(data.decode("utf-8", "replace")).encode()
        path = f"samples/{_slug(lease)}-{number}-{name.replace('_', '-')}{suffix}"
        (self.path / "samples").mkdir(mode=0o755, exist_ok=True)
        self._write(path, data)
        return path

    def _write_json(self, name: str, value: Mapping[str, Any]) -> None:
        self._write(name, _json(self._scrub.value(value), indent=1) + b"\n")

    def _write(self, name: str, data: bytes) -> None:
        try:
            self._write_whole(self.path / name, data)
        except OSError as error:
            if error.errno not in _FULL or self._spare is None or not self._spare.alive:
                raise
            self._spare()
            self._write_whole(self.path / name, data)

    def _write_whole(self, path: Path, data: bytes) -> None:
        part = path.with_name(f".{path.name}.part")
        with part.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)


def _set_aside(owner: object, folder: Path) -> "weakref.finalize[..., Any] | None":
    """Space on the folder's disk; a call gives it back, as the owner's end does. None where there is none to spare."""
    try:
        handle, name = tempfile.mkstemp(prefix=".spare.", dir=folder)
    except OSError:
        return None
    try:
        Path(name).unlink()
        os.write(handle, os.urandom(_SPARE_BYTES))  # what a disk cannot make smaller
    except OSError:
        os.close(handle)
        return None
    return weakref.finalize(owner, os.close, handle)


def _runners_folder(environment: Mapping[str, str]) -> Path | None:
    named = environment.get(FOLDER_VARIABLE)
    if not named or environment.get(RUNNER_VARIABLE) != str(os.getppid()):
        return None
    path = Path(named)
    if not path.is_absolute() or not path.is_dir():
        raise NotADirectoryError(f"{FOLDER_VARIABLE}={named!r}: the runner must have made that folder; give its path")
    return path


def _slug(text: str) -> str:
    """For a file's name: small letters, digits and dashes, at most 60."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60].strip("-") or "experiment"


def _json(value: Any, indent: int | None) -> bytes:
    separators = (",", ":") if indent is None else None
    return json.dumps(strict(value), allow_nan=False, indent=indent, separators=separators).encode()
