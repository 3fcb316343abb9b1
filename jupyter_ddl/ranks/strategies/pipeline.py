"""``--strategy pipeline``: each rank computes some of the layers, for one micro-batch at a time.

Every rank keeps the whole model where the cell has made it, and trains the stages that are its own;
the others' parameters are brought up to date when somebody reads them.  Gradients, the optimizer's
state and activations are only of its own stages.
"""

from __future__ import annotations

import contextlib
import math
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from jupyter_ddl.formats import format_bytes, format_counted, format_duration
from jupyter_ddl.protocol.pipeline import PipelineStageCut, PipelineTimes
from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies import cutting, schedules
from jupyter_ddl.ranks.strategies.base import Share, StepStrategy
from jupyter_ddl.ranks.strategies.owners import Owners
from jupyter_ddl.ranks.strategies.stages import Meta, Stages
from jupyter_ddl.ranks.strategies.steps import (
    StepRequest,
    TrainingStep,
    autocast,
    moved,
    n_samples_of,
    parts_of,
    tensors_of,
)

__all__ = ["Pipeline"]

_MIN_NORM_ROWS = 8
"""Fewer samples than this have no statistics that a BatchNorm could use."""
_FIRST_SCALE = 2.0**16
_FIRST_MEASURED, _MEASURE_FACTOR = 4, 4
"""Steps that are measured: when nothing is new any more, and then more and more rarely."""
_N_STAGES_TOLD = 8
_GROW_AFTER = 2000
"""Of the factor of gradients in 16 bits; as in torch's ``GradScaler``."""


class Pipeline(StepStrategy):
    """See :class:`~jupyter_ddl.ranks.strategies.base.Strategy`.

    Parameters
    ----------
    schedule : str, optional
        One of :data:`~jupyter_ddl.ranks.strategies.schedules.SCHEDULES`; by default ``1f1b``, or
        ``gpipe`` where there are fewer micro-batches than ranks.
    microbatches : int, optional
        Into how many parts a batch is cut; by default at most four for each rank.
    split : str, optional
        Names of parts of the model, with commas, at which stages start; by default they start where
        the slowest stage is fastest.
    """

    def __init__(
        self,
        schedule: str | None = None,
        microbatches: int | None = None,
        split: str | None = None,
    ) -> None:
        self._schedule = schedule
        self._microbatches = microbatches
        self._split = split
        self._owners: weakref.WeakKeyDictionary[Any, Owners] = weakref.WeakKeyDictionary()

    def axes(self, n_ranks: int) -> Mapping[str, int]:
        return {"pp": n_ranks}

    def share(self, rank: int, n_ranks: int) -> Share:
        """All of each batch: the first stage takes the samples, and the last one the targets."""
        return Share(0, 1)

    def make_step(self, request: StepRequest) -> TrainingStep:
        self._owners[request.model] = owners = Owners(request.model, self.exchange)
        return PipelineStep(
            request,
            owners,
            schedule=self._schedule,
            microbatches=self._microbatches,
            split=tuple(self._split.split(",")) if self._split else (),
            tell=self.tell,
        )

    def is_collective(self, state: Any) -> bool:
        return any(owners.is_cut for owners in self._owners.values())

    def state(self, stateful: Any) -> Mapping[str, Any]:
        """Collective, unlike that of other strategies, once the model is cut."""
        if isinstance(stateful, torch.optim.Optimizer):
            for owners in self._owners.values():
                if owners.optimizer is stateful:
                    return owners.optimizer_state()
            state: Mapping[str, Any] = stateful.state_dict()
            return state
        if stateful in self._owners:
            self._owners[stateful].collect()
        whole: Mapping[str, Any] = stateful.state_dict()
        return whole

    def unwrap(self, model: Any) -> Any:
        if model in self._owners:
            self._owners[model].release()
        return model


class _Plan(NamedTuple):
    """How rank 0 has cut the model; the same on all ranks."""

    starts: tuple[int, ...]
    metas: tuple[Meta, ...]
    costs: tuple[float, ...]
    """Seconds of each part for one micro-batch, forward."""


