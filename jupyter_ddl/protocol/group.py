"""A rank's place in its rank group, and what a rank needs to join it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec

__all__ = [
    "CollectiveBackend",
    "JoinGroup",
    "MembersChanged",
    "RankPlace",
    "SeenGpus",
    "StrategyOption",
    "may_go_on",
    "n_servers",
    "ranks_label",
    "spans",
]


# A rank's place in its rank group: ranks that start and die together.
#
# The words and the environment variables are torchrun's
# (https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables).

CollectiveBackend: TypeAlias = Literal["auto", "gloo", "nccl"]


StrategyOption: TypeAlias = str | int | float | bool
"""The value of an option that one strategy has."""


class SeenGpus(msgspec.Struct, frozen=True):
    """What a worker sees: name by UUID; without any, ``state`` says why."""

    names: dict[str, str] = {}
    state: str = ""
    used_by_torch: bool = False
    """Whether the torch that is installed there was built for them."""


_SERVED = ("ps-sync", "ps-async")
_GO_ON = (*_SERVED, "local-sgd", "diloco")
"""Strategies whose ranks go on when one of them is lost."""


def n_servers(strategy: str, options: Mapping[str, StrategyOption]) -> int:
    """How many ranks of a group keep parameters, and execute no cell behind ``prepare_step``."""
    return int(options.get("servers", 1)) if strategy in _SERVED else 0


def may_go_on(strategy: str) -> bool:
    """Whether ranks that train so go on when one of them is lost, and take in others."""
    return strategy in _GO_ON


class RankPlace(msgspec.Struct, frozen=True):
    """Where one rank stands.  Made again for every round: nothing of a dead round is used again."""

    group_id: str
    """Unique to the round, with 128 random bits: ranks of other groups can't join by mistake."""
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    group_rank: int = 0
    """Index of the rank's host among the group's hosts (torchrun's GROUP_RANK)."""
    n_hosts: int = 1
    hosts: tuple[str, ...] = ()
    """Addresses of the hosts by group rank; the first one is the master's."""
    backend: CollectiveBackend = "auto"
    initialize: bool = True
    """Whether the process group is initialised before the cell runs (else: ``--no-init``)."""
    strategy: str = "ddp"
    strategy_options: dict[str, StrategyOption] = {}
    """What the line has set of the strategy's own options, by name."""
    timeout_s: float = 120.0
    """Of collectives and of the rendezvous."""
    restart_count: int = 0
    max_restarts: int = 0
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs of the group's ranks on this host, by local rank; empty on the CPU.  As
    with torchrun, a rank sees them all and uses number ``local_rank``."""
    gpus_per_rank: int = 0
    life: int = 1
    """Processes that the rank has had in this round, with this one."""
    absent: tuple[int, ...] = ()
    """Ranks for which there was no slot when the round began; they join it when there is one."""
    token: str = ""
    """What the ranks of the round show each other before they share a store across hosts."""

    @property
    def is_on_one_host(self) -> bool:
        """Whether all ranks are on one host, those included that may join."""
        return self.n_hosts == 1 and not self.absent

    @property
    def n_workers(self) -> int:
        """How many of the ranks train: the first ones; the others keep parameters for them."""
        return self.world_size - n_servers(self.strategy, self.strategy_options)

    @property
    def goes_on(self) -> bool:
        """Whether the group goes on without a rank that is lost: by its strategy, and over gloo.

        NCCL's ranks would wait for the lost one instead of failing, and of process groups that a
        cell makes by itself nothing is known.
        """
        on_gloo = self.backend != "nccl" and not self.gpus
        return may_go_on(self.strategy) and on_gloo and self.initialize

    def is_dispensable(self, rank: int) -> bool:
        """Whether the group goes on without this rank of it.

        Rank 0 speaks for the group and has its store, and a server has its shard.
        """
        return self.goes_on and 0 < rank < self.n_workers

    def is_awaited(self, rank: int) -> bool:
        """Whether the others wait for this rank to be started again: a server, if no other one
        makes updates together with it."""
        is_alone = self.strategy != "ps-sync" or self.world_size - self.n_workers == 1
        return self.goes_on and rank >= self.n_workers and is_alone

    @property
    def device_index(self) -> int:
        """CUDA number of the rank's (first) GPU."""
        return self.local_rank * self.gpus_per_rank

    @property
    def own_gpus(self) -> tuple[str, ...]:
        """UUIDs of this rank's GPUs."""
        return self.gpus[self.device_index : self.device_index + self.gpus_per_rank]


class JoinGroup(msgspec.Struct, frozen=True, tag="join_group"):
    """Tells the ranks of a group, which wait, where each of them can be found."""

    run_id: str
    trial: int
    attempt: int
    addresses: tuple[str, ...]
    """``host:port`` by rank.  The first one is the store's where torch is used."""
    store: str = ""
    """Path of the store of ranks that are on one host."""


class MembersChanged(msgspec.Struct, frozen=True, tag="members_changed"):
    """Tells the ranks of a group which of them are there now."""

    run_id: str
    trial: int
    attempt: int
    number: int
    """Changes so far: what came earlier is older, whenever it arrives."""
    lives: dict[int, int]
    """By rank of those that are there: how many processes it has had, with this one."""


def ranks_label(ranks: Collection[int]) -> str:
    """``rank 2`` or ``ranks 0-2, 5``."""
    return f"rank{'' if len(ranks) == 1 else 's'} {spans(ranks)}"


def spans(ranks: Iterable[int], separator: str = ", ") -> str:
    """``0-2, 5``."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and parts[-1][1] == rank - 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return separator.join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
