"""The ranks of a group that goes on when one is lost: who is there, and how they meet anew.

Groups of torch can't lose or gain a rank; a new one is made of those that are there, as torchft
does it (https://github.com/meta-pytorch/torchft).  They meet in the store of the round.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.ranks.listeners import closed_to_strangers
from jupyter_ddl.ranks.membership import Membership, membership

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
    def lives(self) -> dict[int, int]:
        """By rank of those that are there: which of its processes."""
        return self.members.lives(self.place.world_size)

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
