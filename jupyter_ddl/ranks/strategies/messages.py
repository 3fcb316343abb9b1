"""Messages between two ranks: a line of plain data, and tensors.

Each is one tensor of two lengths, one of JSON, and one of bytes.  They go over a gloo group of
their own, so that no collective of the cell comes between.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from jupyter_ddl.ranks.strategies.exchange import Exchange

__all__ = ["Message", "Post"]


class Message(NamedTuple):
    """What one rank tells another."""

    content: Mapping[str, Any]
    tensors: list[Any]
    """On the CPU."""


class Post:
    """Sent on the rank's main thread; received on any, on one thread from each rank at a time.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup
        Of gloo.
    exchange : Exchange
        Counts the bytes that are sent.
    ranks : sequence of int, optional
        Who is in the group, in its order; by default all ranks.
    """

    def __init__(self, group: Any, exchange: Exchange, ranks: Sequence[int] | None = None) -> None:
        self._group = group
        self.exchange = exchange
        self._places = None if ranks is None else {rank: n for n, rank in enumerate(ranks)}

    def _place(self, rank: int) -> int:
        return rank if self._places is None else self._places[rank]

    def send(self, rank: int, content: Mapping[str, Any], tensors: Sequence[Any] = ()) -> None:
        """Give a message to a rank; returns when that one has begun to take it.

        Raises
        ------
        RuntimeError
            The rank is gone, or did not take it by the group's deadline.
        """
        plain = [each.detach().cpu().contiguous() for each in tensors]
        forms = [[str(each.dtype).removeprefix("torch."), list(each.shape)] for each in plain]
        line = json.dumps({**content, "tensors": forms}).encode()
        parts = [torch.frombuffer(bytearray(line), dtype=torch.uint8)]
        if any(each.numel() for each in plain):
            parts.append(torch.cat([each.reshape(-1).view(torch.uint8) for each in plain]))
        n_bytes = parts[1].numel() if len(parts) == 2 else 0
        for part in (torch.tensor([len(line), n_bytes]), *parts):
            self._group.send([part], self._place(rank), 0).wait()
            self.exchange.count(part.nbytes)

    def receive(self, rank: int) -> Message:
        """Wait for a message of a rank.

        Raises
        ------
        RuntimeError
            The rank is gone, or sent none by the group's deadline.
        """
        sizes = torch.zeros(2, dtype=torch.int64)
        self._take(sizes, rank)
        n_line, n_bytes = sizes.tolist()
        line = torch.empty(n_line, dtype=torch.uint8)
        self._take(line, rank)
        data = torch.empty(n_bytes, dtype=torch.uint8)
        if n_bytes:
            self._take(data, rank)
        content = json.loads(line.numpy().tobytes())
        return Message(content, _cut(data, content.pop("tensors")))

    def sum(self, rank: int, among: Sequence[int], number: float) -> float:
        """Add up a number of each of some ranks, of which this one is one; the first adds.

        A group of their own would have all ranks wait for each other while it is made: where the
        default group is one of NCCL, torch has ranks outside of a group of gloo do what those in it
        do not.
        """
        first, *others = among
        if rank != first:
            self.send(first, {"number": number})
            return float(self.receive(first).content["number"])
        total = sum((float(self.receive(each).content["number"]) for each in others), number)
        for each in others:
            self.send(each, {"number": total})
        return total

    def _take(self, tensor: Any, rank: int) -> None:
        self._group.recv([tensor], self._place(rank), 0).wait()


def _cut(data: Any, forms: Sequence[Any]) -> list[Any]:
    found = []
    start = 0
    for name, shape in forms:
        kind = getattr(torch, name)
        end = start + torch.Size(shape).numel() * kind.itemsize
        # A copy: what is viewed as wider numbers has to begin at a multiple of their size.
        found.append(data[start:end].clone().view(kind).reshape(shape))
        start = end
    return found
