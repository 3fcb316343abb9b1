"""What strategies send beside torch's own collectives: plain data and numbers, and how much it was.

Everything goes as JSON or numbers in tensors: torch's ``*_object`` collectives unpickle what comes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from blake3 import blake3

__all__ = ["Exchange", "PendingSum", "digest_of"]


def digest_of(tensors: Sequence[Any]) -> str:
    """A digest of the bytes of tensors, by which ranks tell whether they have the same."""
    digest = blake3()
    for tensor in tensors:
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(plain.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _on_gpu(number: Any, device: Any) -> Any:
    """A scalar there that the host has not waited for, as it does for a copy of its own memory."""
    if isinstance(number, torch.Tensor):
        return number.detach().to(device, torch.float64)
    return torch.full((), number, dtype=torch.float64, device=device)


class PendingSum:
    """Numbers that are being added up over the ranks while a rank goes on."""

    def __init__(self, numbers: Any, work: Any) -> None:
        self._numbers = numbers
        self._work = work

    def wait(self) -> Any:
        """The sums, a tensor of float64 with shape (n,)."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        return self._numbers


class Exchange:
    """Used on the rank's main thread; every method but :meth:`count` is collective.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup, optional
        Who takes part; by default all ranks.
    """

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self._is_own = False
        self.bytes_sent = 0
        """Payload that this rank has given to others, in bytes; what it took is theirs."""

    def use(self, group: Any) -> None:
        """From now on these take part: a process group of gloo that torch need not know of."""
        self._group = group
        self._is_own = True

    def count(self, n_bytes: int) -> None:
        """Add payload that was sent by other means."""
        self.bytes_sent += n_bytes

    def begin_sum(self, numbers: Sequence[Any]) -> PendingSum:
        """Add numbers up over the ranks, in 64 bits, without waiting.

        Parameters
        ----------
        numbers : sequence of float or scalar tensor
            Of this rank; as many on every rank.
        """
        device = self.device
        if device.type == "cpu":
            sums = torch.from_numpy(np.array([float(each) for each in numbers]))
        else:
            sums = torch.stack([_on_gpu(each, device) for each in numbers])
        group = dist.group.WORLD if self._group is None else self._group
        work = group.allreduce([sums])  # the function of torch.distributed takes twice the time
        self.count(sums.nbytes)
        return PendingSum(sums, work)

    def means(self, tensors: Sequence[Any]) -> list[Any]:
        """The means over the ranks, as new tensors of the same shapes and types."""
        return [each.div_(self._n_ranks) for each in self.sums(tensors)]

    def sums(self, tensors: Sequence[Any]) -> list[Any]:
        """The sums over the ranks, as new tensors of the same shapes and types."""
        found: list[Any] = [None] * len(tensors)
        for kind in dict.fromkeys(each.dtype for each in tensors):
            numbers = [n for n, each in enumerate(tensors) if each.dtype == kind]
            flat = torch.cat([tensors[n].detach().reshape(-1) for n in numbers])
            self._add_up(flat)
            self.count(flat.nbytes)
            parts = flat.split([tensors[n].numel() for n in numbers])
            for n, part in zip(numbers, parts, strict=True):
                found[n] = part.reshape(tensors[n].shape)
        return found

    def copy_first(self, tensor: Any) -> None:
        """Give all what the first of these ranks has in a tensor; torch knows the group."""
        sent = tensor.detach().contiguous()
        dist.broadcast(sent, group=self._group, group_src=0)
        if sent.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(sent)
        if self.is_first:
            self.count(sent.nbytes)

    def gather_json(self, value: Any) -> list[Any]:
        """Plain data of all ranks, by rank."""
        device = self.device
        content = json.dumps(value).encode()
        n_ranks = self._n_ranks
        sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(n_ranks)]
        size = torch.tensor([len(content)], dtype=torch.int64, device=device)
        self._gather(sizes, size)
        longest = max(int(each) for each in sizes)
        # Padded, because all_gather wants tensors of one shape.
        own = torch.frombuffer(bytearray(content.ljust(longest)), dtype=torch.uint8).to(device)
        parts = [torch.empty_like(own) for _ in range(n_ranks)]
        self._gather(parts, own)
        self.count(size.nbytes + own.nbytes)
        return [json.loads(bytes(part.cpu().tolist())) for part in parts]

    @property
    def is_first(self) -> bool:
        """Whether this rank is the first one of those that take part; torch knows the group."""
        return bool(dist.get_rank(self._group) == 0)

    @property
    def _n_ranks(self) -> int:
        return int(self._group.size()) if self._is_own else dist.get_world_size(self._group)

    # Of groups that torch does not know, its functions can't say how a collective failed.

    def _add_up(self, tensor: Any) -> None:
        if self._is_own:
            self._group.allreduce([tensor]).wait()
        else:
            dist.all_reduce(tensor, group=self._group)

    def _gather(self, found: list[Any], own: Any) -> None:
        if self._is_own:
            self._group.allgather(found, own).wait()
        else:
            dist.all_gather(found, own, group=self._group)

    @property
    def device(self) -> Any:
        """The ``torch.device`` on which NCCL wants tensors, or gloo."""
        if self._is_own:
            return torch.device("cpu")
        on_gpus = dist.get_backend(self._group) == "nccl"
        return torch.device("cuda", torch.cuda.current_device()) if on_gpus else torch.device("cpu")
