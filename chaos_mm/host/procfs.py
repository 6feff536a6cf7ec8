"""Processes as /proc shows them: who is meant, who it is beyond its number, who must not be touched.

A process id alone names nobody for long. Here a process is its id, its start time (field 22 of /proc/PID/stat, in clock
ticks since boot) and the boot's id, as proc(5) has them.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos_mm.core.errors import ChaosMMError, NotInjectable

__all__ = [
    "Identity",
    "boot_id",
    "choose",
    "command_of",
    "identify",
    "listeners",
    "same_command",
    "state_of",
    "tree",
]

PROC = Path("/proc")
_LISTEN = "0A"  # TCP_LISTEN, include/net/tcp_states.h
_SHOWN = 8


@dataclass(frozen=True)
class Identity:
    """One process and no other: ``start`` in clock ticks since the boot ``boot``."""

    pid: int
    start: int
    boot: str

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, as undo records hold it."""
        return {"pid": self.pid, "start": self.start, "boot": self.boot}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Identity":
        """The reverse. Raises LookupError, TypeError, ValueError."""
        return cls(int(data["pid"]), int(data["start"]), str(data["boot"]))

    @property
    def lives(self) -> bool:
        """Whether this very process is there, and not only as a zombie."""
        found = _stat(self.pid)
        return found is not None and found[1] == self.start and found[0] not in "ZX" and boot_id() == self.boot


def boot_id() -> str:
    """Changes with every boot; "" where the kernel does not say."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def identify(pid: int) -> Identity | None:
    """The process that has that id now; None when there is none, or only a zombie."""
    found = _stat(pid)
    return None if found is None or found[0] in "ZX" else Identity(pid, found[1], boot_id())


def state_of(who: Identity) -> str:
    """The letter of its state (R, S, D, T …); "" when it is gone or another has its id."""
    found = _stat(who.pid)
    return found[0] if found is not None and found[1] == who.start and boot_id() == who.boot else ""


def command_of(pid: int) -> str:
    """Its command line, words parted by spaces; "" for a kernel thread or when it is gone."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def same_command(command: str) -> set[int]:
    """Ids of the processes with exactly that command line."""
    return {pid for pid in _pids() if command and command_of(pid) == command}


def listeners(port: int) -> set[int]:
    """Ids of the processes that hold a socket listening on that TCP port, of those whose files we may read."""
    wanted = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    return {pid for pid in _pids() if wanted & set(_open_files(pid))} if wanted else set()


def tree(root: int) -> set[int]:
    """The process and all that descend from it now."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        children.setdefault(_parent(pid), []).append(pid)
    found, rest = set[int](), [root]
    while rest:
        pid = rest.pop()
        if pid not in found:
            found.add(pid)
            rest += children.get(pid, [])
    return found


def choose(pid: int, listens_on: int, command: str) -> Identity:
    """The one process that every given word names. Raises NotInjectable naming who was found, or why not that one."""
    if not (pid or listens_on or command):
        raise NotInjectable("no process is named: say pid, listens_on or command")
    said = ", ".join(
        text
        for text, given in ((f"pid {pid}", pid), (f"listens_on {listens_on}", listens_on), (repr(command), command))
        if given
    )
    found = sorted(_named(pid, listens_on, command))
    if len(found) != 1:
        raise NotInjectable(f"{said} names {_shown(found)}; exactly one process must match")
    _check_touchable(found[0])
    who = identify(found[0])
    if who is None:
        raise NotInjectable(f"{said}: process {found[0]} has just ended")
    return who


def _named(pid: int, listens_on: int, command: str) -> Iterator[int]:
    ours = _lineage(os.getpid())
    there = listeners(listens_on) if listens_on else set[int]()
    for one in [pid] if pid else _pids():
        if not command_of(one) or (one in ours and not pid):
            continue  # kernel threads have no command line; our own holds the very words we look for
        if command and command not in command_of(one):
            continue
        if not listens_on or one in there:
            yield one


def _check_touchable(pid: int) -> None:
    if pid == 1:
        raise NotInjectable("process 1 is never touched: the machine or the container lives by it")
    if pid in _lineage(os.getpid()):
        raise NotInjectable(f"process {pid} is this host process or one of its parents; it is never touched")
    owner = _owner(pid)
    if owner != os.geteuid():
        raise NotInjectable(f"process {pid} belongs to user {owner}; only those of user {os.geteuid()} may be touched")


def _lineage(pid: int) -> set[int]:
    found: set[int] = set()
    while pid > 0 and pid not in found:
        found.add(pid)
        pid = _parent(pid)
    return found


def _owner(pid: int) -> int:
    try:
        return (PROC / str(pid)).stat().st_uid
    except OSError:
        return -1


def _shown(pids: Iterable[int]) -> str:
    """Ids and short names; command lines may hold secrets."""
    found = list(pids)
    if not found:
        return "no process"
    names = [f"{pid} ({_comm(pid)})" for pid in found[:_SHOWN]]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{len(found)} processes: {', '.join(names)}{more}"


def _comm(pid: int) -> str:
    try:
        return (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return "gone"


def _pids() -> list[int]:
    try:
        return [int(path.name) for path in PROC.iterdir() if path.name.isdigit()]
    except OSError as error:
        raise ChaosMMError(f"{PROC} cannot be read, so no process can be found: {error.strerror}") from None


def _fields(pid: int) -> list[str] | None:
    """From the third field on: the second is a name in brackets that may hold anything."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _stat(pid: int) -> tuple[str, int] | None:
    """(state, start time) or None."""
    fields = _fields(pid)
    return (fields[0], int(fields[19])) if fields else None


def _parent(pid: int) -> int:
    fields = _fields(pid)
    return int(fields[1]) if fields else 0


def _listening_inodes(port: int) -> set[str]:
    found = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue  # a kernel without IPv6 has no tcp6
        for fields in map(str.split, lines):
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found


def _open_files(pid: int) -> Iterator[str]:
    try:
        for path in (PROC / str(pid) / "fd").iterdir():
            try:
                yield str(path.readlink())
            except OSError:
                continue  # closed meanwhile
    except OSError:
        return
