"""The training step that ``prepare_step`` returns: alone, and with gradients that are averaged.

A batch that is too large for the memory is cut into ``accumulate`` parts, each weighted by its
samples, so that a step computes the same however it is cut and shared out.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from jupyter_ddl.ranks.metrics import ReportError, shown
from jupyter_ddl.ranks.strategies.averages import averages_of
from jupyter_ddl.ranks.strategies.exchange import Exchange

__all__ = [
    "AveragedStep",
    "StepRequest",
    "StepSettings",
    "TrainingStep",
    "autocast",
    "check_parts",
    "moved",
    "n_samples_of",
    "parts_of",
    "tensors_of",
]

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class StepSettings:
    """How a step is made, beside its strategy."""

    accumulate: int = 1
    """Into how many parts a rank's share of the batch is cut, one after another."""
    clip_norm: float | None = None
    """Largest norm of all gradients together."""
    amp: Any = None
    """The ``torch.dtype`` of autocast; None: the parameters' own."""

    @classmethod
    def checked(cls, accumulate: Any, clip_norm: Any, amp: Any) -> StepSettings:
        """Settings as a cell gives them.

        Raises
        ------
        ReportError
            One of them is not what it should be; one line that names it.
        """
        if type(accumulate) is not int or accumulate < 1:
            raise ReportError(
                f"prepare_step(accumulate={shown(accumulate)}): expected a whole number of at "
                f"least 1, the parts that a batch is cut into"
            )
        is_number = isinstance(clip_norm, int | float) and not isinstance(clip_norm, bool)
        if clip_norm is not None and (not is_number or not clip_norm > 0):
            raise ReportError(
                f"prepare_step(clip_norm={shown(clip_norm)}): expected a number above 0, or None "
                f"for gradients as they are"
            )
        kind = _TYPES.get(amp, amp) if isinstance(amp, str) else amp
        if kind is not None and kind not in _TYPES.values():
            raise ReportError(
                f"prepare_step(amp={shown(amp)}): expected 'bf16', 'fp16', or None for the "
                f"parameters' own type"
            )
        return cls(accumulate, clip_norm, kind)


@dataclass(frozen=True)
class StepRequest:
    """What a cell has given to ``prepare_step``, for a strategy to make a step of."""

    model: Any
    loss_fn: Any
    optimizer: Any
    settings: StepSettings
    device: Any
    batch_share: Callable[[tuple[Any, ...]], tuple[int, int] | None] = lambda _: None
    """How many samples of a batch are this rank's, and of all ranks together, where a prepared
    loader has given it.  None of its own: there were fewer samples than ranks, and the one that
    this rank has only keeps it in step."""


