"""A set clock and the walls of a container hide clusters: nobody is taken for dead for that."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from jupyter_ddl.client.clusters import list_clusters, start_cluster
from jupyter_ddl.controller.process import end_leftovers
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.store.connection import free_name
from tests.leaks import Home, processes_of
from tests.namespaces import PID, apart, on_another_host, python, with_clock_set, without_locks
from tests.run_tools import SLEEPING, start_search, wait_for
from tests.until import until

pytestmark = pytest.mark.integration

_LOOK = """
from jupyter_ddl.client.clusters import list_clusters
from jupyter_ddl.controller.process import end_leftovers
end_leftovers()  # how many is not asked: those of other tests' homes are ended, too
print([each.name for each in list_clusters()], flush=True)
"""
_RUN = """
from jupyter_ddl.client.clusters import start_cluster
from tests.run_tools import SLEEPING, start_search, wait_for
start_cluster(n_workers=1, name="inner")
wait_for(start_search(SLEEPING, 1), lambda seen: seen.counts.running == 1)
print("running", flush=True)
input()
"""


def _is_free(name: str) -> bool:
    time.sleep(0.01)
    with free_name(name) as is_free:
        return is_free


def test_a_clock_that_is_set_ends_no_rank(stopping: Home) -> None:
    start_cluster(n_workers=1, name="test")
    run = start_search(SLEEPING, 1)
    wait_for(run, lambda seen: seen.counts.running == 1)
    before = {process.pid for process in processes_of(stopping)}
    command = [*with_clock_set(stopping.root, 3600), *python(_LOOK)]
    assert subprocess.check_output(command, text=True) == "['test']\n"
    assert {process.pid for process in processes_of(stopping)} == before


def test_a_container_and_its_host_end_nothing_of_each_other(home: Home) -> None:
    with subprocess.Popen(
        [*apart(*PID), *python(_RUN)],
        cwd=home.work,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as inside:
        assert inside.stdout is not None
        assert inside.stdout.readline() == "running\n"
        before = {process.pid for process in processes_of(home)}
        end_leftovers()
        outer = start_cluster(n_workers=0, name="outer")  # it looks for leftovers, too
        assert [each.name for each in list_clusters()] == ["inner", "outer"]
        assert before <= {process.pid for process in processes_of(home)}
        assert subprocess.check_output([*apart(*PID), *python(_LOOK)], text=True) == (
            "['inner', 'outer']\n"
        )
        outer.stop()
        inner = next(each for each in list_clusters() if each.name == "inner")
        inner.stop()  # its socket is reached; its process is signalled by nobody here
        assert list_clusters() == []
        # Not one try: whoever looks who has a name locks it for that moment, the other kernel too.
        assert any(_is_free("inner") for _ in range(20)), "the stop has seen the end of its process"
        inside.communicate("\n")
    until(lambda: not processes_of(home), 10.0, "the end of the container")


def test_hosts_that_share_a_home_have_their_own_clusters(home: Home) -> None:
    with subprocess.Popen(
        [*on_another_host(home.root, "far"), *python(_RUN)],
        cwd=home.work,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as far:
        assert far.stdout is not None
        assert far.stdout.readline() == "running\n"
        before = {process.pid for process in processes_of(home)}
        assert list_clusters() == []  # its socket can't be reached from here
        with pytest.raises(ClusterError, match="'inner' runs on far, which shares"):
            start_cluster(n_workers=0, name="inner")
        start_cluster(n_workers=0, name="outer").stop()
        assert before <= {process.pid for process in processes_of(home)}
        far.communicate("\n")
    copies = (p for p in processes_of(home) if "jupyter_ddl.controller" in str(p.cmdline()))
    min(copies, key=lambda process: process.create_time()).terminate()  # the controller itself
    until(lambda: not processes_of(home), 20.0, "the end of the other host's cluster")


def test_a_cluster_without_locks_is_refused_before_anything_starts(home: Home) -> None:
    command = [*without_locks(), sys.executable, "-m", "jupyter_ddl.cli", "cluster", "start"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1
    assert "No locks available" in done.stderr
    assert "set JUPYTER_RUNTIME_DIR to a directory on a disk of this host" in done.stderr
    assert not processes_of(home)
