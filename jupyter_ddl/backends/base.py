"""What a backend has to provide, for clients and in the controller; the limits on cluster sizes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar

import msgspec

from jupyter_ddl.errors import ClusterError, OptionError
from jupyter_ddl.grammar import Argument, Group
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.plugins import BACKENDS
from jupyter_ddl.protocol.cluster import MAX_WORKERS, ClusterSpec
from jupyter_ddl.protocol.reading import converted

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "MAX_CPUS",
    "MIN_WORKER_BYTES",
    "Backend",
    "BackendPlugin",
    "ControllerHost",
    "Finding",
    "FoundCluster",
    "NoSettings",
    "OnPhase",
    "Report",
    "backend_plugin",
    "check_size",
    "make_backend",
    "n_local_workers",
    "settings_of",
]


# What a backend is: where the workers of a cluster come from.
#
# Two classes for two processes.  A :class:`BackendPlugin` is asked by clients (a kernel, the
# terminal, Jupyter's server): which options the backend takes, what they mean, what is missing
# before a start.  It starts nothing but what :meth:`BackendPlugin.prepare` says.  A
# :class:`Backend` is made by it in the controller and holds one cluster, from its start to its
# end.
#
# A package adds a backend by the entry point group ``jupyter_ddl.backends``: a name, and a class
# derived from :class:`BackendPlugin`.  ``jupyter_ddl.testing.backends`` has the tests that each one
# is to pass.

OnPhase: TypeAlias = Callable[[str], None]
"""Gets what is done now, or waited for: one short sentence, without a full stop."""
S = TypeVar("S", bound=msgspec.Struct)


class Backend(ABC):
    """One cluster: a Dask scheduler and its workers.

    **Who calls what, when.**  All calls come from the controller's event loop, and none of them may
    block it.  ``start`` is called once, and nothing but ``close`` and the properties before it has
    returned.  From then on ``repair`` is called about once a second and ``scale`` at any time,
    never both at once.  ``close`` may be called at any time and more than once, also before, amid
    and after a ``start`` that failed.  Properties are read many times a second: they only look at
    what is known.

    **Deadlines.**  ``start`` keeps ``spec.start_timeout_s`` itself.  ``scale`` and ``repair`` are
    cancelled after 60 s, ``close`` after 15 s.  ``start`` may be cancelled whenever it waits.

    **What must be gone.**  When ``start`` has raised, for whatever reason, nothing that it began is
    left: no process, no object of a service, no connection.  After ``close`` the same holds for all
    that ``start``, ``scale`` and ``repair`` have made, while workers that are not the backend's
    own (``owns_workers``) are as they were found.  What a controller that was killed has left is
    ended by the next ``start`` of the same cluster's name.
    """

    client: Client
    """Connected to the scheduler: set by ``start``, and another one after ``repair`` has found a
    new scheduler.  While the scheduler is lost, its ``status`` is not ``running``."""

    @abstractmethod
    async def start(self, on_phase: OnPhase) -> None:
        """Bring up scheduler and workers; returns with a scheduler that answers.

        Raises
        ------
        ClusterError
            It can't be done, or not in time.  One sentence: what was tried, what is in the way,
            what to do.
        """

    @abstractmethod
    async def scale(self, n_workers: int, keep: Sequence[str]) -> None:
        """Ask for ``n_workers``; when shrinking, the addresses in ``keep`` go last.

        Returns when it was asked for: workers may come and go later.

        Raises
        ------
        ClusterError
            The number can't be changed, now or at all.
        """

    @abstractmethod
    async def close(self) -> None:
        """End everything that this backend has started."""

    async def leave(self) -> None:
        """As ``close``, where the controller ends and another one takes its place at once.

        What can go on without it does.
        """
        await self.close()

    @property
    @abstractmethod
    def n_wanted(self) -> int:
        """Workers asked for; known from the beginning."""

    @property
    def node_labels(self) -> Mapping[str, str]:
        """Labels that the machines of all workers have, as far as it was asked for."""
        return {}

    def take_notices(self) -> list[str]:
        """What the users of runs are to know of the machines, each once: that one is to go."""
        return []

    async def repair(self) -> None:
        """Replace workers that are lost for good, and find a lost scheduler again."""
        return

    @property
    def age_s(self) -> float:
        """How old the cluster was when ``start`` has returned: it may outlive controllers."""
        return 0.0

    @property
    def owns_workers(self) -> bool:
        """Whether the workers are this backend's; others are never scaled, and left as found."""
        return True

    @property
    def shared_filesystem(self) -> bool:
        """Whether workers see the controller's run directories and blobs."""
        return False

    @property
    def hosts_scheduler(self) -> bool:
        """Whether ``start`` makes the scheduler in this process.

        Where it does not, the controller unpickles nothing that comes over a connection.  Only a
        backend whose workers are on this host, as this user, may do so.
        """
        return self.shared_filesystem

    @property
    def address(self) -> str:
        """Of the scheduler, as people know it; empty while there is none."""
        return str(getattr(self.client.scheduler, "address", ""))

    @property
    def has_clients_here(self) -> bool:
        """Whether clients see the files of this process.

        Elsewhere a mirror has copies of its runs, and writes beside those what is for people's
        eyes, as event files of TensorBoard are.
        """
        return True

    @property
    def slots_per_worker(self) -> int:
        """Ranks side by side in each worker that will come."""
        return 1

    @property
    def packages_from(self) -> str:
        """What brings the workers' packages, as an image's reference does; empty: not known."""
        return ""

    @property
    def image(self) -> str:
        """What the image of the workers was resolved to, with its digest; empty: there is none."""
        return ""

    @property
    def trouble(self) -> str:
        """What keeps the cluster from working as it should, in one line; empty: nothing does.

        Asked only between ``start`` and ``close``.
        """
        return ""


