"""This process's connections to controllers, and the cluster that it uses by default."""

from __future__ import annotations

import atexit
import functools
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from jupyter_ddl.backends.base import backend_plugin
from jupyter_ddl.client.elsewhere import join_named
from jupyter_ddl.client.link import ControllerLink, Mailbox, client_loop, close_client_loop
from jupyter_ddl.client.specs import remember_spec, remembered_spec
from jupyter_ddl.client.start import How, packages_to_warm, prepared_spec, start_controller
from jupyter_ddl.errors import ClusterError, ControllerError, ProtocolError
from jupyter_ddl.formats import format_bytes
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.mirroring import HandedOver, HandOver
from jupyter_ddl.protocol.replies import Result
from jupyter_ddl.protocol.requests import Body
from jupyter_ddl.store.advisories import outdated
from jupyter_ddl.store.atomic import write_whole
from jupyter_ddl.store.connection import ConnectionInfo, list_connections, read_connection
from jupyter_ddl.store.paths import runtime_dir

__all__ = ["Session", "choose_cluster", "chosen_name", "session", "tell_outdated"]

T = TypeVar("T")

log = logging.getLogger(__name__)

_REQUEST_TIMEOUT_S = 30.0
_DEFAULT = "local"


@functools.cache
def tell_outdated() -> None:
    """Say once which installed versions have known holes."""
    for text in outdated():
        log.warning("%s", text)


