"""Processes of others on a run's GPUs are named, each once; those of its cluster are not."""

from __future__ import annotations

import getpass
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_ddl.protocol.telemetry import GpuProcess, GpuSample
from jupyter_ddl.store.processes import OWNER_VARIABLE
from jupyter_ddl.worker.telemetry import gpu_users
from jupyter_ddl.worker.telemetry.gpu_users import GpuUsers

_OWN, _OTHER, _GIB = "GPU-own", "GPU-other", 1 << 30


@pytest.fixture
def sleeping(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Pids of a process of this cluster, of another one, and of none."""
    monkeypatch.setenv(OWNER_VARIABLE, "ours")
    here = Path("/proc/self/ns/pid").stat().st_ino
    monkeypatch.setattr(gpu_users, "_FIRST_NAMESPACE", here)
    started = {
        owner: subprocess.Popen(["sleep", "600"], env={**os.environ, OWNER_VARIABLE: owner})
        for owner in ("ours", "another's", "")
    }
    yield {owner: process.pid for owner, process in started.items()}
    for process in started.values():
        process.kill()
        process.wait()


def gpu(uuid: str, **held: int | None) -> GpuSample:
    processes = tuple(GpuProcess(int(pid), n_bytes) for pid, n_bytes in held.items())
    return GpuSample(uuid, 3, "Fake 80", memory_total_bytes=80 * _GIB, processes=processes)


def test_each_process_of_others_is_named_once_to_each_run(sleeping: dict[str, int]) -> None:
    ours, anothers, nobodys = (str(pid) for pid in sleeping.values())
    users = GpuUsers(lambda: [gpu(_OWN, **{ours: _GIB * 9, anothers: _GIB * 9, nobodys: None})])
    first, second = users.strangers("run", [_OWN])
    assert first == (
        f"GPU 3 is used by others, too: process {anothers} (sleep) of {getpass.getuser()} has "
        f"9 GiB of its 80 GiB; end it, or start the cluster with a CUDA_VISIBLE_DEVICES without "
        f"this GPU"
    )
    assert f"process {nobodys} (sleep) of {getpass.getuser()} has memory; end it" in second
    assert users.strangers("run", [_OWN]) == []
    assert len(users.strangers("another run", [_OWN])) == 2


def test_what_disturbs_nobody_is_not_named(sleeping: dict[str, int]) -> None:
    _, anothers, nobodys = (str(pid) for pid in sleeping.values())
    gone = subprocess.Popen(["true"])
    gone.wait()
    elsewhere = gpu(_OTHER, **{anothers: _GIB * 9})
    users = GpuUsers(lambda: [elsewhere, gpu(_OWN, **{nobodys: _GIB, str(gone.pid): _GIB * 9})])
    assert users.strangers("run", [_OWN]) == []
    assert users.strangers("run", []) == []


def test_in_a_container_where_pids_of_the_host_mean_others_nobody_is_named(
    sleeping: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    users = GpuUsers(lambda: [gpu(_OWN, **{str(sleeping[""]): _GIB * 9})])
    monkeypatch.setattr(gpu_users, "_FIRST_NAMESPACE", 0)
    assert users.strangers("run", [_OWN]) == []
