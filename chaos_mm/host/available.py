"""How much memory this machine still has to give: the least of what the kernel and every control group above us say.

Linux: MemAvailable of /proc/meminfo (proc(5)); cgroup v2 memory.max, memory.current and inactive_file of memory.stat;
cgroup v1 memory.limit_in_bytes, memory.usage_in_bytes and total_inactive_file (Documentation/admin-guide/cgroup-*).
Clean file pages can be dropped, so they count as available in a group as MemAvailable counts them.
"""

from collections.abc import Iterator
from pathlib import Path

__all__ = ["available_bytes", "groups", "meminfo_bytes"]

_MEMINFO, _OURS, _ROOT = Path("/proc/meminfo"), Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_V2 = "memory.max", "memory.current", "inactive_file"
_V1 = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
_UNLIMITED = 1 << 60  # cgroup v1 says "no limit" by the largest number of pages there can be


def available_bytes() -> int:
    """Bytes; never below 0."""
    return max(0, min([meminfo_bytes("MemAvailable"), *groups().values()]))


def meminfo_bytes(name: str, path: Path = _MEMINFO) -> int:
    """One line of /proc/meminfo in bytes. Raises LookupError when it is not there."""
    for line in path.read_text().splitlines():
        word, _, rest = line.partition(":")
        if word == name:
            return int(rest.split()[0]) * 1024
    raise LookupError(f"{path} has no {name}")


def groups(ours: Path = _OURS, root: Path = _ROOT) -> dict[str, int]:
    """Bytes left below the limit of each limited control group that we are in, by its folder."""
    return {str(folder): rest for folder, names in _folders(ours, root) if (rest := _rest(folder, names)) is not None}


def _folders(ours: Path, root: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """From our group up to the root of each hierarchy; inside a container only the root may be there."""
    for line in ours.read_text().splitlines() if ours.exists() else []:
        _, controllers, name = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top, names = (root / "memory", _V1) if controllers else (root, _V2)
        folder = top / name.strip("/")
        while folder != top:
            yield folder, names
            folder = folder.parent
        yield top, names


def _rest(folder: Path, names: tuple[str, str, str]) -> int | None:
    limit, usage, clean = names
    try:
        allowed, used = (folder / limit).read_text().strip(), int((folder / usage).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        unlimited = allowed == "max" or int(allowed) >= _UNLIMITED
        return None if unlimited else int(allowed) - used + int(stat.get(clean, 0))
    except OSError:
        return None  # no such group as seen from here, or one without limits
