"""What a sample counts for in a step that ranks make together, and the mean loss of all samples.

The ranks' shares of a batch may be of unequal size, and only together do they know how many
samples there are.  On a CPU that is told when gradients are there, with the loss and under DDP as a
gradient itself: they are computed as if there were as many samples as in the step before, and put
right where there were not.  A GPU's host runs ahead of it and must not wait for what it computes;
there it is told before the backward pass, and stays on the GPU.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

from jupyter_ddl.ranks.strategies.exchange import Exchange
from jupyter_ddl.ranks.strategies.piggyback import Piggyback

__all__ = ["Averages", "ToldAfterwards", "ToldBefore", "ToldWithGradients", "averages_of"]


class Averages(Protocol):
    """Of one step after another.  Methods are collective over the ranks of the exchange."""

    def begin(self, n_own: int) -> None:
        """A step begins, in which this rank has so many samples."""

    def weight(self) -> Any:
        """What one sample's gradient counts for, where DDP takes the mean over ranks."""

    def attach(self, loss: Any, own: Any) -> Any:
        """The loss for the step's last backward pass, which has ``own`` as this rank's mean."""

    def end(self, own: Any, parameters: Any) -> None:
        """Gradients are averaged.

        Parameters
        ----------
        own : torch.Tensor
            The mean loss of this rank's samples, a scalar.
        parameters : callable
            Gives the parameters, whose gradients may have to be put right.
        """

    def mean(self) -> Any:
        """The mean loss of all samples, a scalar tensor like ``own``."""


def averages_of(exchange: Exchange, n_ranks: int) -> Averages:
    """For steps whose numbers are exchanged where NCCL wants them, or gloo."""
    kind = ToldAfterwards if exchange.device.type == "cpu" else ToldBefore
    return kind(exchange, n_ranks)


class ToldAfterwards:
    """All numbers are plain ones: what is computed of tensors costs microseconds each."""

    def __init__(self, exchange: Exchange, n_ranks: int) -> None:
        self._exchange = exchange
        self._n_ranks = n_ranks
        self._n_own = 0
        self._n_supposed = 0.0
        """Samples of all ranks together; the same number on each of them."""
        self._mean = 0.0
        self._own: Any = None

    def begin(self, n_own: int) -> None:
        self._n_own = n_own
        if not self._n_supposed:
            self._n_supposed = float(self._exchange.begin_sum([n_own]).wait()[0])

    def weight(self) -> float:
        return self._n_ranks / self._n_supposed if self._n_own else 0.0

    def attach(self, loss: Any, own: Any) -> Any:
        return loss

    def end(self, own: Any, parameters: Any) -> None:
        # Beside the gradients' own it would be no sooner there, and costs twice the CPU time.
        total, n_samples = self._exchange.begin_sum(self._numbers(own)).wait().tolist()
        self._take(total, n_samples, own, parameters)

    def _numbers(self, own: Any) -> tuple[float, float]:
        return own.item() * self._n_own if self._n_own else 0.0, float(self._n_own)

    def _take(self, total: float, n_samples: float, own: Any, parameters: Any) -> None:
        if n_samples != self._n_supposed:
            for parameter in parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(self._n_supposed / n_samples)
            self._n_supposed = n_samples
        self._mean, self._own = total / n_samples, own

    def mean(self) -> Any:
        return torch.scalar_tensor(self._mean, dtype=self._own.dtype, device=self._own.device)


class ToldWithGradients(ToldAfterwards):
    """Of a model in DDP, with a parameter that carries them."""

    def __init__(self, exchange: Exchange, n_ranks: int, piggyback: Piggyback) -> None:
        super().__init__(exchange, n_ranks)
        self._piggyback = piggyback

    def attach(self, loss: Any, own: Any) -> Any:
        return self._piggyback.attach(loss, *self._numbers(own))

    def end(self, own: Any, parameters: Any) -> None:
        self._exchange.count(self._piggyback.n_bytes)
        total, n_samples = self._piggyback.means()
        n_ranks = self._n_ranks
        self._take(total * n_ranks, float(round(n_samples * n_ranks)), own, parameters)


class ToldBefore:
    """All numbers are on the GPU, and the host waits for none of them."""

    def __init__(self, exchange: Exchange, n_ranks: int) -> None:
        self._exchange = exchange
        self._n_ranks = n_ranks
        self._n_own = 0
        self._n_all: Any = None
        """Samples of all ranks together, which are being added up."""
        self._total: Any = None
        """Of the losses of all samples, likewise."""
        self._type: Any = None

    def begin(self, n_own: int) -> None:
        self._n_own = n_own
        self._n_all = self._exchange.begin_sum([n_own])

    def attach(self, loss: Any, own: Any) -> Any:
        return loss

    def weight(self) -> Any:
        return self._n_ranks / self._n_all.wait()[0] if self._n_own else 0.0

    def end(self, own: Any, parameters: Any) -> None:
        self._type = own.dtype
        self._total = self._exchange.begin_sum([own * self._n_own if self._n_own else 0.0])

    def mean(self) -> Any:
        # Behind the update: what the GPU is given next would wait for this sum.
        return (self._total.wait()[0] / self._n_all.wait()[0]).to(self._type)
