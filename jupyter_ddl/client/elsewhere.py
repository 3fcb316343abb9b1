"""This user's clusters that run elsewhere: found by their services, and joined from here.

A service is asked when something was not found here or a list is shown, and only where it is
configured: who uses clusters of this host alone waits for none.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jupyter_ddl.backends.base import BackendPlugin, FoundCluster, backend_plugin
from jupyter_ddl.client.link import client_loop
from jupyter_ddl.client.start import start_controller
from jupyter_ddl.errors import ClusterError, JupyterDDLError, PluginError
from jupyter_ddl.plugins import BACKENDS
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.store.connection import list_connections, read_connection

__all__ = [
    "Joining",
    "begin_joining",
    "clusters_elsewhere",
    "delete_elsewhere",
    "delete_named",
    "find_joinable",
    "is_joinable",
    "join_cluster",
    "join_elsewhere",
    "join_named",
]

OnPhase = Callable[[str], None]

_CALL_S = 30.0
_LOOK_S = 5.0
"""A list, or a run that is looked for, waits no longer for clusters elsewhere."""
_MARGIN_S = 5.0
"""A loop that is held up notices a deadline later."""
_AGAIN_S = 60.0
"""Who could not be asked or joined is not tried again by a list within this time."""


# What services know.


def clusters_elsewhere() -> Iterator[FoundCluster | ClusterError]:
    """This user's clusters that services know and no controller or mirror of this host stands for.

    For a service that can't be asked there is the error in their place.
    """
    plugins: list[BackendPlugin] = []
    for name in BACKENDS.names():
        try:
            plugins.append(backend_plugin(name))
        except PluginError as error:
            yield _not_listed(name, error.message)
    for plugin, found in _ask(plugins, _CALL_S):
        if isinstance(found, ClusterError):
            yield _not_listed(plugin.name, found.message)
        else:
            yield from found


def is_joinable(found: FoundCluster) -> bool:
    """Whether it can be used from here, too: its controller runs beside it."""
    return backend_plugin(found.backend).has_controller_host


def delete_elsewhere(found: FoundCluster) -> None:
    """End a cluster by its service alone; its controller, if it lives, loses it.

    Raises
    ------
    ClusterError
        The service refused.
    """
    client_loop().call(backend_plugin(found.backend).delete_elsewhere(found), _CALL_S)


def delete_named(backend: str, name: str) -> None:
    """The same for that of a name, where nobody of this host stands for it any more.

    Without effect if its service knows none.

    Raises
    ------
    ClusterError
        The service refused, or can't be asked.
    """
    for _, found in _ask([backend_plugin(backend)], _CALL_S):
        if isinstance(found, ClusterError):
            raise ClusterError(
                f"nobody knows whether cluster {name} has ended: backend {backend} can't be asked "
                f"({found.message}); `%cluster list` shows it when it can, then stop it again"
            )
        for each in found:
            if each.name == name:
                delete_elsewhere(each)


def _ask(
    plugins: list[BackendPlugin], timeout_s: float
) -> Iterator[tuple[BackendPlugin, list[FoundCluster] | ClusterError]]:
    """What each service says, all asked at once."""
    asked = [(plugin, client_loop().begin(_found(plugin, timeout_s))) for plugin in plugins]
    try:
        for plugin, future in asked:
            try:
                found = future.result(timeout_s + _MARGIN_S)
            except TimeoutError:
                yield plugin, ClusterError(f"no answer within {timeout_s:g} s")
            except ClusterError as error:
                yield plugin, error
            else:
                yield plugin, [each for each in found if not _is_here(plugin, each)]
    finally:
        for _, future in asked:
            future.cancel()


async def _found(plugin: BackendPlugin, timeout_s: float) -> list[FoundCluster]:
    """Ends on its own loop: one that is given up from outside may be left behind at the end."""
    async with asyncio.timeout(timeout_s):
        return await plugin.find_elsewhere()


def _is_here(plugin: BackendPlugin, found: FoundCluster) -> bool:
    running = list_connections()
    if plugin.has_controller_host:
        return any((each.name, each.backend) == (found.name, plugin.name) for each in running)
    return any(each.process.token == found.owner for each in running)


def _not_listed(backend: str, why: str) -> ClusterError:
    return ClusterError(f"clusters of backend {backend} are not listed: {why}")


@dataclass(frozen=True)
class _Refusal:
    """What was said by whom could not be asked."""

    text: str
    at_s: float
    """Monotonic."""

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self.at_s < _AGAIN_S


_refusals: dict[str, _Refusal] = {}
"""By backend."""


def find_joinable(*, anew: bool = False) -> Iterator[FoundCluster | ClusterError]:
    """Those of :func:`clusters_elsewhere` that can be joined; takes 5 s at most.

    Parameters
    ----------
    anew : bool
        Whether a service is asked that could not be asked a moment ago.
    """
    plugins: list[BackendPlugin] = []
    for name in BACKENDS.names():
        try:
            plugin = backend_plugin(name)
        except PluginError:
            continue  # `%cluster list` tells of it
        known = _refusals.get(name)
        if not plugin.has_controller_host or plugin.missing():
            continue
        if known is not None and known.is_fresh and not anew:
            yield _not_listed(name, known.text)
        else:
            plugins.append(plugin)
    for plugin, found in _ask(plugins, _LOOK_S) if plugins else ():
        if isinstance(found, ClusterError):
            _refusals[plugin.name] = _Refusal(found.message, time.monotonic())
            yield _not_listed(plugin.name, found.message)
        else:
            yield from found


# Joining: a mirror of the cluster's controller is started here, and copies its runs.


def join_cluster(found: FoundCluster, on_phase: OnPhase = lambda _: None) -> None:
    """Have a cluster elsewhere stand among those of this host; returns when its runs are here.

    Raises
    ------
    JupyterDDLError
        It can't be joined; one sentence says why, and nothing is left running.
    """
    spec = ClusterSpec(found.name, found.backend, settings=found.settings)
    try:
        start_controller(spec, on_phase, "join")
    except ClusterError:
        # Another kernel may have done so in the same moment.
        if read_connection(found.name) is None:
            raise


def join_named(name: str, on_phase: OnPhase = lambda _: None) -> list[str]:
    """Join the cluster of this name if there is one elsewhere; lines on whom could not be asked.

    Raises
    ------
    JupyterDDLError
        There is one, and it can't be joined.
    """
    troubles = []
    for each in find_joinable(anew=True):
        if isinstance(each, ClusterError):
            troubles.append(each.message)
        elif each.name == name:
            on_phase(f"cluster {name} runs in {each.place}: connecting to it")
            join_cluster(each, on_phase)
            return []
    return troubles


class Joining:
    """An attempt to join a cluster, in a thread: whoever wants it meanwhile waits for the same."""

    def __init__(self, found: FoundCluster) -> None:
        self.trouble = ""
        self.began_s = self.ended_s = time.monotonic()
        self._found = found
        self._over = threading.Event()
        name = f"jupyter-ddl-join-{found.name}"
        threading.Thread(target=self._join, name=name, daemon=True).start()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    @property
    def has_just_failed(self) -> bool:
        """What succeeded may have ended since, and what failed long ago may be possible now."""
        return bool(self.trouble) and time.monotonic() - self.ended_s < _AGAIN_S

    def outcome(self, within_s: float) -> str:
        """What hinders it, so many seconds after its beginning at most; empty: it is here."""
        which = f"cluster {self._found.name} in {self._found.place}"
        if not self._over.wait(max(0.0, self.began_s + within_s - time.monotonic())):
            return (
                f"{which} has not answered within {within_s:g} s and is still being connected to; "
                f"`%cluster attach {self._found.name}` waits for it"
            )
        return f"{which} can't be asked: {self.trouble}" if self.trouble else ""

    def _join(self) -> None:
        try:
            join_cluster(self._found)
        except JupyterDDLError as error:
            self.trouble = error.message
        except OSError as error:
            self.trouble = str(error)
        finally:
            self.ended_s = time.monotonic()
            self._over.set()


_joining: dict[tuple[str, str], Joining] = {}
"""By backend and name."""
_guard = threading.Lock()


def begin_joining(found: FoundCluster, *, anew: bool = True) -> Joining:
    """Begin to join a cluster, unless somebody in this process does so already.

    Parameters
    ----------
    anew : bool
        Whether it is tried again if it has failed within the last minute.
    """
    with _guard:
        key = found.backend, found.name
        known = _joining.get(key)
        if known is None or (known.is_over and (anew or not known.has_just_failed)):
            known = _joining[key] = Joining(found)
        return known


def join_elsewhere(
    on_phase: OnPhase = lambda _: None, *, name: str | None = None, anew: bool = False
) -> list[str]:
    """Join this user's clusters that run elsewhere, all at once: their runs are here then.

    Takes ten seconds at most, five of them to find clusters.  One that takes longer is joined
    all the same, and is here at the next look.

    Parameters
    ----------
    name : str, optional
        Only a cluster of this name.
    anew : bool
        Whether who could not be asked or joined a moment ago is tried again.

    Returns
    -------
    list of str
        One line for each service or cluster that could not be asked.
    """
    lines: list[str] = []
    attempts: list[Joining] = []
    for each in find_joinable(anew=anew):
        if isinstance(each, ClusterError):
            lines.append(each.message)
        elif name in (None, each.name):
            on_phase(f"asking cluster {each.name} in {each.place} for its runs")
            attempts.append(begin_joining(each, anew=anew))
    return [*lines, *(line for each in attempts if (line := each.outcome(_LOOK_S)))]
