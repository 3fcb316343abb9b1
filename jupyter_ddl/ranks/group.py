"""A rank's membership in its rank group: the store, the environment, the process group.

Everything is new for every round.  Rank 0 opens the store on a port that it really holds and
announces it; no rank dials an address before its owner has told it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.assignment import TrialAssignment
from jupyter_ddl.protocol.events import RendezvousReady
from jupyter_ddl.protocol.group import JoinGroup, RankPlace
from jupyter_ddl.ranks.frameworks.environment import framework_environment
from jupyter_ddl.ranks.gpus import choose_device
from jupyter_ddl.ranks.group_votes import GroupVotes

__all__ = ["RankGroup", "group_environment", "separate_process_groups", "tell_jax"]


# ``init_process_group("env://")`` in a rank, more than once.
#
# Every round of a group has one store, and torch stores the addresses of a process group under the
# same keys each time.  A second group, after the first was destroyed, would dial the first one's
# closed ports; so each gets a part of the store of its own.

_SCHEME = "env"
_Handler = Callable[..., Iterator[tuple[Any, int, int]]]


def separate_process_groups() -> None:
    """Give every following ``init_process_group("env://")`` of this process fresh keys.

    All ranks must initialise equally often, which they must anyway.
    """
    from torch.distributed import PrefixStore

    rendezvous = sys.modules["torch.distributed.rendezvous"]
    # torch has no public way to replace a handler: register_rendezvous_handler() only adds.
    handlers: dict[str, _Handler] | None = getattr(rendezvous, "_rendezvous_handlers", None)
    if handlers is None or _SCHEME not in handlers:
        return  # another version of torch; the first initialisation works all the same
    original = handlers[_SCHEME]
    numbers = itertools.count()

    def handler(*args: Any, **options: Any) -> Iterator[tuple[Any, int, int]]:
        number = next(numbers)
        for store, rank, world_size in original(*args, **options):
            yield PrefixStore(f"jupyter_ddl/init/{number}", store), rank, world_size

    handlers[_SCHEME] = handler


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


# The environment variables by which frameworks find the other ranks of a group.  Pure.

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def group_environment(
    place: RankPlace, addresses: Sequence[str], coordinator_port: int | None
) -> dict[str, str]:
    """Variables of torchrun, of TensorFlow's ``TF_CONFIG``, and of JAX.

    Parameters
    ----------
    addresses : sequence of str
        ``host:port`` by rank.  With torch, the first one is the open store's.
    coordinator_port : int or None
        With torch: a free port at rank 0's host for the coordinator of another framework.
    """
    host, _, port = addresses[0].rpartition(":")
    has_store = coordinator_port is not None
    coordinator = f"{host}:{coordinator_port}" if has_store else addresses[0]
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
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": place.group_id,
        "TORCHELASTIC_RESTART_COUNT": place.restart_count,
        "TORCHELASTIC_MAX_RESTARTS": place.max_restarts,
        # The store is open already: `init_process_group("env://")` joins it, also on rank 0.
        "TORCHELASTIC_USE_AGENT_STORE": has_store,
        "TF_CONFIG": json.dumps(
            {"cluster": {"worker": workers}, "task": {"type": "worker", "index": place.rank}}
        ),
        # JAX reads the address only; how many and which one it asks worker.jax_cluster.
        "JAX_COORDINATOR_ADDRESS": workers[0],
        "JAX_NUM_PROCESSES": place.world_size,
        "JAX_PROCESS_ID": place.rank,
    }
    if all(address.rpartition(":")[0] in _LOOPBACK for address in addresses):
        # Else gloo asks for the host's name, which may resolve to an interface that is not up,
        # and JAX's coordinator listens on all interfaces.
        variables["GLOO_SOCKET_IFNAME"] = "lo"
        variables["JAX_COORDINATOR_BIND_ADDRESS"] = workers[0]
    return {name: str(value) for name, value in variables.items()}


def _url(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"[{host}]:{port}" if ":" in host else address


_LEAVE_TIMEOUT_S = 10.0
_POLL_S = 0.2
_COORDINATOR = "jupyter_ddl/coordinator_port"
"""Where rank 0 says which port is free for a framework beside torch, whose store has the other."""


class RankGroup:
    """Used on the rank's main thread: ``enter``, the cell, ``leave``.

    Parameters
    ----------
    joins : queue.SimpleQueue
        Where the control thread puts the answer to the announcement.
    """

    def __init__(
        self,
        place: RankPlace,
        trial: TrialAssignment,
        announce: Callable[[RendezvousReady], None],
        joins: queue.SimpleQueue[JoinGroup],
    ) -> None:
        self._place = place
        self._trial = trial
        self._announce = announce
        self._joins = joins
        self._store: Any = None
        self._initialized = False

    def enter(self, *, with_torch: bool) -> None:
        """Meet the other ranks.

        Raises
        ------
        LaunchError
            The others were not there by the deadline.
        """
        place = self._place
        own = place.hosts[place.group_rank]
        if with_torch and place.rank == 0:
            self._store = _open_store(own, place)
            self._store.set(_COORDINATOR, str(_free_port(own)))
            port = self._store.port
        else:
            port = _free_port(own)
        trial = self._trial
        self._announce(RendezvousReady(trial.trial, trial.attempt, own, port))
        joined = self._wait_for_join()
        if with_torch and place.rank != 0:
            self._store = _join_store(joined.addresses[0], place)
        port = int(self._store.get(_COORDINATOR)) if with_torch else None
        os.environ.update(group_environment(place, joined.addresses, port))
        for name, value in framework_environment(place).items():
            os.environ.setdefault(name, value)
        tell_jax()
        if with_torch:
            separate_process_groups()
            choose_device(place)
        if with_torch and place.initialize:
            self._initialize()

    def rejoin(self, round_id: str) -> None:
        """Replace the process group, if there is one; all ranks do this together.

        The store stays: with a new ``round_id``, nothing of the former group is met in it.
        """
        if not self._initialized:
            return
        distributed: Any = sys.modules["torch.distributed"]
        if distributed.is_initialized():
            with contextlib.suppress(RuntimeError):  # its connections may be cut
                distributed.destroy_process_group()
        self._place = msgspec.structs.replace(self._place, group_id=round_id)
        self._initialize()

    def agreement(self) -> GroupVotes | None:
        """What the ranks decide by together; None for a group that has no store."""
        place = self._place
        if self._store is None:
            return None
        return GroupVotes(self._store, place.rank, place.world_size)

    def leave(self) -> None:
        """After the cell: wait for the others to be done with the store, then take leave."""
        if self._store is None:
            return
        with contextlib.suppress(RuntimeError):  # a rank that failed has taken the store along
            n_left = self._store.add("jupyter_ddl/left", 1)
            deadline = time.monotonic() + _LEAVE_TIMEOUT_S
            while self._place.rank == 0 and n_left < self._place.world_size:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.002)
                n_left = self._store.add("jupyter_ddl/left", 0)
        distributed: Any = sys.modules.get("torch.distributed")
        # This process ends now, which closes what gloo has open in no time; undoing it in order
        # takes 15 ms.  NCCL must be told.
        if self._initialized and distributed.is_initialized() and _backend(self._place) != "gloo":
            distributed.destroy_process_group()

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

    def _initialize(self) -> None:
        import torch
        import torch.distributed as dist

        place = self._place
        backend = _backend(place)
        dist.init_process_group(
            backend=backend,
            store=dist.PrefixStore(place.group_id, self._store),
            rank=place.rank,
            world_size=place.world_size,
            timeout=timedelta(seconds=place.timeout_s),
            # NCCL would else guess it, from the rank's number.
            device_id=torch.device("cuda", place.device_index) if backend == "nccl" else None,
        )
        self._initialized = True


def _backend(place: RankPlace) -> str:
    if place.backend != "auto":
        return place.backend
    return "nccl" if place.gpus else "gloo"


def _open_store(host: str, place: RankPlace) -> Any:
    import torch.distributed as dist

    return dist.TCPStore(
        host,
        0,
        world_size=None,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=place.timeout_s),
    )


def _join_store(address: str, place: RankPlace) -> Any:
    import torch.distributed as dist

    host, _, port = address.rpartition(":")
    return dist.TCPStore(
        host,
        int(port),
        world_size=None,
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=place.timeout_s),
    )


def _free_port(host: str) -> int:
    """A port that is free now, for a framework that opens it itself."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
