"""``DistributedOptimizer``: gradients combined over all ranks before each step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from jupyter_ddl.errors import SpecError
from jupyter_ddl.horovod.collectives import Average, Sum, require, size

__all__ = ["Compression", "DistributedOptimizer"]

_BUCKET_BYTES = 25 * 2**20
"""As DDP's: large enough that a collective's own cost does not count, small enough to overlap."""


class Compression:
    """How gradients travel: as they are, or in 16 bits."""

    none = None
    fp16 = torch.float16


def DistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: Any,
    named_parameters: Iterable[tuple[str, Any]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: str = Average,
    gradient_predivide_factor: float = 1.0,
) -> Any:
    """Have an optimizer combine the gradients of all ranks before each of its steps.

    The optimizer itself is returned, as an object of a class derived from its own: schedulers
    that were made for it before go on working.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        With the same parameters in the same order on all ranks.
    named_parameters : iterable of pairs, optional
        Only checked: names must be unique and cover the optimizer's parameters.
    compression : optional
        ``Compression.none`` or ``Compression.fp16``.
    backward_passes_per_step : int
        How often ``backward`` is called before ``step``, at least 1; gradients add up locally
        and are combined once, at the step.
    op : optional
        ``Average`` or ``Sum``.
    gradient_predivide_factor : float
        Above 0.  For an average, gradients are divided by it before the sum, and by the rest of
        the number of ranks after it; 1 leaves to this function how it divides.

    Raises
    ------
    SpecError
        An argument is something else.
    """
    require()
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise SpecError(
            f"DistributedOptimizer() got {type(optimizer).__name__}; expected a torch.optim "
            f"optimizer"
        )
    _check_options(op, backward_passes_per_step, gradient_predivide_factor)
    if named_parameters is not None:
        _check_names(optimizer, list(named_parameters))
    if isinstance(optimizer, _Distributed):
        return optimizer
    kind = type(optimizer)
    optimizer.__class__ = type(kind.__name__, (_Distributed, kind), {"__module__": kind.__module__})
    divisor = None if op != Average else gradient_predivide_factor
    optimizer._reduction = _Reduction(optimizer, divisor, compression)
    # A hook, not an overridden step(): a scheduler has put a step() of its own into the object.
    optimizer.register_step_pre_hook(_before_step)
    return optimizer


class _Distributed:
    """What a distributed optimizer can do besides its own class."""

    _reduction: _Reduction

    def synchronize(self) -> None:
        """Combine the gradients now, to clip them before ``step`` for instance."""
        self._reduction.run()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Steps in this block use gradients as they are: :meth:`synchronize` was called."""
        self._reduction.skipped = True
        try:
            yield
        finally:
            self._reduction.skipped = False


def _before_step(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    if not optimizer._reduction.skipped:
        optimizer._reduction.run()


class _Reduction:
    """Combines gradients in buckets, all of them under way at once."""

    def __init__(self, optimizer: Any, divisor: float | None, wire_type: Any) -> None:
        self._optimizer = optimizer
        self._divisor = divisor
        self._wire_type = wire_type
        self.skipped = False

    def run(self) -> None:
        if size() == 1:
            return
        # By default before the sum, which might not fit into 16 bits.
        before, after = (1.0, 1.0) if self._divisor is None else _divisors(self._divisor)
        buckets = list(_buckets(_gradients(self._optimizer)))
        under_way = []
        for gradients in buckets:
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            if self._wire_type is not None and flat.is_floating_point():
                flat = flat.to(self._wire_type)
            if before != 1.0:
                flat.div_(before)
            under_way.append((gradients, flat, dist.all_reduce(flat, async_op=True)))
        for gradients, flat, work in under_way:
            work.wait()
            if after != 1.0:
                flat.div_(after)
            parts = flat.split([gradient.numel() for gradient in gradients])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient.copy_(part.view_as(gradient))


def _divisors(factor: float) -> tuple[float, float]:
    """What to divide by before the sum, and after it."""
    return (float(size()), 1.0) if factor == 1.0 else (factor, size() / factor)


def _gradients(optimizer: Any) -> Iterator[Any]:
    """Gradients of all trainable parameters; zeros where this rank has none, as in Horovod."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if not parameter.requires_grad:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if parameter.grad.is_sparse:
                raise SpecError(
                    "DistributedOptimizer can't combine sparse gradients; make the embedding with "
                    "sparse=False"
                )
            yield parameter.grad.detach()


def _buckets(gradients: Iterable[Any]) -> Iterator[list[Any]]:
    """Groups of one type and device of about :data:`_BUCKET_BYTES`."""
    kinds: dict[tuple[Any, Any], list[Any]] = {}
    n_bytes: dict[tuple[Any, Any], int] = {}
    for gradient in gradients:
        kind = (gradient.dtype, gradient.device)
        kinds.setdefault(kind, []).append(gradient)
        n_bytes[kind] = n_bytes.get(kind, 0) + gradient.numel() * gradient.element_size()
        if n_bytes[kind] >= _BUCKET_BYTES:
            yield kinds.pop(kind)
            del n_bytes[kind]
    yield from kinds.values()


def _check_options(op: str, n_passes: int, factor: float) -> None:
    if op not in (Average, Sum):
        raise SpecError(f"DistributedOptimizer(op={op!r}): expected hvd.Average or hvd.Sum")
    if n_passes < 1:
        raise SpecError(
            f"DistributedOptimizer(backward_passes_per_step={n_passes}): expected at least 1"
        )
    if not factor > 0 or (factor != 1.0 and op != Average):
        raise SpecError(
            f"DistributedOptimizer(gradient_predivide_factor={factor}): expected a number above 0, "
            f"and op=hvd.Average"
        )


def _check_names(optimizer: Any, named: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in named]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise SpecError(
            f"DistributedOptimizer(named_parameters=…) has the name {doubled!r} twice; give "
            f"model.named_parameters()"
        )
    known = {id(parameter) for _, parameter in named}
    held = [each for group in optimizer.param_groups for each in group["params"]]
    missing = sum(id(parameter) not in known for parameter in held)
    if missing:
        raise SpecError(
            f"DistributedOptimizer(named_parameters=…) leaves out {missing} of the optimizer's "
            f"{len(held)} parameters; give model.named_parameters() of the whole model"
        )
