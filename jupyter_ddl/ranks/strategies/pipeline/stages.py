"""One rank's stages of a pipeline, run by ``torch.distributed.pipelining``.

Shapes and dtypes between stages are given to torch, which would otherwise exchange them as pickles.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from jupyter_ddl.protocol.pipeline import SpanKind
from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.pipeline.cutting import Part
from jupyter_ddl.ranks.strategies.pipeline.schedules import Action, Span, order_of_single
from jupyter_ddl.ranks.strategies.steps import checked_loss

__all__ = ["Meta", "Stages"]

_OF_ONE = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
_OF_SEVERAL = {
    "interleaved": ScheduleInterleaved1F1B,
    "zerobubble": ScheduleInterleavedZeroBubble,
}
_KINDS: dict[str, SpanKind] = {"F": "forward", "B": "backward", "I": "input", "W": "weight"}
_ACTION = re.compile(r"(\d+)([FBIW])(\d+)")
"""As torch writes what computes, e.g. ``0F3``."""

# It prints the whole schedule where the user's code raises; that error has its own traceback.
logging.getLogger("torch.distributed.pipelining.schedules").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class Meta:
    """What goes between two stages for one micro-batch."""

    shape: tuple[int, ...]
    dtype: str
    """As in ``torch.float32``, without ``torch.``."""
    has_gradient: bool

    @property
    def n_bytes(self) -> int:
        """Size of one such tensor."""
        return math.prod(self.shape) * int(getattr(torch, self.dtype).itemsize)

    def empty(self) -> Any:
        """A tensor of this kind that takes no memory."""
        made = torch.empty(self.shape, dtype=getattr(torch, self.dtype), device="meta")
        return made.requires_grad_(self.has_gradient)


class Stages:
    """Made by all ranks of a group at once, for micro-batches of one shape.

    Parameters
    ----------
    starts : sequence of int
        Of all stages, in parts.
    metas : sequence of Meta
        Before the first stage, between stages, and behind the last one.
    autocast : callable
        Makes the context in which parts and the loss are computed.
    group : torch.distributed.ProcessGroup, optional
        The ranks of this pipeline; by default all.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        starts: Sequence[int],
        metas: Sequence[Meta],
        *,
        schedule: str,
        n_microbatches: int,
        loss_fn: Callable[[Any, Any], Any],
        device: Any,
        autocast: Callable[[], AbstractContextManager[Any]],
        group: Any = None,
    ) -> None:
        self._n_stages = len(starts)
        self._n_microbatches = n_microbatches
        self._loss_fn = loss_fn
        self._autocast = autocast
        self._targets: list[Any] = []
        self._sizes: list[int] = []
        self._factor = 1.0
        self.spans: list[Span] = []
        rank, n_ranks = dist.get_rank(group), dist.get_world_size(group)
        self._rank, self._n_ranks = rank, n_ranks
        ends = (*starts[1:], len(parts))
        self._stages = [
            _TimedStage(
                _Chain(parts[starts[number] : ends[number]], metas[number + 1], autocast),
                number,
                self._n_stages,
                device,
                input_args=metas[number].empty(),
                output_args=metas[number + 1].empty(),
                group=group,
                spans=self.spans,
                n_bytes_sent=_n_bytes_sent(number, self._n_stages, metas),
            )
            for number in range(rank, self._n_stages, n_ranks)
        ]
        self.n_rows = metas[0].shape[0]
        """Samples in a micro-batch."""
        self._schedule_name = schedule
        self._schedule = self._made(schedule)

    def _made(self, schedule: str) -> Any:
        options = {
            "n_microbatches": self._n_microbatches,
            "loss_fn": self._loss,
            "scale_grads": False,  # the weights of the losses do it
        }
        if schedule in _OF_ONE:
            return _OF_ONE[schedule](self._stages[0], **options)
        return _OF_SEVERAL[schedule](self._stages, **options)

    @property
    def bytes_per_batch(self) -> int:
        """Payload of activations and gradients that this rank sends for a batch."""
        return self._n_microbatches * sum(stage.n_bytes_sent for stage in self._stages)

    @property
    def order(self) -> dict[int, list[Action]]:
        """What each rank computes, in its order."""
        if self._schedule_name in _OF_ONE:
            return order_of_single(self._schedule_name, self._n_ranks, self._n_microbatches)
        return {
            rank: [
                Action(int(found[1]), _KINDS[found[2]], int(found[3]))
                for found in (_ACTION.fullmatch(str(each)) for each in actions)
                if found
            ]
            for rank, actions in self._schedule.pipeline_order.items()
        }

    def train(self, x: Any, y: Any, factor: float = 1.0) -> Any:
        """Forward and backward of one batch; gradients are added to those that are there.

        Parameters
        ----------
        x : Tensor, shape (n_samples, …)
            Equal on all ranks, as is ``y``.
        y : Tensor or a tree of them
        factor : float
            Of the gradients; 0 for a batch that only keeps this rank in step.

        Returns
        -------
        Tensor or float
            The loss over the batch, times the factor, where this rank has the last stage; 0
            elsewhere.
        """
        n_samples = len(x)
        rows = self.n_rows
        self._sizes = [
            min(rows, max(0, n_samples - at * rows)) for at in range(self._n_microbatches)
        ]
        self._targets = list(_pieces(y, self._sizes))
        self._factor = factor / n_samples
        self.spans.clear()
        losses: list[Any] = []
        inputs = (_padded(x, rows * self._n_microbatches),) if self._rank == 0 else ()
        # torch cuts the target as it cuts the batch: what it hands back is a piece's number.
        numbers = torch.arange(self._n_microbatches)
        is_last = self._stages[-1].is_last
        try:
            self._schedule.step(
                *inputs,
                target=numbers if is_last else None,
                losses=losses if is_last else None,
                return_outputs=False,
            )
        finally:
            self._targets = []
        if not is_last:
            return 0.0
        return torch.stack([each.detach() for each in losses]).sum()

    def _loss(self, output: Any, number: Any) -> Any:
        which = int(number)
        n_samples = self._sizes[which]
        if not n_samples:  # nothing but padding: the batch is short
            return output.sum() * 0.0
        with self._autocast():
            loss = self._loss_fn(output[:n_samples], self._targets[which])
        return checked_loss(loss) * (n_samples * self._factor)


