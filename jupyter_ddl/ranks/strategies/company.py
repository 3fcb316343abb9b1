"""The ranks of a group that goes on when one is lost: who is there, and how they meet anew.

Groups of torch can't lose or gain a rank; a new one is made of those that are there, as torchft
does it (https://github.com/meta-pytorch/torchft).  They meet in the store of the round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.ranks.listeners import closed_to_strangers
from jupyter_ddl.ranks.membership import Membership, membership
from jupyter_ddl.ranks.stopping import StopReason

__all__ = ["CONNECT_S", "Company"]

CONNECT_S = 20.0
"""Until ranks of which all have just said that they are here are connected."""


class Company:
    """As one rank sees it.

    Parameters
    ----------
    store : torch.distributed.Store
        Of the round.
    members : Membership, optional
        What the driver has told this process.
    """

    def __init__(self, place: RankPlace, store: Any, members: Membership = membership) -> None:
        self.place = place
        self.members = members
        self.store = store
        self._connecting = threading.Lock()

    @property
    def joins(self) -> bool:
        """Whether this rank was lost, and joins others that have gone on."""
        return self.place.life > 1

    @property
    def first(self) -> list[int]:
        """The ranks with which the round has begun."""
        return self.members.first(self.place.world_size)

    @property
    def lives(self) -> dict[int, int]:
        """By rank of those that are there: which of its processes."""
        return self.members.lives(self.place.world_size)

    def await_life(self, rank: int, beyond: int) -> int:
        """Wait until a later process of a rank is there than that of a number; returns its own.

        Raises
        ------
        RuntimeError
            There is none by the round's deadline.
        """
        timeout_s = self.place.timeout_s
        deadline_s = time.monotonic() + timeout_s
        while True:
            number = self.members.number
            life = self.lives.get(rank, 0)
            if life > beyond:
                return life
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise RuntimeError(
                    f"rank {self.place.rank} timed out waiting for rank {rank} to be started again "
                    f"({timeout_s:.0f} s)"
                )
            self.members.wait_beyond(number, left_s)

    def hear_of_others(self) -> None:
        """Wait until this rank, which joins, was told who is there."""
        self.members.wait_beyond(0, CONNECT_S)

    def take_leave(self, reason: StopReason) -> None:
        """This rank is through with the cell: who comes back later does not wait for it."""
        self.store.set(_left(self.place.rank), reason)

    def left(self, rank: int) -> StopReason | None:
        """How a rank was through with the cell; None: it is not."""
        key = _left(rank)
        if not self.store.check([key]):
            return None
        reason: StopReason = self.store.get(key).decode()
        return reason

    def meet_pair(self, worker: int, life: int, server: int, server_life: int) -> Any:
        """Make the group of a worker's and a server's processes, the server first."""
        return self.meet(f"{worker}/{life}/{server}/{server_life}", (server, worker))

    def meet(self, name: str, ranks: Sequence[int], timeout_s: float | None = None) -> Any:
        """Make a process group of gloo; each of its ranks calls this with the same arguments.

        Any thread may call it.

        Parameters
        ----------
        name : str
            No two groups of a round have the same.
        ranks : sequence of int
            Of the rank group; their order is that in the new one.
        timeout_s : float, optional
            Until all have come; by default that of the round.

        Raises
        ------
        RuntimeError
            One of them did not come.
        """
        # Its own connection: a wait in it must not keep other threads from theirs.
        store = dist.PrefixStore(f"jupyter_ddl/company/{name}", self.store.clone())
        patience = timedelta(seconds=self.place.timeout_s)
        store.set(f"here/{self.place.rank}", "1")
        store.wait(
            [f"here/{rank}" for rank in ranks],
            patience if timeout_s is None else timedelta(seconds=timeout_s),
        )
        connect = timedelta(seconds=CONNECT_S)
        store.set_timeout(connect)
        own = list(ranks).index(self.place.rank)
        # One at a time: what a second thread listens at would be closed with the first one's.
        with self._connecting, closed_to_strangers():
            group = dist.ProcessGroupGloo(store, own, len(ranks), connect)
        group._set_default_timeout(patience)
        return group


def _left(rank: int) -> str:
    return f"jupyter_ddl/company/left/{rank}"