class PipelineStep(TrainingStep):
    """One batch through all stages.

    The model is cut at the first batch, whose shape sets that of the micro-batches.  Another shape
    makes torch's buffers anew; the cut stays.
    """

    def __init__(
        self,
        request: StepRequest,
        owners: Owners,
        *,
        schedule: str | None,
        microbatches: int | None,
        split: Sequence[str],
        tell: Callable[[str | PipelineTimes], None],
    ) -> None:
        super().__init__(request)
        self._owners = owners
        self._exchange = owners.exchange
        self._split = split
        self._tell = tell
        self._microbatches = microbatches
        few = microbatches is not None and microbatches < dist.get_world_size()
        self._schedule = schedule or ("gpipe" if few else schedules.DEFAULT_SCHEDULE)
        self._parts = cutting.parts_of(request.model)
        self._n_stages = dist.get_world_size() * schedules.stages_per_rank(
            self._schedule, len(self._parts), dist.get_world_size()
        )
        if microbatches is not None:
            schedules.check_microbatches(microbatches, self._schedule, dist.get_world_size())
        if split:
            cutting.check_cut(self._parts, cutting.starts_named(self._parts, split, self._n_stages))
        self._plan: _Plan | None = None
        self._stages: Stages | None = None
        self._made_for: Any = None
        types = (each.dtype for each in request.model.parameters())
        self._type = next((each for each in types if each.is_floating_point), torch.float32)
        # Sixteen bits without bfloat16's range: gradients that vanish are scaled up.
        self._scale = _FIRST_SCALE if request.settings.amp is torch.float16 else 1.0
        self._n_finite = 0
        self._n_steps, self._measure_at = 0, _FIRST_MEASURED
        self._began_s = 0.0
        """When all ranks had the loss of the step before: where their clocks meet."""

    def scale_state(self) -> dict[str, float] | None:
        if self.settings.amp is not torch.float16:
            return None
        return {"scale": self._scale, "n_finite": self._n_finite}

    def restore_scale(self, state: Mapping[str, float]) -> None:
        if self.settings.amp is torch.float16:
            self._scale, self._n_finite = float(state["scale"]), int(state["n_finite"])

    def __call__(self, *batch: Any) -> Any:
        """See :class:`~jupyter_ddl.ranks.strategies.steps.TrainingStep`."""
        batch = tuple(moved(each, self.device) for each in batch)
        n_samples = n_samples_of(batch)
        if len(batch) != 2 or not isinstance(batch[0], torch.Tensor):
            raise ReportError(
                f"--strategy pipeline takes one tensor and the target, and step(…) got "
                f"{len(batch)} arguments, the first one a {type(batch[0]).__name__}; expected "
                f"step(x, y), or --strategy ddp"
            )
        self._check_target(batch[1], n_samples)
        self.optimizer.zero_grad()
        total = 0.0
        for n_part, (x, y) in parts_of(batch, n_samples, min(n_samples, self.settings.accumulate)):
            stages = self._stages_for(x)
            loss = stages.train(x, y, self._scale * n_part / n_samples)
            total = total + loss * (n_part / n_samples)
            self._exchange.count(stages.bytes_per_batch)
        loss = self._finished(total)
        self._n_steps += 1
        if self._n_steps == self._measure_at:
            self._measure_at *= _MEASURE_FACTOR
            self._measure()
        self._began_s = time.perf_counter()
        return loss

    def _check_target(self, target: Any, n_samples: int) -> None:
        for tensor in tensors_of(target):
            if not tensor.dim() or len(tensor) != n_samples:
                raise ReportError(
                    f"--strategy pipeline cuts input and target into the same micro-batches, and "
                    f"step(x, y) got a target of shape {tuple(tensor.shape)} for {n_samples} "
                    f"samples; expected samples first in both, or --strategy ddp"
                )

    def _stages_for(self, x: Any) -> Stages:
        """The stages for micro-batches of this shape; those of the shape before are dropped."""
        if self._plan is None:
            self._microbatches = schedules.chosen_microbatches(
                self._microbatches, self._schedule, dist.get_world_size(), len(x)
            )
        n_microbatches = self._microbatches or 1
        n_rows = -(-len(x) // n_microbatches)
        kind = (x.shape[1:], x.dtype)
        # Where a batch is short, the last sample is repeated: that is cheaper than new buffers.
        if self._stages is None or kind != self._made_for or n_rows > self._stages.n_rows:
            self._check_batch(x)
            self._plan = plan = self._agreed(x[:n_rows])
            self._owners.assign(self._parts, plan.starts, self.optimizer, self.device)
            self._stages = Stages(
                self._parts,
                plan.starts,
                plan.metas,
                schedule=self._schedule,
                n_microbatches=n_microbatches,
                loss_fn=self.loss_fn,
                device=self.device,
                autocast=lambda: autocast(self.settings, self.device),
            )
            if self._made_for is None and dist.get_rank() == 0:
                self._tell(_cut_text(self._cuts(plan), self._schedule, n_microbatches))
            self._made_for = kind
        return self._stages

    def _check_batch(self, x: Any) -> None:
        """Refuse batches of which each rank has another one: inputs and targets would not match."""
        content = x.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        mine = [list(x.shape), zlib.crc32(content.numpy())]
        if any(each != mine for each in self._exchange.gather_json(mine)):
            raise ReportError(
                "--strategy pipeline needs the same batch on all ranks, and they were given "
                "different ones; write `loader = prepare(loader)`, and do not slice by rank()"
            )

    def _check_norms(self, n_rows: int) -> None:
        kind = torch.nn.modules.batchnorm._BatchNorm
        found = [name for name, module in self.model.named_modules() if isinstance(module, kind)]
        if found and n_rows < _MIN_NORM_ROWS and self._microbatches != 1:
            raise ReportError(
                f"--strategy pipeline gives {found[0]!r} (BatchNorm) micro-batches of {n_rows} "
                f"samples, too few for its statistics; expected at least {_MIN_NORM_ROWS}: a "
                f"larger batch_size, fewer --microbatches, or GroupNorm"
            )

    def _agreed(self, x: Any) -> _Plan:
        """Rank 0 looks, and all do as it says: measured times are equal nowhere."""
        said: Any = None
        if dist.get_rank() == 0:
            try:
                said = self._looked(x)
            except ReportError as error:
                said = {"error": error.message}
        plan = self._exchange.gather_json(said)[0]
        if "error" in plan:
            raise ReportError(plan["error"])
        metas = tuple(
            Meta(tuple(shape), dtype, has_gradient) for shape, dtype, has_gradient in plan["metas"]
        )
        return _Plan(tuple(plan["starts"]), metas, tuple(plan["costs"]))

    def _looked(self, x: Any) -> dict[str, Any]:
        """Run one micro-batch dry: nothing of the model, and no random state, is changed."""
        parts = self._parts
        with (
            torch.no_grad(),
            torch.random.fork_rng(),
            _evaluating(self.model),
            autocast(self.settings, self.device),
        ):
            self.model.to(self.device)
            plan = self._plan
            if plan is None:
                self._check_norms(len(x))
                self._check_chain(x)
                costs = cutting.measured(parts, x)
                starts = (
                    cutting.starts_named(parts, self._split, self._n_stages)
                    if self._split
                    else cutting.balanced(costs, self._n_stages)
                )
                cutting.check_cut(parts, starts)
            else:
                costs, starts = plan.costs, plan.starts
            values = list(cutting.chained(parts, x))
        self.model.cpu()  # each rank has only its own stages on its device
        return {
            "starts": starts,
            "costs": costs,
            "metas": list(self._metas(x, values, starts)),
        }

    def _metas(self, x: Any, values: Sequence[Any], starts: Sequence[int]) -> Iterator[Any]:
        yield [list(x.shape), _name_of(x.dtype), False]
        for end in (*starts[1:], len(values)):
            value = values[end - 1]
            if not value.dim() or len(value) != len(x):
                raise ReportError(
                    f"--strategy pipeline sends micro-batches from stage to stage, and "
                    f"{self._parts[end - 1].name!r} made a tensor of shape {tuple(value.shape)} of "
                    f"{len(x)} samples; expected samples first, or --split elsewhere"
                )
            if value.is_complex() and end < len(values):
                raise ReportError(
                    f"--strategy pipeline sends real numbers from stage to stage, and "
                    f"{self._parts[end - 1].name!r} returned {_name_of(value.dtype)}; expected "
                    f"torch.view_as_real(…) between stages, --split elsewhere, or --strategy ddp"
                )
            trained = any(
                each.requires_grad
                for part in self._parts[:end]
                for each in part.module.parameters()
            )
            has_gradient = trained and value.dtype.is_floating_point
            yield [list(value.shape), _name_of(value.dtype), has_gradient]

    def _check_chain(self, x: Any) -> None:
        if not cutting.is_chain(self.model, self._parts, x):
            names = ", ".join(part.name for part in self._parts[:8])
            raise ReportError(
                f"--strategy pipeline runs the children of {type(self.model).__name__} one after "
                f"another ({names} …), and its forward() gives something else; write it as "
                f"torch.nn.Sequential(…) of modules that take and return one tensor, or train with "
                f"--strategy fsdp"
            )

    def _measure(self) -> None:
        """Tell when each rank computed what in this batch.  Collective."""
        stages, plan = self._stages, self._plan
        if stages is None or plan is None:
            return
        gathered = self._exchange.gather_json(
            [
                [*each.action, each.start - self._began_s, each.end - self._began_s]
                for each in stages.spans
            ]
        )
        if dist.get_rank() == 0:
            spans = [
                schedules.Span(rank, schedules.Action(stage, kind, microbatch), start, end)
                for rank, told in enumerate(gathered)
                for stage, kind, microbatch, start, end in told
            ]
            ideal = schedules.ideal_spans(stages.order, self._n_stages)
            self._tell(
                schedules.times(
                    spans,
                    ideal,
                    step=self._n_steps,
                    n_ranks=dist.get_world_size(),
                    schedule=self._schedule,
                    n_microbatches=self._microbatches or 1,
                    stages=self._cuts(plan),
                )
            )

    def _cuts(self, plan: _Plan) -> tuple[PipelineStageCut, ...]:
        """What each stage consists of."""
        ends = (*plan.starts[1:], len(self._parts))
        return tuple(
            PipelineStageCut(
                rank=number % dist.get_world_size(),
                first=self._parts[start].name,
                last=self._parts[end - 1].name,
                n_parts=end - start,
                forward_s=sum(plan.costs[start:end]),
                n_bytes=sum(part.n_bytes for part in self._parts[start:end]),
            )
            for number, (start, end) in enumerate(zip(plan.starts, ends, strict=True))
        )

    def _finished(self, total: Any) -> Any:
        """Clip over all stages, update, and tell all ranks the loss."""
        own = [each for each in self._owners.parameters if each.grad is not None]
        squares = sum(
            (torch.linalg.vector_norm(each.grad).double() ** 2 for each in own), torch.zeros(())
        )
        loss, square = self._exchange.begin_sum([total, squares]).wait()
        norm = math.sqrt(square) / self._scale if square == square else math.nan
        if self._scale != 1.0:
            for each in own:
                each.grad.div_(self._scale)
        limit = self.settings.clip_norm
        if limit is not None and own:
            torch.nn.utils.clip_grads_with_norm_(
                own, limit, torch.tensor(norm, dtype=torch.float64)
            )
        if self._accepts(norm):
            self.optimizer.step()
        self._owners.changed()
        return loss.to(self.device, self._type)

    def _accepts(self, norm: float) -> bool:
        """Whether gradients may be used; adapts their factor to those that were too large."""
        if self.settings.amp is not torch.float16:
            return True
        if not math.isfinite(norm):
            self._scale, self._n_finite = max(1.0, self._scale / 2), 0
            return False
        self._n_finite += 1
        if self._n_finite % _GROW_AFTER == 0:
            self._scale *= 2
        return True


@contextlib.contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode; each part gets back the mode that it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _cut_text(cuts: Sequence[PipelineStageCut], schedule: str, n_microbatches: int) -> str:
    """The cut in a sentence."""
    stages = "; ".join(
        f"stage {number} on rank {cut.rank}: "
        f"{cut.first if cut.n_parts == 1 else f'{cut.first} to {cut.last}'}, "
        f"{format_duration(cut.forward_s)}, {format_bytes(cut.n_bytes)}"
        for number, cut in enumerate(cuts[:_N_STAGES_TOLD])
    )
    more = f"; … {len(cuts)} in all" if len(cuts) > _N_STAGES_TOLD else ""
    cut = format_counted(n_microbatches, "micro-batch", "micro-batches")
    return f"pipeline: {schedule} with {cut}; {stages}{more}"


def _name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
