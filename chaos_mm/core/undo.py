"""Undo records: what a process must put back even when it dies first.

A change that outlives its process is written down before it is made: data only, fsynced, 0600, checksummed. The
next start sweeps: every record left is undone by the handler of its kind, and one that fails never stops the others.
"""

import hashlib
import json
import logging
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos_mm.core.errors import ChaosMMError

logger = logging.getLogger("chaos_mm.undo")
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class UndoRecord:
    """One change to put back: which handler (``kind``) and what it needs (``data``, strict JSON)."""

    id: str
    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Swept:
    """What a sweep did: ids undone, and for each one left why it could not be."""

    undone: tuple[str, ...]
    failed: Mapping[str, str]


class UndoLog:
    """A folder of undo records, one file each, owned by this user alone."""

    def __init__(self, folder: Path) -> None:
        """Raises ChaosMMError when the folder is a link, another user's, or open to others."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_private(folder)
        self.folder = folder

    def write(self, kind: str, data: Mapping[str, Any]) -> UndoRecord:
        """Put a record on disk; it is durable when this returns. Raises ValueError on data that is not strict
        JSON or makes a record above 1 MiB, which could not be read back.
        """
        record = UndoRecord(secrets.token_hex(8), kind, data)
        body = json.dumps({"id": record.id, "kind": kind, "data": data}, allow_nan=False, sort_keys=True)
        text = json.dumps({"record": body, "sha256": hashlib.sha256(body.encode()).hexdigest()}).encode()
        if len(text) > _MAX_BYTES:
            raise ValueError(f"an undo record of {len(text)} bytes is above the limit of {_MAX_BYTES}")
        self._store(self._path(record.id), text)
        return record

    def done(self, record: UndoRecord) -> None:
        """The change is undone and proven so; forget it. Gone is fine."""
        self._path(record.id).unlink(missing_ok=True)
        _sync_folder(self.folder)

    def pending(self) -> tuple[list[UndoRecord], dict[str, str]]:
        """Every record left, oldest first, and the files that cannot be trusted with the reason."""
        good, bad = [], {}
        for path in sorted(self.folder.glob("*.undo"), key=lambda p: p.lstat().st_mtime_ns):
            try:
                good.append(_read(path))
            except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
                bad[path.name] = f"unreadable undo record: {error}"
        return good, bad

    def _path(self, record_id: str) -> Path:
        return self.folder / f"{record_id}.undo"

    def _store(self, path: Path, body: bytes) -> None:
        part = path.with_suffix(".part")
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(body)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
        _sync_folder(self.folder)


def sweep(log: UndoLog, undoers: Mapping[str, Callable[[Mapping[str, Any]], None]]) -> Swept:
    """Undo every record left by a dead process. Handlers must be idempotent and raise when they cannot prove it."""
    records, failed = log.pending()
    undone = []
    for record in records:
        undo = undoers.get(record.kind)
        if undo is None:
            failed[record.id] = f"no handler for kind {record.kind!r}"
            continue
        try:
            undo(record.data)
        except Exception as error:  # one undo failing must never stop the others
            failed[record.id] = f"{type(error).__name__}: {error}"
        else:
            log.done(record)
            undone.append(record.id)
    for name, why in failed.items():
        logger.error("undo of %s failed: %s", name, why)
    return Swept(tuple(undone), failed)


def check_private(path: Path) -> None:
    """Raises ChaosMMError unless ``path`` is ours alone: no link, our user, no access for group or others."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise ChaosMMError(f"{path} is a symbolic link; it must be a plain file or folder of yours")
    if found.st_uid != os.getuid():
        raise ChaosMMError(f"{path} belongs to user {found.st_uid}, not to you ({os.getuid()})")
    if found.st_mode & 0o077:
        raise ChaosMMError(f"{path} is open to others (mode {stat.S_IMODE(found.st_mode):o}); chmod go-rwx it")


def _read(path: Path) -> UndoRecord:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        text = os.read(handle, _MAX_BYTES)
    finally:
        os.close(handle)
    outer = json.loads(text)
    body = outer["record"] if isinstance(outer, dict) else None
    if not isinstance(body, str):
        raise ValueError("not an undo record")
    if hashlib.sha256(body.encode()).hexdigest() != outer["sha256"]:
        raise ValueError("checksum does not match")
    inner = json.loads(body)
    return UndoRecord(inner["id"], inner["kind"], inner["data"])


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