class ControllerHost(ABC):
    """Where the controller of one cluster runs that is not on this host.

    Made and used in a mirror (:mod:`jupyter_ddl.mirror`), which stands for that controller here.
    All calls come from its event loop, ``connect`` and ``missing`` also side by side.  A cluster
    that was started goes on without anybody here; ``close`` gives up connections only.
    """

    @abstractmethod
    async def start(self, on_phase: OnPhase) -> None:
        """Bring up a new cluster; returns when its controller lets itself be connected to.

        Keeps ``spec.start_timeout_s``.  When it has raised, for whatever reason, nothing that it
        began is left.

        Raises
        ------
        ClusterError
            It can't be done, or a cluster of this user and name is there.
        """

    @abstractmethod
    async def join(self) -> ClusterSpec | None:
        """Find the cluster of this user and name; returns what it was started with.

        None: there is none.

        Raises
        ------
        ClusterError
            Nobody could be asked, or it may not be used from here.
        """

    @abstractmethod
    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the controller, which both ends have proved who they are on.

        Raises
        ------
        ClusterError
            It can't be had now; one clause says why.
        """

    @abstractmethod
    async def missing(self) -> str:
        """Why there is no cluster any more, in one clause; empty: it is there, or nobody knows."""

    @abstractmethod
    async def end(self) -> None:
        """End the cluster with all that belongs to it, and wait until nothing is left.

        Raises
        ------
        ClusterError
            It can't be done.
        """

    @abstractmethod
    async def close(self) -> None:
        """Give up what connects to the cluster; may be called at any time and more than once."""

    @property
    def keeps_runs(self) -> bool:
        """Whether the controller's files outlive the loss of its machine.

        Known when ``start`` or ``join`` has returned.  Where they do not, checkpoints are copied
        as they come, so that runs can go on from them.
        """
        return True

    @property
    def place(self) -> str:
        """Where the cluster is: one of the same name in another place is another one.

        Known when ``start`` or ``join`` has returned.
        """
        return ""

    async def reachable(self, address: str) -> str:
        """The scheduler's address as this host reaches it."""
        return address


# -- what clients ask ------------------------------------------------------------------------------