class _Chain(nn.Module):  # type: ignore[misc]  # torch is not followed
    """The parts of one stage, one after another."""

    def __init__(
        self,
        parts: Sequence[Part],
        after: Meta,
        autocast: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        super().__init__()
        self.parts = nn.ModuleList(part.module for part in parts)
        self._name = parts[-1].name
        self._after = after
        self._autocast = autocast

    def forward(self, value: Any) -> Any:
        with self._autocast():
            for part in self.parts:
                value = part(value)
        if tuple(value.shape) != self._after.shape:
            raise ReportError(
                f"--strategy pipeline expects {self._name!r} to return a tensor of shape "
                f"{self._after.shape} for a micro-batch, as in its first pass, and it returned "
                f"{tuple(value.shape)}; shapes that depend on values need --strategy ddp"
            )
        return value.contiguous()


class _TimedStage(PipelineStage):  # type: ignore[misc]  # torch is not followed
    """Notes when it computes, and lets errors of the user's code through as they are."""

    def __init__(self, *args: Any, spans: list[Span], n_bytes_sent: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self._spans = spans
        self.n_bytes_sent = n_bytes_sent

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **options: Any) -> Any:
        began_s = time.perf_counter()
        try:
            output = super().forward_one_chunk(fwd_chunk_id, *args, **options)
        except RuntimeError as error:
            if error.__cause__ is not None:
                raise error.__cause__ from None
            raise
        self._note("forward", fwd_chunk_id, began_s)
        return output

    def backward_one_chunk(
        self, bwd_chunk_id: int, *args: Any, full_backward: bool = True, **options: Any
    ) -> Any:
        began_s = time.perf_counter()
        result = super().backward_one_chunk(
            bwd_chunk_id, *args, full_backward=full_backward, **options
        )
        self._note("backward" if full_backward else "input", bwd_chunk_id, began_s)
        return result

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *args: Any, **options: Any) -> Any:
        began_s = time.perf_counter()
        result = super().backward_weight_one_chunk(bwd_chunk_id, *args, **options)
        self._note("weight", bwd_chunk_id, began_s)
        return result

    def _note(self, kind: SpanKind, microbatch: int, began_s: float) -> None:
        if self.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        action = Action(self.stage_index, kind, microbatch)
        self._spans.append(Span(self.group_rank, action, began_s, time.perf_counter()))


def _n_bytes_sent(number: int, n_stages: int, metas: Sequence[Meta]) -> int:
    """Of one micro-batch: what a stage makes, and the gradient of what it was given."""
    before, after = metas[number], metas[number + 1]
    made = after.n_bytes if number + 1 < n_stages else 0
    return made + (before.n_bytes if number and before.has_gradient else 0)


def _padded(x: Any, n_rows: int) -> Any:
    """Repeat the last sample: torch's buffers have one size, and no loss looks at the copies."""
    missing = n_rows - len(x)
    return x if not missing else torch.cat([x, x[-1:].expand(missing, *x.shape[1:])])


def _pieces(tree: Any, sizes: Sequence[int]) -> Iterator[Any]:
    at = 0
    for size in sizes:
        yield _rows_of(tree, at, at + size)
        at += size


def _rows_of(tree: Any, start: int, end: int) -> Any:
    if isinstance(tree, torch.Tensor):
        return tree[start:end]
    if isinstance(tree, dict):
        return {name: _rows_of(each, start, end) for name, each in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(_rows_of(each, start, end) for each in tree)
    raise ReportError(
        f"--strategy pipeline cuts the targets into micro-batches, and found a "
        f"{type(tree).__name__}; expected tensors, or lists, tuples and dicts of them"
    )
