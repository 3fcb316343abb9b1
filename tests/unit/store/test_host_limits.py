"""Limits are the container's, whatever the host has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_ddl.store.host_limits import host_limits

_GIB = 1 << 30


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_version_2_container_of_one_cpu_and_two_gigabytes(tmp_path: Path) -> None:
    _write(tmp_path / "proc", "0::/\n")
    _write(tmp_path / "fs/cpu.max", "100000 100000\n")
    _write(tmp_path / "fs/memory.max", f"{2 * _GIB}\n")
    limits = host_limits(tmp_path / "proc", tmp_path / "fs")
    assert (limits.cpus, limits.memory_bytes) == (1, 2 * _GIB)


def test_a_limit_on_a_group_above_counts(tmp_path: Path) -> None:
    _write(tmp_path / "proc", "0::/slice/service\n")
    _write(tmp_path / "fs/slice/service/memory.max", "max\n")
    _write(tmp_path / "fs/slice/memory.max", f"{_GIB}\n")
    assert host_limits(tmp_path / "proc", tmp_path / "fs").memory_bytes == _GIB


def test_half_a_cpu_is_one(tmp_path: Path) -> None:
    _write(tmp_path / "proc", "3:cpu,cpuacct:/job\n4:memory:/job\n")
    _write(tmp_path / "fs/cpu,cpuacct/job/cpu.cfs_quota_us", "50000")
    _write(tmp_path / "fs/cpu,cpuacct/job/cpu.cfs_period_us", "100000")
    _write(tmp_path / "fs/memory/job/memory.limit_in_bytes", f"{_GIB}")
    limits = host_limits(tmp_path / "proc", tmp_path / "fs")
    assert (limits.cpus, limits.memory_bytes) == (1, _GIB)


def test_a_path_of_the_host_means_the_mount_itself(tmp_path: Path) -> None:
    _write(tmp_path / "proc", "4:memory:/docker/0123\n")
    _write(tmp_path / "fs/memory/memory.limit_in_bytes", f"{_GIB}")
    assert host_limits(tmp_path / "proc", tmp_path / "fs").memory_bytes == _GIB


def test_no_limits_mean_the_hosts_own(tmp_path: Path) -> None:
    _write(tmp_path / "proc", "0::/\n")
    _write(tmp_path / "fs/cpu.max", "max 100000\n")
    limits = host_limits(tmp_path / "proc", tmp_path / "fs")
    assert limits.cpus == len(os.sched_getaffinity(0))
    assert limits.memory_bytes > _GIB // 4


@pytest.fixture
def real_groups() -> Iterator[list[Path]]:
    """One CPU and 2 GB for whoever joins, in this host's real cgroups (version 1)."""
    cpu, memory = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/memory")
    if os.getuid() != 0 or not (memory / "memory.limit_in_bytes").exists():
        pytest.skip("needs root and cgroup version 1 to make a group")
    groups = [parent / f"ddl-test-{os.getpid()}" for parent in (cpu, memory)]
    try:
        for group in groups:
            group.mkdir()
    except OSError as error:
        pytest.skip(f"cgroups can't be made here: {error}")
    (groups[0] / "cpu.cfs_quota_us").write_text("100000")
    (groups[1] / "memory.limit_in_bytes").write_text(str(2 * _GIB))
    yield groups
    for group in groups:
        group.rmdir()


def test_a_local_cluster_in_a_small_container_has_one_worker(real_groups: list[Path]) -> None:
    code = (
        "import os,sys\n"
        "for group in sys.argv[1:]: open(group + '/cgroup.procs', 'w').write(str(os.getpid()))\n"
        "from jupyter_ddl.backends.local import LocalBackend\n"
        "from jupyter_ddl.protocol.cluster import ClusterSpec\n"
        "print(LocalBackend(ClusterSpec()).n_wanted)\n"
    )
    command = [sys.executable, "-c", code, *map(str, real_groups)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["1"]
