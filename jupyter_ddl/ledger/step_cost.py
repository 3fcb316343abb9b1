"""What a training step costs on some ranks, under each strategy.  Pure.

Steps of ``ddp`` and ``fsdp`` are what :mod:`jupyter_ddl.ledger.scaling` fits.  Those of the other
strategies are estimates by the same parameters, each with an assumption that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import NormalDist
from typing import NamedTuple

import msgspec

__all__ = ["ASSUMED", "ESTIMATED", "OTHER_TRAININGS", "Cost", "Traffic", "largest", "traffic"]

_SYNC_EVERY = 8
"""What ``--sync-every`` is unless it is given."""
_MICROBATCHES_EACH = 4
"""Of each rank of a pipeline, as its verdict advises."""
_BLOM = (0.375, 0.25)
"""Of Blom's approximation of the expected largest of normal variates (Statistical Estimates and
Transformed Beta-Variables, 1958)."""
_PASSES: Mapping[str, int] = {"ddp": 2, "fsdp": 3}
"""How often a step moves all parameters' bytes around a ring: gradients are reduced, scattered and
gathered; sharded parameters are gathered twice and their gradients reduced and scattered."""

ASSUMED: Mapping[str, str] = {
    "pipeline": (
        f"{_MICROBATCHES_EACH} micro-batches for each rank, as many equally long stages as ranks, "
        f"and nothing for the bytes between stages"
    ),
    "ps-sync": "one of the ranks is the server, which takes and gives one message after another",
    "ps-async": "one of the ranks is the server, which takes and gives one message after another",
    "local-sgd": f"--sync-every {_SYNC_EVERY}, and ranks that are slow in all steps",
    "diloco": f"--sync-every {_SYNC_EVERY}, and ranks that are slow in all steps",
}
"""By strategy that is estimated."""
ESTIMATED = tuple(ASSUMED)
OTHER_TRAININGS = frozenset({"local-sgd", "diloco", "ps-async"})
"""Whose steps are not those of one process, so that as many samples need not teach as much."""


class Traffic(NamedTuple):
    """Of one rank and step."""

    n_messages: int
    share: float
    """Of the parameters' bytes."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a step is made of, on a CPU or GPU of each rank's own."""

    n_samples: float
    """Of one rank and step, where ``n_ranks`` of them are at work."""
    n_ranks: int
    keeps_whole_batch: bool
    """Whether more ranks have fewer samples each."""
    step_s: float
    """What does not depend on samples."""
    sample_s: float
    """Of data and compute."""
    message_s: float
    byte_s: float
    n_bytes: int
    straggling_s: float
    """One standard deviation between ranks."""
    assumed: tuple[str, ...] = ()

    def samples(self, n_ranks: int) -> float:
        """Of one rank and step."""
        return self.n_samples * self.n_ranks / n_ranks if self.keeps_whole_batch else self.n_samples

    def seconds(
        self, n_ranks: int, strategy: str, *, n_samples: float | None = None, crowding: float = 1.0
    ) -> float:
        """Of one step; estimates are of ``samples`` and uncrowded."""
        if n_ranks > 1 and strategy in _ESTIMATES:
            return _ESTIMATES[strategy](self, n_ranks)
        n_samples = self.samples(n_ranks) if n_samples is None else n_samples
        own_s = self.step_s + self.sample_s * n_samples
        waiting_s = self.straggling_s * largest(n_ranks)
        return crowding * (own_s + waiting_s + self.ring_s(n_ranks, strategy))

    def ring_s(self, n_ranks: int, strategy: str) -> float:
        """Of one exchange."""
        n_messages, share = traffic(strategy, n_ranks)
        return n_messages * self.message_s + share * self.n_bytes * self.byte_s

    def own_s(self, n_ranks: int) -> float:
        """What a rank of so many needs for itself."""
        return self.step_s + self.sample_s * self.samples(n_ranks)

    def efficiency(self, n_ranks: int, strategy: str) -> float:
        """Samples per second, as a share of those of as many ranks that need not talk."""
        n_training = n_ranks
        if strategy in ("ps-sync", "ps-async") and n_ranks > 1:
            n_training -= 1
        trained = n_training * self.samples(n_training) / self.seconds(n_ranks, strategy)
        return trained / n_ranks * self.seconds(1, strategy) / self.samples(1)


def _pipeline_s(cost: Cost, n_ranks: int) -> float:
    n_microbatches = _MICROBATCHES_EACH * n_ranks
    n_slots = n_microbatches + n_ranks - 1  # n_ranks - 1 of them are the bubble
    n_messages = 2 * (n_slots - 1)
    own_s = cost.own_s(n_ranks) * n_slots / n_microbatches
    return own_s + cost.straggling_s * largest(n_ranks) + n_messages * cost.message_s


def _ps_sync_s(cost: Cost, n_ranks: int) -> float:
    n_workers = n_ranks - 1
    waiting_s = cost.straggling_s * largest(n_workers)
    return cost.own_s(n_workers) + waiting_s + n_workers * _served_s(cost)


def _ps_async_s(cost: Cost, n_ranks: int) -> float:
    n_workers = n_ranks - 1
    return max(cost.own_s(n_workers) + _served_s(cost), n_workers * _served_s(cost))


def _served_s(cost: Cost) -> float:
    """Of the server, for one worker's step: its gradients, and new parameters."""
    return 2 * (cost.message_s + cost.n_bytes * cost.byte_s)


def _meeting_s(cost: Cost, n_ranks: int) -> float:
    waiting_s = cost.straggling_s * largest(n_ranks)
    return cost.own_s(n_ranks) + waiting_s + cost.ring_s(n_ranks, "ddp") / _SYNC_EVERY


_ESTIMATES: Mapping[str, Callable[[Cost, int], float]] = {
    "pipeline": _pipeline_s,
    "ps-sync": _ps_sync_s,
    "ps-async": _ps_async_s,
    "local-sgd": _meeting_s,
    "diloco": _meeting_s,
}


def largest(n_ranks: int) -> float:
    """Of so many normal variates, in standard deviations above their mean."""
    if n_ranks < 2:
        return 0.0
    return NormalDist().inv_cdf((n_ranks - _BLOM[0]) / (n_ranks + _BLOM[1]))


def traffic(strategy: str, n_ranks: int) -> Traffic:
    """Of a ring."""
    passes = _PASSES.get(strategy, 2)
    return Traffic(passes * (n_ranks - 1), passes * (n_ranks - 1) / n_ranks)
