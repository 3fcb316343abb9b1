"""What a strategy must do: how ``prepare`` makes a model of one process train on several ranks."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from jupyter_ddl.protocol.pipeline import PipelineTimes
from jupyter_ddl.protocol.staleness import Staleness
from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.stopping import StopReason
from jupyter_ddl.ranks.strategies.sharded import is_sharded

if TYPE_CHECKING:
    from jupyter_ddl.ranks.strategies.company import Company
    from jupyter_ddl.ranks.strategies.exchange import Exchange
    from jupyter_ddl.ranks.strategies.steps import StepRequest, TrainingStep

__all__ = ["Share", "StepStrategy", "Strategy"]


class Share(NamedTuple):
    """Which part of every batch a rank gets: number ``number``, from 0, of ``n_parts``."""

    number: int
    n_parts: int


class Strategy(ABC):
    """Lives as long as one attempt, in one rank of a group.

    A package adds one by the entry point group ``jupyter_ddl.strategies``: a name, and a class
    derived from this one, whose ``__init__`` takes the options of its own that the line has set
    (``jupyter_ddl.verbs.strategy_options``; a package's has none).
    ``jupyter_ddl.testing.strategies`` has the tests that each one is to pass.

    It is made when the cell first calls ``prepare`` or ``prepare_step``, after the process group
    was initialised (unless the cell does that itself, with ``--no-init``).  All calls come on the
    rank's main thread, by all ranks of the group in the same order: a method may use collectives
    unless it says otherwise.  How long that may take is for the group's watch over hangs to say.
    Nothing has to be given back: the process ends with the attempt.

    *Plain* state is the state dict that one process without any strategy would have, on the CPU:
    a checkpoint that was written under one strategy is read under every other.
    """

    tell: Callable[[str | PipelineTimes | Staleness], None] = staticmethod(lambda _: None)
    """Has a sentence, or what was measured, written to the run's record."""

    @abstractmethod
    def wrap(self, model: Any, device: Any) -> Any:
        """Make a ``torch.nn.Module`` ready for training on ``device``, in place or around it.

        All ranks begin with the parameters of rank 0.  What has been wrapped is returned as it is.
        What is returned takes plain state in ``load_state_dict``.

        Raises
        ------
        ReportError
            The model, or the group, is not one that can be trained so; the message says what to do.
        """

    @abstractmethod
    def adapt(self, optimizer: Any) -> None:
        """Have a ``torch.optim.Optimizer`` work on the parameters of the wrapped models.

        Called again after every :meth:`wrap`, so it must leave alone what it has adapted.
        Afterwards the optimizer takes plain state in ``load_state_dict``.
        """

    @abstractmethod
    def state(self, stateful: Any) -> Mapping[str, Any]:
        """Return a model's or an optimizer's state; sharded tensors may still be in it.

        Whoever saves gathers the sharded tensors.  Collective where :meth:`is_collective` says so
        for another reason.
        """

    @abstractmethod
    def unwrap(self, model: Any) -> Any:
        """Return the plain module with its trained parameters; collective if they are not whole."""

    company: Company | None = None
    """The other ranks, where these go on without one that is lost (``RankPlace.goes_on``)."""
    passes: bool = False
    """Whether this rank was started again, and its steps only pass over what the others have
    done: they compute nothing, and what the cell reports in between is not told."""
    n_steps: int = 0
    """Calls of the step since the round began, counted where :attr:`company` is set."""
    n_others: int = 0
    """Those of the others, when this rank heard of them last."""

    @property
    def passes_next(self) -> bool:
        """Whether it is certain that the next step passes over what the others have done."""
        return self.passes and self.n_steps < self.n_others

    returns_own_loss: ClassVar[bool] = False
    """Whether a step returns the loss of this rank's samples, and not that of the whole batch."""

    # -- with defaults of strategies that average gradients over all ranks -----------------------

    def axes(self, n_ranks: int) -> Mapping[str, int]:
        """Sizes of the grid of ranks by axis, the outermost first; they multiply to ``n_ranks``."""
        return {"dp": n_ranks}

    _mesh: Any = None

    def device_mesh(self, device: Any) -> Any:
        """The ranks as a ``torch.distributed.device_mesh.DeviceMesh`` with named axes, made once.

        Raises
        ------
        ReportError
            The process group is not initialised.
        """
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        if not dist.is_initialized():
            raise ReportError(
                "device_mesh() needs the process group, which is not initialised; call "
                "torch.distributed.init_process_group() before it, or leave --no-init out"
            )
        if self._mesh is None:
            sizes = self.axes(dist.get_world_size())
            self._mesh = init_device_mesh(
                device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes)
            )
        return self._mesh

    def share(self, rank: int, n_ranks: int) -> Share:
        """Which part of each batch ``prepare(loader)`` gives to this rank."""
        return Share(rank, n_ranks)

    def prepare_step(self, request: StepRequest) -> TrainingStep:
        """Make the step that a cell calls; wraps the model and adapts the optimizer.

        By default that of :meth:`wrap`'s model, whose gradients are averaged over all ranks when
        a backward pass is over.
        """
        import dataclasses

        import torch.distributed as dist

        from jupyter_ddl.ranks.strategies.steps import AveragedStep

        model = self.wrap(request.model, request.device)
        self.adapt(request.optimizer)
        wrapped = dataclasses.replace(request, model=model)
        return AveragedStep(wrapped, self.exchange, dist.get_world_size())

    def is_collective(self, state: Any) -> bool:
        """Whether saving this state, or bringing it back, needs all ranks."""
        return is_sharded(state)

    def extra_state(self) -> dict[str, Any]:
        """What a checkpoint holds for this strategy beside the cell's own state: plain values.

        Read after :meth:`state`; equal on all ranks.
        """
        return {}

    def restore_extra(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - most have none
        """Take what a checkpoint holds; it may be of another strategy, and lack everything."""

    @property
    def reporting_group(self) -> Any:
        """The ``ProcessGroup`` of the ranks that call ``report``; None: all ranks do."""
        return None

    def leave(self, reason: StopReason) -> None:  # noqa: B027 - most have nobody to tell
        """Tell ranks that wait for this one that its cell has ended, and how; not collective."""

    @functools.cached_property
    def exchange(self) -> Exchange:
        """What the ranks tell each other, and how much that was."""
        from jupyter_ddl.ranks.strategies.exchange import Exchange

        return Exchange()

    @property
    def bytes_sent(self) -> int | None:
        """Payload that this rank has sent in its steps, in bytes; None: it is not counted.

        By default, since what a wrapped model sends is not known.
        """
        return None


class StepStrategy(Strategy):
    """Base of strategies that make whole steps: a loop by hand would train each rank by itself."""

    def wrap(self, model: Any, device: Any) -> Any:
        raise ReportError(
            f"prepare(model) got a {type(model).__name__}, and this --strategy makes whole steps; "
            f"leave model and optimizer out of prepare(…) and write "
            f"`step = prepare_step(model, loss_fn, optimizer)`"
        )

    @property
    def bytes_sent(self) -> int | None:
        return self.exchange.bytes_sent

    def adapt(self, optimizer: Any) -> None:
        """Nothing to do: the parameters are the same objects as before."""

    def state(self, stateful: Any) -> Mapping[str, Any]:
        state: Mapping[str, Any] = stateful.state_dict()
        return state

    def unwrap(self, model: Any) -> Any:
        return model

    def prepare_step(self, request: StepRequest) -> TrainingStep:
        import torch.distributed as dist

        place = None if self.company is None else self.company.place
        has_none = place is not None and (place.life > 1 or place.absent)
        if not has_none and not dist.is_initialized():
            raise ReportError(
                "prepare_step(…) needs the process group, which is not initialised; call "
                "torch.distributed.init_process_group() before it, or leave --no-init out"
            )
        return self.make_step(request)

    @abstractmethod
    def make_step(self, request: StepRequest) -> TrainingStep:
        """Make the step that a cell calls."""
