"""A cluster that the tests of a folder share, as each of them would have started it itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from jupyter_ddl.client.clusters import Cluster
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.session import session
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.replies import ClusterStatus
from jupyter_ddl.protocol.requests import CloseGroup
from jupyter_ddl.store.connection import connection_path, read_connection
from tests.leaks import Home, end_processes, leftovers_of, new_home
from tests.run_tools import workers
from tests.until import until

__all__ = ["SharedCluster", "lent", "shared_cluster"]

_REST_S = 5.0
_FREE_NAME_S = 20.0


class SharedCluster:
    """Started when a test asks for it, kept only while tests give it back as it was.

    A run that goes on is stopped.  A cluster with another controller, other workers or another
    size, or one that does not come to rest, is ended, and its home with it.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        self._spec = spec
        self._homes = contextlib.ExitStack()
        self._home: Home | None = None
        self._as_started: object = None

    @property
    def home(self) -> Home:
        """Where the cluster and its runs lie."""
        assert self._home is not None, "nobody has asked for the cluster"
        return self._home

    def enter(self, environment: pytest.MonkeyPatch) -> None:
        """Have this process find the cluster's home, where there is one."""
        for name, value in self._home.variables().items() if self._home else ():
            environment.setenv(name, value)

    def lend(self, environment: pytest.MonkeyPatch) -> Cluster:
        """The cluster; ``environment`` and the session of this process are on it from now on."""
        is_new = self._home is None
        if self._home is None:
            self._home = self._homes.enter_context(new_home())
        self.enter(environment)
        cluster = Cluster(self._spec.name)
        if is_new:
            session().start(self._spec)
            self._as_started = _marks(cluster.status())
        else:
            session().attach(cluster.name)
        return cluster

    def take_back(self) -> None:
        """Keep the cluster for the next test if it comes to rest and is as it was."""
        cluster = Cluster(self._spec.name)
        with contextlib.suppress(JupyterDDLError, AssertionError):
            status = cluster.status()
            groups = {group.group_id for group in status.groups}
            for group_id in groups:
                session().ask(cluster.name, CloseGroup(group_id))
            for run_id in set(status.active_runs) - groups:
                Run(run_id).cancel()
            until(lambda: _rests(cluster.status()), _REST_S)
            if _marks(cluster.status()) == self._as_started:
                return
        self.end()

    def end(self) -> None:
        """Stop what runs; fails unless everything ends, also after a killed controller."""
        if self._home is None:
            return
        name = self._spec.name
        if read_connection(name) is not None:
            Cluster(name).stop()
        session().close()
        path = connection_path(name)
        with contextlib.suppress(AssertionError):  # a file that stays is found below
            until(lambda: read_connection(name) is None and not path.exists(), _FREE_NAME_S)
        home, self._home = self._home, None
        found = leftovers_of(home)
        end_processes(home)
        self._homes.close()
        if found:
            pytest.fail("left behind:\n" + "\n".join(found), pytrace=False)


@contextlib.contextmanager
def shared_cluster(spec: ClusterSpec) -> Iterator[SharedCluster]:
    """One that starts with its first test and ends here; each has a home of its own."""
    shared = SharedCluster(spec)
    yield shared
    with pytest.MonkeyPatch.context() as environment:
        environment.setattr("jupyter_ddl.client.session._session", None)
        shared.enter(environment)
        shared.end()


@contextlib.contextmanager
def lent(shared: SharedCluster, environment: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The cluster for one test."""
    yield shared.lend(environment)
    shared.take_back()


def _marks(status: ClusterStatus) -> object:
    """What stays the same while nothing happens to a cluster."""
    addresses = frozenset(worker.address for worker in status.workers)
    processes = frozenset(process.pid for process in workers(status.name))
    return (
        status.controller_pid,
        addresses,
        processes,
        status.n_wanted,
        status.adapt,
        status.trouble,
    )


def _rests(status: ClusterStatus) -> bool:
    return not status.active_runs and not any(worker.n_busy for worker in status.workers)
