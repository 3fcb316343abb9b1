"""The environment of zygotes and ranks, log names, and evidence of memory kills."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl.ranks.log import log_name
from jupyter_ddl.store.processes import child_pids, environment_value, pids_by
from jupyter_ddl.worker import rank_death as oom
from jupyter_ddl.worker.zygote_process import WorkerSettings, zygote_environment


def test_numerical_libraries_get_the_threads_of_the_slot() -> None:
    environment = zygote_environment(WorkerSettings("token", cpus_per_slot=3), "z")
    assert {environment[f"{name}_NUM_THREADS"] for name in ("OMP", "MKL", "OPENBLAS")} == {"3"}
    assert environment["JUPYTER_DDL_OWNER"] == "token"


def test_ranks_keep_freed_memory_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = WorkerSettings("token")
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")  # what Dask's nannies set
    assert "MALLOC_TRIM_THRESHOLD_" not in zygote_environment(settings, "z")
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000000")
    assert zygote_environment(settings, "z")["MALLOC_TRIM_THRESHOLD_"] == "1000000"


@given(st.text(max_size=300))
def test_a_log_name_is_one_safe_file_name(assignment_id: str) -> None:
    name = log_name(assignment_id, 42)
    assert Path(name).name == name
    assert name.endswith("-42.log")
    assert len(name.encode()) < 200
    assert not name.startswith(".")


def test_a_process_is_found_by_its_environment() -> None:
    marker = f"test-{os.getpid()}"
    pid = os.posix_spawn("/bin/sleep", ["sleep", "30"], {"JUPYTER_DDL_OWNER": marker})
    try:
        deadline_s = time.monotonic() + 5
        # The kernel shows the environment a moment after the new process has its memory.
        while environment_value(pid, "JUPYTER_DDL_OWNER") != marker:
            assert time.monotonic() < deadline_s
        assert pid in child_pids()
        assert pids_by("JUPYTER_DDL_OWNER").get(marker, []) == [pid]
        assert environment_value(pid, "JUPYTER_DDL") is None
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_memory_kills_are_counted_from_all_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, group = tmp_path / "vmstat", tmp_path / "memory.events"
    host.write_text("nr_free_pages 10\noom_kill 3\n")
    group.write_text("low 0\nmax 5\noom 2\noom_kill 2\n")
    monkeypatch.setattr(oom, "_counter_files", lambda: [host, group, tmp_path / "missing"])
    assert oom.oom_kill_count() == 5
    monkeypatch.setattr(oom, "_counter_files", lambda: [tmp_path / "missing"])
    assert oom.oom_kill_count() is None