Verdict: TypeAlias = Literal["ok", "broken", "unknown"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that a doctor has looked at."""

    what: str
    verdict: Verdict
    text: str = ""


class Report(msgspec.Struct, frozen=True):
    """What a doctor says."""

    findings: tuple[Finding, ...] = ()
    """In the order in which a start needs the things."""
    text: str = ""
    """What was asked for in place of an examination."""

    @property
    def is_broken(self) -> bool:
        return any(each.verdict == "broken" for each in self.findings)

    def __str__(self) -> str:
        return self.text or "\n".join(
            f"{each.verdict:<8}{each.what}: {each.text}" for each in self.findings
        )


class FoundCluster(msgspec.Struct, frozen=True):
    """A cluster of this user's that the service knows, whoever has started it."""

    backend: str
    name: str
    place: str
    """Where it is, in the service's own words."""
    n_workers: int
    """Asked for."""
    owner: str
    """Token of its controller's process; empty where the service does not know it."""
    handle: str
    """What the backend needs to end it."""
    settings: dict[str, Any] = {}
    """What it needs to join it: of its own part of the spec, where to look."""


class NoSettings(msgspec.Struct, frozen=True):
    """Of a backend that has no options of its own."""


class BackendPlugin(ABC):
    """What clients know of a backend without starting one.

    Importing its module must be cheap, and possible where the packages that the backend needs are
    not installed: ``%cluster start --help`` and Tab do it.  Methods are called from any thread;
    ``async`` ones are cancelled after 30 s.
    """

    name: str = ""
    """As in ``%cluster start NAME``; set by whoever looks it up."""
    purpose: ClassVar[str] = "Starts workers where its package says."
    """What a start does, in one sentence, for forms."""
    command: ClassVar[Literal["start", "connect"]] = "start"
    """The command of ``%cluster`` that takes this backend."""
    arguments: ClassVar[tuple[Argument | Group, ...]] = ()
    """Options of a start that only this backend has; each fills the field of its name."""
    settings_type: ClassVar[type[msgspec.Struct]] = NoSettings
    """What the options come to: the backend's own part of the spec, with defaults."""
    doctor_arguments: ClassVar[tuple[Argument | Group, ...]] = ()
    """Options of ``%cluster doctor`` beside those of a start."""
    start_timeout_s: ClassVar[float] = 60.0
    """How long a start may take at most."""
    requires: ClassVar[str] = ""
    """What pip is to install if a package is missing; empty: the package itself."""
    has_controller_host: ClassVar[bool] = False
    """Whether controllers run where :meth:`controller_host` says, not on the host of clients."""
    stopped: ClassVar[str] = "has ended"
    """What became of a cluster that was stopped, in the words of people."""

    def settings(self, **values: Any) -> msgspec.Struct:
        """What options come to; those that were not given are None, empty or left out.

        Raises
        ------
        OptionError
            There is no such option, or its value is not one.
        ClusterError
            A file that an option names can't be read.
        """
        given = {name: value for name, value in values.items() if value not in (None, [])}
        known = self.settings_type.__struct_fields__
        for name in given:
            if name not in known:
                raise OptionError(
                    f"backend {self.name!r} has no option {name!r}; it has "
                    f"{', '.join(known) or 'none'}{did_you_mean(name, known)}"
                )
        try:
            return converted(given, self.settings_type)
        except msgspec.ValidationError as error:
            raise OptionError(f"backend {self.name!r}: {error}") from None

    def missing(self) -> str:
        """Why nothing can be started here, and what helps; empty: nothing is known to be missing.

        Looks at what is installed and configured, and asks no service.
        """
        return ""

    def prepare(self, spec: ClusterSpec, on_phase: OnPhase) -> ClusterSpec:
        """Get ready what a start needs from here, as an image that is built; may take long.

        Called before there is a controller.  What it makes may stay.

        Raises
        ------
        JupyterDDLError
            The spec can't be started; nothing else has happened yet.
        """
        return spec

    async def examine(self, spec: ClusterSpec, **values: Any) -> Report:
        """What a start of ``spec`` would lack; creates nothing.

        Parameters
        ----------
        **values
            Of :attr:`doctor_arguments`.
        """
        self.prepare(spec, lambda _: None)
        return Report((Finding("options", "ok", "nothing else is checked"),))

    async def find_elsewhere(self) -> list[FoundCluster]:
        """This user's clusters that the service knows, by name; none where there is no service.

        Raises
        ------
        ClusterError
            The service can't be asked.
        """
        return []

    async def delete_elsewhere(self, found: FoundCluster) -> None:
        """End a cluster whose controller is not here.

        Raises
        ------
        ClusterError
            The service refused.
        """
        raise ClusterError(f"clusters of backend {self.name!r} end where they were started")

    def controller_host(self, spec: ClusterSpec) -> ControllerHost:
        """Where the controller of such a cluster runs, if ``has_controller_host``.

        Raises
        ------
        ClusterError
            The spec is not one of this backend.
        """
        raise ClusterError(f"controllers of backend {self.name!r} run where their clients do")

    def enter_controller(self, spec: ClusterSpec) -> None:
        """Called first in a controller, while it has one thread: a fork of it goes here."""
        return

    @abstractmethod
    def make(self, spec: ClusterSpec) -> Backend:
        """A backend, not started.  Called once, in the controller, which has a process to itself.

        Raises
        ------
        ClusterError
            The spec is not one of this backend.
        ImportError
            A package is missing.
        """


def backend_plugin(name: str) -> BackendPlugin:
    """The plug-in of this name.

    Raises
    ------
    OptionError
        There is none; gives the nearest name.
    PluginError
        It can't be imported.
    """
    plugin: BackendPlugin = BACKENDS.load(name)()
    plugin.name = name
    return plugin


def make_backend(spec: ClusterSpec) -> Backend:
    """The backend of a cluster, not started.

    Raises
    ------
    OptionError
        There is no backend of this name.
    ClusterError
        A package that it needs is missing, or the spec is not one of it.
    """
    plugin = backend_plugin(spec.backend)
    try:
        return plugin.make(spec)
    except ModuleNotFoundError as error:
        raise ClusterError(
            f"cluster backend {spec.backend!r} needs the package {error.name}, which is not "
            f"installed; `pip install '{plugin.requires or error.name}'` where the notebook runs"
        ) from None


def settings_of(spec: ClusterSpec, kind: type[S]) -> S:
    """The backend's own part of a spec.

    Raises
    ------
    ClusterError
        It was written by another version.
    """
    try:
        return converted(spec.settings, kind)
    except msgspec.ValidationError as error:
        raise ClusterError(
            f"the settings of cluster {spec.name} do not fit backend {spec.backend!r}: {error}"
        ) from None


MAX_CPUS = 1024
_MIN_MEMORY_BYTES = 64 * 10**6
_MAX_MEMORY_BYTES = 64 * 10**12
_MAX_LEASE_S = 365 * 86400

MIN_WORKER_BYTES = 900 << 20
"""A worker, its zygote with torch imported and one rank: measured at 0.6-0.8 GB."""


def n_local_workers(cpus: int, memory_bytes: int, cpus_per_worker: int) -> int:
    """Number of workers: one per ``cpus_per_worker``, fewer where memory is short, at least 1."""
    by_cpu = cpus // max(1, cpus_per_worker)
    by_memory = memory_bytes // MIN_WORKER_BYTES
    return int(max(1, min(by_cpu, by_memory)))


def check_size(spec: ClusterSpec) -> None:
    """Refuse sizes that no cluster of any kind has, before a process is started for it.

    Raises
    ------
    ClusterError
        Names the value, what is expected, and the unit that was left out perhaps.
    """
    n_workers, memory_bytes = spec.n_workers, spec.memory_per_worker_bytes
    if n_workers is not None and not 0 <= n_workers <= MAX_WORKERS:
        raise ClusterError(f"{n_workers:,} workers were asked for; expected 0 to {MAX_WORKERS:,}")
    if not 1 <= spec.cpus_per_worker <= MAX_CPUS:
        raise ClusterError(f"--cpus {spec.cpus_per_worker}: expected 1 to {MAX_CPUS}")
    for option, seconds in (
        ("--idle-timeout", spec.idle_timeout_s),
        ("--max-age", spec.max_age_s),
    ):
        if not 1 <= seconds <= _MAX_LEASE_S:  # nor what is not a number
            raise ClusterError(f"{option} is {seconds:g} s; expected 1s to 365d")
    if memory_bytes is None or _MIN_MEMORY_BYTES <= memory_bytes <= _MAX_MEMORY_BYTES:
        return
    unit = "GB" if memory_bytes < 1000 else "MB" if memory_bytes < 10**6 else ""
    hint = f" (did you mean {memory_bytes}{unit}?)" if unit else ""
    raise ClusterError(f"--memory is {memory_bytes:,} bytes; expected 64MB to 64TB{hint}")