def check_parts(model: Any, loss_fn: Any, optimizer: Any) -> None:
    """Refuse what can be no training step, before anything is trained.

    Raises
    ------
    ReportError
        One line that names the argument and what to do.
    """
    if not isinstance(model, torch.nn.Module):
        raise _wrong("model", model, "a torch.nn.Module")
    if not callable(loss_fn) or isinstance(loss_fn, type | torch.optim.Optimizer):
        raise _wrong("loss_fn", loss_fn, "a function of (output, target) that returns the mean")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise _wrong("optimizer", optimizer, "a torch.optim.Optimizer")
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ReportError(
            f"prepare_step(…) got {type(optimizer).__name__}, whose step() wants a closure that "
            f"computes the loss again; use another optimizer, or prepare(…) and a loop of your own"
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ReportError(
            f"prepare_step(…) got a {type(model).__name__} without a parameter that requires "
            f"gradients; there is nothing to train"
        )


def _wrong(name: str, value: Any, expected: str) -> ReportError:
    return ReportError(
        f"prepare_step(…): {name} is {shown(value)} ({type(value).__name__}); expected {expected}; "
        f"write prepare_step(model, loss_fn, optimizer)"
    )


def check_owner(request: StepRequest) -> None:
    """Refuse an optimizer that trains something else than the model."""
    own = {id(parameter) for parameter in request.model.parameters()}
    given = {id(each) for group in request.optimizer.param_groups for each in group["params"]}
    if not own & given:
        raise ReportError(
            f"prepare_step(…): {type(request.optimizer).__name__} has none of the parameters of "
            f"{type(request.model).__name__}; make it of model.parameters()"
        )


@contextlib.contextmanager
def autocast(settings: StepSettings, device: Any) -> Iterator[None]:
    """Compute forward passes in the type that ``amp`` names, as torch's own autocast does."""
    if settings.amp is None:
        yield
        return
    with torch.autocast(device.type, dtype=settings.amp):
        yield


class TrainingStep:
    """Forward, backward, update: of a process that trains alone.

    Subclasses say what the ranks of a group exchange on the way.
    """

    cuts_alike = False
    """Whether all ranks must compute the same number of parts, because these exchange something."""

    def __init__(self, request: StepRequest) -> None:
        self.model = request.model
        self.loss_fn = request.loss_fn
        self.optimizer = request.optimizer
        self.settings = request.settings
        self.device = request.device
        self.batch_share = request.batch_share
        self.share: tuple[int, int] | None = None
        """What ``batch_share`` says of the batch at hand."""
        check_owner(request)
        # Sixteen bits without bfloat16's range: gradients that vanish are scaled up.
        scales = request.settings.amp is torch.float16
        self.scaler = torch.amp.GradScaler(request.device.type) if scales else None

    def __call__(self, *batch: Any) -> Any:
        """Make one step.

        Parameters
        ----------
        *batch
            What the model takes, and last what the loss compares its output with.

        Returns
        -------
        torch.Tensor
            The loss without its graph, a scalar.

        Raises
        ------
        ReportError
            The batch, or what ``loss_fn`` makes of it, is not what a step can be made of.
        """
        self.share = share = self.batch_share(batch)
        batch = tuple(moved(each, self.device) for each in batch)
        n_samples = n_samples_of(batch)
        n_parts = self.settings.accumulate
        parts = parts_of(batch, n_samples, n_parts if self.cuts_alike else min(n_parts, n_samples))
        self.begin(0 if share is not None and share[0] == 0 else n_samples)
        self.optimizer.zero_grad()
        total: Any = None
        for number, (n_part, part) in enumerate(parts, 1):
            is_last = number == len(parts)
            with contextlib.nullcontext() if is_last else self.accumulating():
                loss = self.loss_of(part)
                if len(parts) > 1:
                    loss_of_part = loss.detach() * n_part
                    total = loss_of_part if total is None else total + loss_of_part
                if is_last:
                    self.computed(loss.detach() if total is None else total / n_samples)
                self._backward(loss, n_part)
        self.synchronize()
        self.update()
        return self.result()

    def scale_state(self) -> dict[str, float] | None:
        """How gradients in 16 bits are scaled, as plain numbers; None: they are not."""
        if self.scaler is None:
            return None
        state = self.scaler.state_dict()
        return {"scale": state["scale"], "n_finite": state["_growth_tracker"]}

    def restore_scale(self, state: Mapping[str, float]) -> None:
        """Go on with the scale of a checkpoint, where there is one here."""
        if self.scaler is not None:
            given = {"scale": state["scale"], "_growth_tracker": int(state["n_finite"])}
            self.scaler.load_state_dict({**self.scaler.state_dict(), **given})

    # -- what a group adds ---------------------------------------------------------------------

    def begin(self, n_samples: int) -> None:
        """Before the forward pass of a batch with ``n_samples`` samples of its own."""
        self.n_samples = n_samples

    def weight(self) -> Any:
        """What one sample's gradient counts for: a number, or a scalar on the step's device."""
        return 1.0 / self.n_samples

    def accumulating(self) -> AbstractContextManager[Any]:
        """Around a part of a batch that is not the last one."""
        return contextlib.nullcontext()

    def computed(self, mean: Any) -> None:
        """Between the last forward and backward pass; ``mean`` is that of the losses here."""
        self._loss = mean

    def synchronize(self) -> None:
        """Behind the last backward pass."""

    def result(self) -> Any:
        """The loss to return."""
        return self._loss

    # -- what all have in common ---------------------------------------------------------------

    def loss_of(self, part: tuple[Any, ...]) -> Any:
        """The mean loss of a part, with its graph; a scalar."""
        if self.settings.amp is None:
            return checked_loss(self.loss_fn(self.model(*part[:-1]), part[-1]))
        with autocast(self.settings, self.device):
            loss = self.loss_fn(self.model(*part[:-1]), part[-1])
        return checked_loss(loss)

    def update(self) -> None:
        """Clip, and have the optimizer make its step."""
        scaler, limit = self.scaler, self.settings.clip_norm
        if scaler is not None:
            scaler.unscale_(self.optimizer)
        if limit is not None:
            self.clip(limit)
        if scaler is None:
            self.optimizer.step()
        else:
            scaler.step(self.optimizer)
            scaler.update()

    def clip(self, limit: float) -> None:
        """Scale all gradients down to a norm of ``limit`` together."""
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)

    def _backward(self, loss: Any, n_part: int) -> None:
        factor = n_part * self.weight()
        # Whether a number on a GPU is 1 would have to be waited for.
        scaled = loss if isinstance(factor, float) and factor == 1.0 else loss * factor
        (scaled if self.scaler is None else self.scaler.scale(scaled)).backward()


