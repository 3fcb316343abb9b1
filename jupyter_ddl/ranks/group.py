"""A rank's membership in its rank group: the store, the environment, the process group.

Everything is new for every round.  Rank 0 opens the store and announces where it is; no rank dials
an address before its owner has told it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import psutil

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.assignment import TrialAssignment
from jupyter_ddl.protocol.events import RendezvousReady
from jupyter_ddl.protocol.group import JoinGroup, RankPlace
from jupyter_ddl.protocol.reading import from_json
from jupyter_ddl.ranks.frameworks.environment import framework_environment
from jupyter_ddl.ranks.gpus import choose_device
from jupyter_ddl.ranks.group_store import (
    StoreFile,
    free_port,
    hold_port,
    join_store,
    open_store,
)
from jupyter_ddl.ranks.group_votes import GroupVotes
from jupyter_ddl.ranks.imports import after_import
from jupyter_ddl.ranks.launchers import replace_launchers
from jupyter_ddl.ranks.membership import membership
from jupyter_ddl.ranks.remote_calls import close_services
from jupyter_ddl.ranks.rendezvous import Recorded, Rendezvous, Tell, end_process_groups

__all__ = ["GroupPorts", "RankGroup", "group_environment", "tell_jax"]


# Tells JAX of the rank group, so that ``jax.distributed.initialize()`` needs no arguments.
#
# JAX (0.10) reads the coordinator's address from the environment, but neither how many processes
# there are nor which one this is: it asks the clusters that it knows, and lets others be added by
# deriving from its ``ClusterEnv``.

_NAME = "jupyter_ddl"


def tell_jax() -> None:
    """Add this rank group to what JAX asks, in front: before a Slurm that the worker runs in.

    Where JAX is not imported, or has no such interface in its version, the cell must call
    ``jax.distributed.initialize(num_processes=world_size(), process_id=rank())``.
    """
    clusters = sys.modules.get("jax._src.clusters")
    base: Any = getattr(clusters, "ClusterEnv", None)
    known = getattr(base, "_cluster_types", None)
    if not isinstance(known, list) or any(each.name == _NAME for each in known):
        return
    offered = type("RankGroupCluster", (base,), {"name": _NAME, **_METHODS})
    known[:] = [offered, *(each for each in known if each is not offered)]


def _is_env_present(_: Any) -> bool:
    return "JAX_PROCESS_ID" in os.environ


def _coordinator_address(_: Any, /, **_options: Any) -> str:
    return os.environ["JAX_COORDINATOR_ADDRESS"]


def _process_count(_: Any) -> int:
    return int(os.environ["JAX_NUM_PROCESSES"])


def _process_id(_: Any) -> int:
    return int(os.environ["JAX_PROCESS_ID"])


def _local_process_id(_: Any) -> int | None:
    """One GPU per rank by its local rank; on the CPU every rank has its own devices."""
    return int(os.environ["LOCAL_RANK"]) if os.environ.get("CUDA_VISIBLE_DEVICES") else None


_METHODS = {
    "is_env_present": classmethod(_is_env_present),
    "get_coordinator_address": classmethod(_coordinator_address),
    "get_process_count": classmethod(_process_count),
    "get_process_id": classmethod(_process_id),
    "get_local_process_id": classmethod(_local_process_id),
}


class GroupPorts(msgspec.Struct, frozen=True):
    """Ports at rank 0's host that the group's own store does not have."""

    master: int
    """For torch in processes that a rank starts."""
    coordinator: int
    """For another framework."""


# The environment variables by which frameworks find the other ranks of a group.  Pure.

_LOOPBACK = "127.0.0.1"


def group_environment(
    place: RankPlace, addresses: Sequence[str], ports: GroupPorts | None
) -> dict[str, str]:
    """Variables of torchrun, of TensorFlow's ``TF_CONFIG``, and of JAX.

    Parameters
    ----------
    addresses : sequence of str
        ``host:port`` by rank.  With torch, the first port is the store's.
    ports : GroupPorts, optional
        With torch: free ports at rank 0's host.
    """
    host, _, port = addresses[0].rpartition(":")
    coordinator = addresses[0] if ports is None else f"{host}:{ports.coordinator}"
    workers = [_url(address) for address in (coordinator, *addresses[1:])]
    variables = {
        "RANK": place.rank,
        "LOCAL_RANK": place.local_rank,
        "WORLD_SIZE": place.world_size,
        "LOCAL_WORLD_SIZE": place.local_world_size,
        "GROUP_RANK": place.group_rank,
        "GROUP_WORLD_SIZE": place.n_hosts,
        "ROLE_RANK": place.rank,
        "ROLE_WORLD_SIZE": place.world_size,
        "ROLE_NAME": "default",
        "MASTER_ADDR": host,
        "MASTER_PORT": port if ports is None else ports.master,
        "TORCHELASTIC_RUN_ID": place.group_id,
        "TORCHELASTIC_RESTART_COUNT": place.restart_count,
        "TORCHELASTIC_MAX_RESTARTS": place.max_restarts,
        # Nobody listens at the master's port yet: a script that a rank starts opens it itself.
        "TORCHELASTIC_USE_AGENT_STORE": False,
        "TF_CONFIG": json.dumps(
            {"cluster": {"worker": workers}, "task": {"type": "worker", "index": place.rank}}
        ),
        # JAX reads the address only; how many and which one it asks worker.jax_cluster.
        "JAX_COORDINATOR_ADDRESS": workers[0],
        "JAX_NUM_PROCESSES": place.world_size,
        "JAX_PROCESS_ID": place.rank,
    }
    # Else JAX's coordinator listens on all interfaces.
    variables["JAX_COORDINATOR_BIND_ADDRESS"] = workers[0]
    return {name: str(value) for name, value in variables.items()}


def interface_environment(host: str) -> dict[str, str]:
    """On which network interface gloo and NCCL are to listen: the one that has this address.

    Else gloo asks for the host's name, which may resolve to another interface or to none that is
    up, and NCCL takes the first.
    """
    names = [
        name
        for name, addresses in psutil.net_if_addrs().items()
        if any(address.address.partition("%")[0] == host for address in addresses)
    ]
    # The last is torch's RPC: else it takes the address of the host's name.
    variables = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
    return {name: names[0] for name in variables if names}


def _url(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"[{host}]:{port}" if ":" in host else address


_LEAVE_TIMEOUT_S = 10.0
_POLL_S = 0.2
_PORTS = "jupyter_ddl/ports"
"""Where rank 0 says which ports are free."""


class RankGroup:
    """Used on the rank's main thread: ``enter``, the cell, ``leave``.

    Parameters
    ----------
    joins : queue.SimpleQueue
        Where the control thread puts the answer to the announcement.
    tell : callable
        Takes a sentence that the user should see while the cell runs.
    recorded : callable
        A context within which connections of process groups are made.
    """

    def __init__(
        self,
        place: RankPlace,
        trial: TrialAssignment,
        announce: Callable[[RendezvousReady], None],
        joins: queue.SimpleQueue[JoinGroup],
        tell: Tell,
        recorded: Recorded = contextlib.nullcontext,
    ) -> None:
        self._place = place
        self._trial = trial
        self._announce = announce
        self._joins = joins
        self._tell = tell
        self._recorded = recorded
        self._file: StoreFile | None = None
        self._shared_path = ""
        """Of ranks of one host but the first: where their store is."""
        self._store: Any = None
        self._rendezvous: Rendezvous | None = None
        self._initialized = False
        self.store_port = 0
        """Where the ranks of several hosts have their store."""

    def enter(self, *, with_torch: bool) -> None:
        """Meet the other ranks.

        Raises
        ------
        LaunchError
            The others were not there by the deadline.
        """
        place, trial = self._place, self._trial
        is_first, is_local = place.rank == 0, place.is_on_one_host
        membership.begin(place.absent)
        own = _LOOPBACK if is_local else place.hosts[place.group_rank]
        if is_first and is_local:
            self._file = StoreFile()
        port = 0
        if is_first and with_torch:
            self._store, port = open_store(own, place, self._file)
            self._master = hold_port(own)
            ports = GroupPorts(self._master.getsockname()[1], free_port(own))
            self._store.set(_PORTS, msgspec.json.encode(ports))
        path = "" if self._file is None else self._file.shared_path
        ready = RendezvousReady(trial.trial, trial.attempt, own, port or free_port(own), path)
        self._announce(ready)
        joined = self._wait_for_join()
        if is_local and not is_first:
            self._shared_path = joined.store
            # Rank 0 may be through with its cell, and its file gone, where nobody asks for it.
            with contextlib.nullcontext() if with_torch else contextlib.suppress(LaunchError):
                self._file = StoreFile(joined.store)
        if not is_local:
            self.store_port = int(joined.addresses[0].rpartition(":")[2])
        if with_torch:
            self._use_torch(joined.addresses)
            ports = from_json(self._store.get(_PORTS), GroupPorts)
        os.environ.update(group_environment(place, joined.addresses, ports if with_torch else None))
        found = {**interface_environment(own), **framework_environment(place)}
        for name, value in found.items():
            os.environ.setdefault(name, value)
        after_import("jax._src.clusters", tell_jax)
        close_services()
        replace_launchers(place)
        if not with_torch and is_local:
            # Code that meets by torch all the same finds the others as well.
            after_import("torch.distributed", lambda: self._use_torch(joined.addresses))
        # Who joins later can't be in a process group of all, nor can the others be without it.
        if with_torch and place.initialize and place.life == 1 and not place.absent:
            self._initialize()

    def rejoin(self, round_id: str) -> None:
        """Replace the process group, if there is one; all ranks do this together.

        The store stays: with a new ``round_id``, nothing of the former group is met in it.
        """
        if self._rendezvous is None:
            return
        self._rendezvous.renew(round_id)
        if not self._initialized:
            return
        end_process_groups(self._tell)
        self._initialize()

    def votes(self) -> GroupVotes | None:
        """What the ranks decide by together; None for a group that has no store."""
        place = self._place
        if self._store is None:
            return None
        return GroupVotes(self._store, place.rank, place.n_workers)

    def leave(self) -> None:
        """After the cell: wait for the others to be done with the store, then take leave."""
        if self._store is None or self._place.life > 1:
            return  # of one that came back nobody waits for the end
        with contextlib.suppress(RuntimeError):  # a rank that failed has taken the store along
            n_left = self._store.add("jupyter_ddl/left", 1)
            deadline = time.monotonic() + _LEAVE_TIMEOUT_S
            while self._place.rank == 0 and n_left < self._n_there:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.002)
                n_left = self._store.add("jupyter_ddl/left", 0)
        # This process ends now, which closes what gloo has open in no time; undoing it in order
        # takes 15 ms.  NCCL must be told.
        if self._initialized and _backend(self._place) != "gloo":
            end_process_groups(self._tell)
        if self._file is not None:
            self._file.remove()

    @property
    def _n_there(self) -> int:
        return sum(life == 1 for life in membership.lives(self._place.world_size).values())

    def _wait_for_join(self) -> JoinGroup:
        deadline = time.monotonic() + self._place.timeout_s
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                join = self._joins.get(timeout=min(left, _POLL_S))
                if (join.trial, join.attempt) == (self._trial.trial, self._trial.attempt):
                    return join
        raise LaunchError(
            f"rank {self._place.rank} of {self._place.world_size} waited "
            f"{self._place.timeout_s:.0f} s for the others of its group"
        )

    def _use_torch(self, addresses: Sequence[str]) -> None:
        """Open the store, unless this rank has, and have torch's functions meet in it."""
        if self._file is None and self._shared_path:
            self._file = StoreFile(self._shared_path)
        if self._store is None:
            self._store = join_store(addresses[0], self._place, self._file)
        choose_device(self._place)
        self._rendezvous = Rendezvous(self._place, self._store, self._tell, self._recorded)
        self._rendezvous.install()

    def _initialize(self) -> None:
        import torch

        backend = _backend(self._place)
        # NCCL would else guess it, from the rank's number.
        device = torch.device("cuda", self._place.device_index) if backend == "nccl" else None
        assert self._rendezvous is not None
        self._rendezvous.give(backend, device)
        self._initialized = True


def _backend(place: RankPlace) -> str:
    if place.backend != "auto":
        return place.backend
    return "nccl" if place.gpus else "gloo"
