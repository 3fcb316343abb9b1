"""A rank's membership in its rank group: the store, the environment, the process group.

Everything is new for every round.  Rank 0 opens the store on a port that it really holds and
announces it; no rank dials an address before its owner has told it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.events.messages import RendezvousReady
from jupyter_ddl.spec.assignment import TrialAssignment
from jupyter_ddl.spec.group import JoinGroup, RankPlace
from jupyter_ddl.worker.agreement import Agreement
from jupyter_ddl.worker.env_rendezvous import separate_process_groups
from jupyter_ddl.worker.gpus import choose_device
from jupyter_ddl.worker.group_environment import group_environment
from jupyter_ddl.worker.jax_cluster import tell_jax

__all__ = ["RankGroup"]

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

    def agreement(self) -> Agreement | None:
        """What the ranks decide by together; None for a group that has no store."""
        place = self._place
        if self._store is None:
            return None
        return Agreement(self._store, place.rank, place.world_size)

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