class Session:
    """What a kernel knows of clusters.  Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._links: dict[str, ControllerLink] = {}
        self._guard = threading.RLock()
        self.current: str | None = None
        """Name of the cluster that ``%%distribute`` uses."""
        self.resumed: list[str] = []
        """Unfinished runs that the last started controller goes on with."""

    # -- clusters ------------------------------------------------------------------------------

    def start(
        self,
        spec: ClusterSpec,
        on_phase: Callable[[str], None] = lambda _: None,
        how: How = "start",
    ) -> str:
        """Start a cluster and use it from now on; returns its name.

        Parameters
        ----------
        how : str
            With ``either``, one whose controller runs elsewhere is used if it is there.

        Raises
        ------
        JupyterDDLError
            It can't be started; one sentence says why.
        """
        tell_outdated()
        spec = msgspec.structs.replace(spec, prewarm=spec.prewarm or packages_to_warm())
        with self._guard:
            spec = prepared_spec(spec, on_phase)
            info, self.resumed = start_controller(spec, on_phase, how)
            remember_spec(spec)
            self.current = info.name
        return info.name

    def join(self, spec: ClusterSpec, on_phase: Callable[[str], None] = lambda _: None) -> str:
        """Use a cluster whose controller runs elsewhere; returns its name.

        Parameters
        ----------
        spec : ClusterSpec
            Says which one: its name, and where the backend finds it.

        Raises
        ------
        JupyterDDLError
            There is none, or it can't be used from here; one sentence says why.
        """
        with self._guard:
            if read_connection(spec.name) is None:
                start_controller(spec, on_phase, "join")
            self.current = spec.name
        return spec.name

    def ensure(self, on_phase: Callable[[str], None] = lambda _: None) -> str:
        """The current cluster, or the only running one, or a new local one; returns its name.

        Raises
        ------
        ClusterError
            Several are running and none was chosen; or none can be started.
        """
        if self.current is not None and read_connection(self.current) is not None:
            return self.current
        running = [info.name for info in list_connections()]
        wanted = self.current or _wanted_of(running)
        if wanted not in running:
            on_phase(f"no cluster yet: starting {wanted}")
            self._start_or_join(wanted, on_phase)
        self.current = wanted
        return wanted

    def attach(self, name: str) -> None:
        """Use a running cluster that was started elsewhere.

        Raises
        ------
        ClusterError
            None of this name runs.
        """
        if read_connection(name) is None:
            names = ", ".join(info.name for info in list_connections()) or "none"
            raise ClusterError(f"no cluster named {name!r} is running; running: {names}")
        self.current = name

    def info(self, name: str) -> ConnectionInfo:
        """Connection of a running cluster.  Raises :class:`ClusterError` when none runs."""
        info = read_connection(name)
        if info is None:
            raise ClusterError(f"cluster {name!r} is not running; `%cluster start --name {name}`")
        return info

    # -- requests ------------------------------------------------------------------------------

    def ask(self, name: str, body: Body, timeout_s: float = _REQUEST_TIMEOUT_S) -> Result:
        """One request to a running controller."""
        link = self._link(name)
        return self._call(link.request(body, timeout_s), timeout_s + 5)

    def hand_over(
        self, name: str, digests: Iterable[str], on_phase: Callable[[str], None] = lambda _: None
    ) -> None:
        """Bring blobs of this host to a controller that does not see them, however long it takes.

        Parameters
        ----------
        on_phase : callable
            Gets one short sentence as long as it goes on.
        """
        wanted = tuple(digests)
        if not wanted or not backend_plugin(self.info(name).backend).has_controller_host:
            return
        told = -1
        while (found := self._handed(name, wanted)).left_bytes:
            percent = 100 - 100 * found.left_bytes // found.n_bytes
            if percent > told and found.n_bytes > 1:
                told = percent
                on_phase(f"bringing {format_bytes(found.n_bytes)} to the cluster: {percent} %")

    def _handed(self, name: str, digests: tuple[str, ...]) -> HandedOver:
        result = self.ask(name, HandOver(digests))
        if not isinstance(result, HandedOver):
            raise ProtocolError(f"blobs that go up were answered with {type(result).__name__}")
        return result

    def begin(self, name: str, body: Body, timeout_s: float | None = None) -> Future[Result]:
        """One request that may take as long as it likes; the caller waits for its future."""
        return client_loop().begin(self._link(name).request(body, timeout_s))

    def ask_controller_of(self, name: str, body: Body) -> Result:
        """The same, restarted if it has died: its runs must not be out of reach."""
        link = self._revived(name)
        return self._call(link.request(body, _REQUEST_TIMEOUT_S), _REQUEST_TIMEOUT_S + 5)

    def watch(self, name: str, run_id: str) -> Mailbox:
        """A mailbox that receives the run's snapshots; the current one is in it already.

        Raises
        ------
        ControllerError
            The controller has died, perhaps while it started: it may be tried again.
        JupyterDDLError
            It can't be started, or does not know the run.
        """
        link = self._revived(name)
        mailbox = self._call(link.follow(run_id), _REQUEST_TIMEOUT_S)
        if self.current is None and [info.name for info in list_connections()] == [name]:
            # As a cell would choose now.  When the controller is lost none runs for a moment, and
            # a cell that began then would start another cluster beside the one that comes back.
            self.current = name
        return mailbox

    def unwatch(self, name: str, run_id: str, mailbox: Mailbox) -> None:
        """Stop feeding a mailbox, soon."""
        link = self._links.get(name)
        if link is not None:
            client_loop().soon(link.unwatch, run_id, mailbox.put, mailbox.break_off)

    def close(self) -> None:
        """Close all connections; clusters and runs go on."""
        with self._guard:
            links, self._links = list(self._links.values()), {}
        for link in links:
            self._call(link.close(), 5.0)
        close_client_loop()

    def _revived(self, name: str) -> ControllerLink:
        if read_connection(name) is None:
            self._start_or_join(name)
        try:
            return self._link(name)
        except ControllerError:
            raise
        except ClusterError as error:  # it has died in this very moment
            raise ControllerError(error.message) from error

    def _start_or_join(self, name: str, on_phase: Callable[[str], None] = lambda _: None) -> None:
        """Start a cluster as it was before; another process may do so at the same moment."""
        current, spec = self.current, remembered_spec(name)
        if spec is None and name != _DEFAULT and self._joined(name, on_phase):
            return
        with self._guard:
            try:
                self.start(spec or ClusterSpec(name=name), on_phase, "either")
            except ClusterError:
                if read_connection(name) is None:
                    raise
            self.current = current

    def _joined(self, name: str, on_phase: Callable[[str], None]) -> bool:
        """Whether a cluster that this host has never started runs elsewhere, and is here now.

        Raises
        ------
        ClusterError
            Nobody knows whether it does.
        """
        troubles = join_named(name, on_phase)
        if read_connection(name) is None and troubles:
            raise ClusterError(
                f"cluster {name} does not run on this host, and may run elsewhere: "
                f"{'; '.join(troubles)}"
            )
        return read_connection(name) is not None

    def _link(self, name: str) -> ControllerLink:
        with self._guard:
            info = self.info(name)
            link = self._links.get(name)
            if link is not None and (link.closed.is_set() or link.info != info):
                self._call(link.close(), 5.0)
                link = None
            if link is None:
                link = self._call(ControllerLink.open(info), 10.0)
                self._links[name] = link
            return link

    def _call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
        return client_loop().call(coroutine, timeout_s)


def _wanted_of(running: Sequence[str]) -> str:
    """Which cluster a process uses that has chosen none."""
    chosen = chosen_name()
    if chosen in running:
        return chosen
    if not running or _DEFAULT in running:
        return _DEFAULT
    if len(running) == 1:
        return running[0]
    raise ClusterError(
        f"several clusters are running: {', '.join(running)}; `%cluster attach NAME` chooses one "
        f"for this notebook, with --always for all that follow"
    )


def choose_cluster(name: str) -> None:
    """Let whoever has not chosen a cluster use this one while it runs."""
    write_whole(_chosen_path(), name.encode())


def chosen_name() -> str:
    """The cluster of :func:`choose_cluster`, which may run no more; empty: none was chosen."""
    try:
        return _chosen_path().read_text(errors="replace")
    except OSError:
        return ""


def _chosen_path() -> Path:
    return runtime_dir() / "chosen-cluster"


_session: Session | None = None


def session() -> Session:
    """The process's session."""
    global _session
    if _session is None:
        _session = Session()
        atexit.register(_session.close)
    return _session
