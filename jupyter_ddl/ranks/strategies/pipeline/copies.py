"""Pipelines side by side, each of a whole copy of the model: ``--mesh dp=2,pp=2``.

Each copy is given its share of every batch.  Ranks that have the same stages of it, one of each
copy, average their gradients when a batch is through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from jupyter_ddl.ranks.strategies.exchange import Exchange

__all__ = ["Copies"]


class Copies:
    """As one rank sees them.  Methods are collective over the ranks with the same stages.

    Parameters
    ----------
    everyone : Exchange
        Of all ranks: the only pipeline, where no mesh is given.
    mesh : torch.distributed.device_mesh.DeviceMesh, optional
        With the axes ``pp`` and ``dp``, the first of which is the outer one.
    """

    def __init__(self, everyone: Exchange, mesh: Any = None) -> None:
        self.n_copies = 1 if mesh is None else int(mesh["dp"].size())
        self.n_ranks = dist.get_world_size() // self.n_copies
        """In one pipeline."""
        self.number = dist.get_rank() % self.n_copies
        """Of this rank's copy, from 0."""
        self.rank = dist.get_rank() // self.n_copies
        """In its pipeline."""
        self.group = None if self.n_copies == 1 else mesh.get_group("pp")
        """The ``ProcessGroup`` of this rank's pipeline; None: all ranks."""
        self.within = everyone if self.n_copies == 1 else Exchange(self.group)
        """Among the ranks of this pipeline."""
        self._across = None if self.n_copies == 1 else Exchange(mesh.get_group("dp"))

    @property
    def bytes_sent(self) -> int:
        """Payload beside that of all ranks' own exchange, in bytes."""
        across = self._across
        return 0 if across is None else self.within.bytes_sent + across.bytes_sent

    def share_of(self, n_samples: int) -> float:
        """What this copy's mean loss counts for in that of all copies, by its samples."""
        if self._across is None:
            return 1.0
        return n_samples / float(self._across.begin_sum([n_samples]).wait()[0])

    def add_up(self, parameters: Sequence[Any], buffers: Sequence[Any]) -> None:
        """Replace gradients by their sums over the copies, and buffers by those of the first one.

        A parameter that no copy has used keeps none.
        """
        if self._across is None:
            return
        own = [each for each in parameters if each.requires_grad]
        if not own:
            return
        has_one = [each.grad is not None for each in own]
        gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in own]
        *sums, n_used = self._across.sums([*gradients, gradients[0].new_tensor(has_one)])
        for parameter, gradient, n_copies in zip(own, sums, n_used.tolist(), strict=True):
            if n_copies:
                parameter.grad = gradient
        for buffer in buffers:
            self._across.copy_first(buffer)