class AveragedStep(TrainingStep):
    """A model whose gradients are averaged over the ranks during each backward pass.

    The ranks' shares may be of unequal size; the result is the mean over all samples.

    Parameters
    ----------
    exchange : Exchange
        Of the ranks over which gradients are averaged.
    n_ranks : int
        How many these are.
    """

    cuts_alike = True

    def __init__(self, request: StepRequest, exchange: Exchange, n_ranks: int) -> None:
        super().__init__(request)
        self._exchange = exchange
        self._averages = averages_of(exchange, n_ranks)
        self._loss: Any = None
        """The mean of this rank's samples."""
        self._is_last_part = False

    def begin(self, n_samples: int) -> None:
        self._averages.begin(n_samples)

    def weight(self) -> Any:
        return self._averages.weight()

    def computed(self, mean: Any) -> None:
        super().computed(mean)
        self._is_last_part = True

    def _backward(self, loss: Any, n_part: int) -> None:
        if self._is_last_part:
            self._is_last_part = False
            loss = self._averages.attach(loss, self._loss)
        super()._backward(loss, n_part)

    def synchronize(self) -> None:
        self._averages.end(self._loss, lambda: self.model.parameters())

    def result(self) -> Any:
        return self._averages.mean()


def checked_loss(loss: Any) -> Any:
    """A loss as a scalar with its graph.

    Raises
    ------
    ReportError
        It is no single number, or nothing of the model is in it.
    """
    if not isinstance(loss, torch.Tensor):
        raise ReportError(
            f"loss_fn(output, target) returned {shown(loss)} ({type(loss).__name__}); expected a "
            f"tensor with one number, the mean over the batch"
        )
    if loss.numel() != 1:
        raise ReportError(
            f"loss_fn(output, target) returned a tensor of shape {tuple(loss.shape)}; expected one "
            f"number, the mean over the batch: use reduction='mean', or .mean()"
        )
    if not loss.requires_grad:
        raise ReportError(
            "loss_fn(output, target) returned a number without gradients; compute it from the "
            "model's output by differentiable functions of torch, without .item(), .detach() or "
            "argmax"
        )
    return loss.reshape(()) if loss.dim() else loss


def moved(value: Any, device: Any) -> Any:
    """A batch, or a part of one, on a device."""
    if isinstance(value, torch.Tensor):  # as nearly always, and nearly always there
        return value if value.device == device else value.to(device, non_blocking=True)
    return _each_tensor(value, lambda tensor: tensor.to(device, non_blocking=True))


def n_samples_of(batch: tuple[Any, ...]) -> int:
    """How many samples a batch has: the first length of its first tensor.

    Raises
    ------
    ReportError
        It has none, or consists of less than an input and a target.
    """
    if len(batch) < 2:
        raise ReportError(
            f"step(…) got {len(batch)} argument{'' if len(batch) == 1 else 's'}; expected those of "
            f"the model and the target: step(x, y)"
        )
    first = batch[0]
    for tensor in (first,) if isinstance(first, torch.Tensor) else tensors_of(batch):
        if tensor.dim() and tensor.shape[0]:
            return int(tensor.shape[0])
        raise ReportError(
            f"step(…) got a tensor of shape {tuple(tensor.shape)}; expected a batch, whose first "
            f"length counts samples and is at least 1"
        )
    raise ReportError(f"step(…) got no tensor but {shown(batch)}; expected a batch: step(x, y)")


def parts_of(
    batch: tuple[Any, ...], n_samples: int, n_parts: int
) -> list[tuple[int, tuple[Any, ...]]]:
    """Cut a batch into ``n_parts`` parts of nearly equal size: (samples, part) each.

    Where there are fewer samples, further parts have one of them, and count for none.
    """
    if n_parts == 1:
        return [(n_samples, batch)]
    found = []
    start = 0
    for number in range(n_parts):
        end = start + n_samples // n_parts + (number < n_samples % n_parts)
        own = slice(start, end) if end > start else slice(0, 1)
        found.append((end - start, tuple(_cut(each, own, n_samples) for each in batch)))
        start = end
    return found


def _cut(value: Any, own: slice, n_samples: int) -> Any:
    def cut(tensor: Any) -> Any:
        has_samples = tensor.dim() and tensor.shape[0] == n_samples
        return tensor[own] if has_samples else tensor

    return _each_tensor(value, cut)


def _each_tensor(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) is dict:
        return {name: _each_tensor(item, change) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_each_tensor(item, change) for item in value)
    return value


def tensors_of(value: Any) -> Iterator[Any]:
    """The tensors of a batch in order, also those in containers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_of(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_of(item)
