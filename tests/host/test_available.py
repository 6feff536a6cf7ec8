"""How much memory is left, by the kernel's files, against a second library and against groups made by hand."""

from pathlib import Path

import psutil
import pytest

from chaos_mm.host.available import available_bytes, groups, meminfo_bytes

MIB = 1 << 20


def test_the_machine_s_own_figure_is_what_a_second_library_says():
    assert abs(meminfo_bytes("MemAvailable") - psutil.virtual_memory().available) < 512 * MIB
    assert meminfo_bytes("MemTotal") == psutil.virtual_memory().total
    assert 0 < available_bytes() <= psutil.virtual_memory().total
    with pytest.raises(LookupError, match="has no Nothing"):
        meminfo_bytes("Nothing")


def group(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def test_cgroup_v2_counts_every_limited_group_above_and_clean_file_pages_as_available(tmp_path: Path):
    ours = tmp_path / "cgroup"
    ours.write_text("0::/pod/container\n")
    stat = {"memory.stat": f"anon 1\ninactive_file {10 * MIB}\n"}
    group(tmp_path / "fs/pod/container", {"memory.max": "max\n", "memory.current": f"{90 * MIB}\n", **stat})
    group(tmp_path / "fs/pod", {"memory.max": f"{100 * MIB}\n", "memory.current": f"{90 * MIB}\n", **stat})
    assert groups(ours, tmp_path / "fs") == {str(tmp_path / "fs/pod"): 20 * MIB}


def test_cgroup_v1_without_a_limit_is_none(tmp_path: Path):
    ours = tmp_path / "cgroup"
    ours.write_text("9:name=systemd:/\n4:memory:/a/b\n0::/\n")
    stat = {"memory.usage_in_bytes": f"{30 * MIB}\n", "memory.stat": "total_inactive_file 0\n"}
    group(tmp_path / "fs/memory/a/b", {"memory.limit_in_bytes": f"{64 * MIB}\n", **stat})
    group(tmp_path / "fs/memory/a", {"memory.limit_in_bytes": "9223372036854771712\n", **stat})
    assert groups(ours, tmp_path / "fs") == {str(tmp_path / "fs/memory/a/b"): 34 * MIB}


def test_a_container_that_sees_only_its_own_root_is_counted_there(tmp_path: Path):
    ours = tmp_path / "cgroup"
    ours.write_text("0::/not/seen/from/here\n")
    stat = {"memory.current": f"{30 * MIB}\n", "memory.stat": "inactive_file 0\n"}
    group(tmp_path / "fs", {"memory.max": f"{64 * MIB}\n", **stat})
    assert groups(ours, tmp_path / "fs") == {str(tmp_path / "fs"): 34 * MIB}
    assert groups(tmp_path / "nothing", tmp_path / "fs") == {}
