"""``--strategy local-sgd`` and ``diloco``: ranks step alone, and meet every so many steps.

Local SGD takes the mean of the ranks' parameters (https://arxiv.org/abs/1805.09767).  DiLoCo takes
the way from the last common parameters to that mean for a gradient, by which a second optimizer,
SGD with Nesterov's momentum, goes on (https://arxiv.org/abs/2311.08105; torchft's is alike).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.stopping import StopReason
from jupyter_ddl.ranks.strategies.base import StepStrategy
from jupyter_ddl.ranks.strategies.exchange import digest_of
from jupyter_ddl.ranks.strategies.local_sgd.circle import Circle
from jupyter_ddl.ranks.strategies.placing import follow_parameters
from jupyter_ddl.ranks.strategies.shards import put_state, state_of, trained
from jupyter_ddl.ranks.strategies.steps import StepRequest, TrainingStep

__all__ = ["DiLoCo", "LocalSgd"]


class LocalSgd(StepStrategy):
    """See :class:`~jupyter_ddl.ranks.strategies.base.Strategy`.

    A checkpoint, and a model that is brought back, is a meeting too: a run that goes on from a
    file goes on as the one that wrote it.

    Parameters
    ----------
    sync_every : int
        Steps from one meeting to the next.
    """

    returns_own_loss = True

    def __init__(self, sync_every: int = 8) -> None:
        self._sync_every = sync_every
        self._step: LocalStep | None = None

    def make_step(self, request: StepRequest) -> TrainingStep:
        if self._step is not None:
            raise ReportError(
                "prepare_step(…) was called twice; under --strategy local-sgd and diloco a cell "
                "trains one model"
            )
        request.model.to(request.device)
        tensors = (*request.model.parameters(), *request.model.buffers())
        if self.company is None:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), 0)
        else:
            self.circle = Circle(self.company, self.exchange)
            self.passes = self.company.joins
            if self.passes:
                self.n_others = self.circle.n_told
            else:
                self.circle.begin()
                self.circle.copy_first(tensors)
        self._step = LocalStep(request, self, self._sync_every)
        return self._step

    circle: Circle | None = None
    """Those who meet, where the others go on without a rank that is lost."""

    def means(self, tensors: list[Any]) -> list[Any]:
        """The means over the ranks that are there, as new tensors."""
        return self.exchange.means(tensors) if self.circle is None else self.circle.means(tensors)

    def meet(self, shared: list[Any]) -> None:
        """Replace what each rank has by what all go on with."""
        for tensor, mean in zip(shared, self.means(shared), strict=True):
            tensor.copy_(mean)

    def begin(self, shared: list[Any]) -> None:
        """Before the first step behind a meeting, while all ranks have the same."""

    def state(self, stateful: Any) -> Mapping[str, Any]:
        self._meet_now()
        state: Mapping[str, Any] = stateful.state_dict()
        if not isinstance(stateful, torch.optim.Optimizer):
            return state
        # Each rank has moments of its own; one process has one.
        return {**state, "state": _mean_state(state["state"], self.means)}

    def unwrap(self, model: Any) -> Any:
        self._meet_now()
        return model

    def leave(self, reason: StopReason) -> None:
        if self.circle is not None and reason == "complete" and not self.passes:
            self.circle.finish()

    def is_collective(self, state: Any) -> bool:
        return _has_state(state)

    def _meet_now(self) -> None:
        if self._step is not None:
            self._step.meet()


class DiLoCo(LocalSgd):
    """See :class:`LocalSgd`.

    Parameters
    ----------
    sync_every : int
        Steps from one meeting to the next.
    outer_lr, outer_momentum : float
        Of the optimizer that goes from one meeting to the next.
    """

    def __init__(
        self, sync_every: int = 50, outer_lr: float = 0.7, outer_momentum: float = 0.9
    ) -> None:
        super().__init__(sync_every)
        self._lr = outer_lr
        self._momentum = outer_momentum
        self._common: list[Any] = []
        self._velocities: list[Any] = []

    def begin(self, shared: list[Any]) -> None:
        # Here and not at the meeting: a cell may load a checkpoint in between.
        self._common = [each.detach().clone() for each in shared]

    def meet(self, shared: list[Any]) -> None:
        means = self.means(shared)
        gradients = [old - mean for old, mean in zip(self._common, means, strict=True)]
        if not self._velocities:
            self._velocities = [torch.zeros_like(each) for each in gradients]
        # A checkpoint's are on the CPU.
        self._velocities = [
            velocity.to(gradient.device)
            for velocity, gradient in zip(self._velocities, gradients, strict=True)
        ]
        for tensor, old, velocity, gradient in zip(
            shared, self._common, self._velocities, gradients, strict=True
        ):
            velocity.mul_(self._momentum).add_(gradient)
            tensor.copy_(old - self._lr * (gradient + self._momentum * velocity))

    def extra_state(self) -> dict[str, Any]:
        return {"velocities": list(self._velocities)} if self._velocities else {}

    def restore_extra(self, state: Mapping[str, Any]) -> None:
        self._velocities = list(state.get("velocities", ()))


class LocalStep(TrainingStep):
    """A step of one rank, and a meeting when it is time."""

    def __init__(self, request: StepRequest, strategy: LocalSgd, sync_every: int) -> None:
        super().__init__(request)
        self._strategy = strategy
        self._sync_every = sync_every
        company = strategy.company
        self._n_ranks = dist.get_world_size() if company is None else company.place.world_size
        self._n_alone = 0
        self._n_all = 0
        self._n_common: int | None = None
        self._enters_at: int | None = None

    def __call__(self, *batch: Any) -> Any:
        strategy = self._strategy
        if strategy.circle is not None:
            if strategy.passes and self._passes(strategy.circle):
                strategy.n_steps += 1
                return self._loss
            self._welcome(strategy.circle)
            strategy.n_steps += 1
        return super().__call__(*batch)

    # -- ranks that were lost and come back ------------------------------------------------------

    def _passes(self, circle: Circle) -> bool:
        """Whether the others have made this step without this rank; where they are, it goes on."""
        strategy = self._strategy
        if self._enters_at is None:
            n_steps, loss = circle.place()
            self._loss, strategy.n_others = torch.tensor(loss), n_steps
            if strategy.n_steps < n_steps:
                return True
            self._enter(circle)
        strategy.passes = strategy.n_steps < (self._enters_at or 0)
        return strategy.passes

    def _enter(self, circle: Circle) -> None:
        content, tensors = circle.enter()
        own = [*self.model.parameters(), *self.model.buffers()]
        n_velocities = content["n_velocities"]
        with torch.no_grad():
            for tensor, value in zip(own, tensors, strict=False):
                tensor.copy_(value)
        at = len(own) + n_velocities
        self._strategy.restore_extra({"velocities": tensors[len(own) : at]})
        parameters = trained(self.optimizer)
        self.optimizer.state.clear()
        for number, held in put_state(content["optimizer"], tensors[at:]):
            self.optimizer.state[parameters[number]] = held
        follow_parameters(self.optimizer)
        circle.met(content["n_met"])
        self._n_all = self._enters_at = content["n_steps"]

    def _welcome(self, circle: Circle) -> None:
        """Let in who waits, and tell them where all are."""
        for rank in circle.look():
            own = [*self.model.parameters(), *self.model.buffers()]
            velocities = list(self._strategy.extra_state().get("velocities", ()))
            numbers = range(len(trained(self.optimizer)))
            state, held = state_of(self.optimizer, numbers)
            content = {
                "n_steps": self._strategy.n_steps,
                "n_met": circle.n_met,
                "n_velocities": len(velocities),
                "optimizer": state,
            }
            circle.receive(rank, content, [*own, *velocities, *held])

    # -- steps -----------------------------------------------------------------------------------

    def begin(self, n_samples: int) -> None:
        super().begin(n_samples)
        share = self.share
        # A cell may have made another batch of the loader's: then each rank counts for the same.
        self._n_common = share[1] if share is not None and share[0] == n_samples else None
        if self._n_all == 0:
            self._check_start()
        if self._n_alone == 0:
            self._strategy.begin(self._shared())

    def weight(self) -> float:
        """Of a short batch, ranks with more samples count for more, and all for their mean."""
        if self.n_samples == 0:
            return 0.0
        return 1.0 / self.n_samples if not self._n_common else self._n_ranks / self._n_common

    def computed(self, mean: Any) -> None:
        self._loss = mean

    def update(self) -> None:
        super().update()
        self._n_alone += 1
        self._n_all += 1
        if self._n_alone == self._sync_every:
            self.meet()

    def meet(self) -> None:
        """Meet the other ranks, if there was a step since the last meeting."""
        if self._n_alone:
            self._n_alone = 0
            with torch.no_grad():
                self._strategy.meet(self._shared())
            circle = self._strategy.circle
            if circle is not None and circle.is_first and circle.lacks_ranks:
                circle.tell_place(self._strategy.n_steps, float(self._loss))

    def _shared(self) -> list[Any]:
        """Parameters and running means; counters stay each rank's own."""
        tensors = (*self.model.parameters(), *self.model.buffers())
        return [each.detach() for each in tensors if _has_mean(each)]

    def _check_start(self) -> None:
        strategy = self._strategy
        gathers = strategy.exchange if strategy.circle is None else strategy.circle
        found = gathers.gather_json(digest_of(self._shared()))
        others = [rank for rank, digest in enumerate(found) if digest != found[0]]
        if others:
            raise ReportError(
                f"rank {others[0]} would begin with other parameters than rank 0, and their mean "
                f"would be that of two models; load the same state on every rank, behind "
                f"prepare_step(…)"
            )


def _mean_state(
    state: Mapping[Any, Any], means_of: Callable[[list[Any]], list[Any]]
) -> dict[Any, Any]:
    """An optimizer's moments, averaged over the ranks; its counters as they are."""
    places = [
        (number, name)
        for number, values in state.items()
        for name, value in values.items()
        if isinstance(value, torch.Tensor) and _has_mean(value) and value.dim()
    ]
    means = means_of([state[number][name] for number, name in places])
    found = {number: dict(values) for number, values in state.items()}
    for (number, name), mean in zip(places, means, strict=True):
        found[number][name] = mean
    return found


def _has_mean(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


def _has_state(value: Any) -> bool:
    if isinstance(value, torch.nn.Module | torch.optim.Optimizer):
        return True
    inner: Iterable[Any] = ()
    if isinstance(value, Mapping):
        inner = value.values()
    elif type(value) in (list, tuple):
        inner = value
    return any(map(_has_state, inner))
