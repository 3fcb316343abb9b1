"""``--strategy pipeline``: each rank computes some of the layers, for one micro-batch at a time.

Every rank keeps the whole model where the cell has made it, and trains the stages that are its own;
the others' parameters are brought up to date when somebody reads them.  Gradients, the optimizer's
state and activations are only of its own stages.
"""

from __future__ import annotations

import math
import time
import weakref
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from jupyter_ddl.formats import format_bytes, format_counted, format_duration
from jupyter_ddl.protocol.pipeline import PipelineStageCut, PipelineTimes
from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.base import Share, StepStrategy
from jupyter_ddl.ranks.strategies.mesh import PIPELINE_AXES, check_mesh, parse_mesh
from jupyter_ddl.ranks.strategies.pipeline import cutting, schedules
from jupyter_ddl.ranks.strategies.pipeline.copies import Copies
from jupyter_ddl.ranks.strategies.pipeline.dry_pass import DryPass, Plan, Wish
from jupyter_ddl.ranks.strategies.pipeline.owners import Owners
from jupyter_ddl.ranks.strategies.pipeline.stages import Stages
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
        One of :data:`~jupyter_ddl.ranks.strategies.pipeline.schedules.SCHEDULES`; by default
        ``1f1b``, or ``gpipe`` where there are fewer micro-batches than ranks.
    microbatches : int, optional
        Into how many parts a batch is cut; by default one to eight for each rank, by
        what a look at the first batch says.
    split : str, optional
        Names of parts of the model, with commas, at which stages start; by default they start where
        the slowest stage is fastest.
    mesh : str, optional
        ``dp=2,pp=2``: so many pipelines side by side, of so many ranks; by default one of all.
    """

    def __init__(
        self,
        schedule: str | None = None,
        microbatches: int | None = None,
        split: str | None = None,
        mesh: str | None = None,
    ) -> None:
        self._schedule = schedule
        self._microbatches = microbatches
        self._split = split
        self._sizes = parse_mesh(mesh, PIPELINE_AXES) if mesh else {}
        self._copies: Copies | None = None
        self._owners: weakref.WeakKeyDictionary[Any, Owners] = weakref.WeakKeyDictionary()

    def axes(self, n_ranks: int) -> Mapping[str, int]:
        """See the base class.

        Raises
        ------
        OptionError
            A later round has another number of ranks than the grid.
        """
        if not self._sizes:
            return {"pp": n_ranks}
        check_mesh(self._sizes, n_ranks)
        return self._sizes

    def share(self, rank: int, n_ranks: int) -> Share:
        """All of its copy's: the first stage takes the samples, and the last one the targets."""
        n_copies = self._sizes.get("dp", 1)
        return Share(rank % n_copies, n_copies)

    @property
    def bytes_sent(self) -> int | None:
        return self.exchange.bytes_sent + (self._copies.bytes_sent if self._copies else 0)

    def make_step(self, request: StepRequest) -> TrainingStep:
        if self._copies is None:
            has_copies = self._sizes.get("dp", 1) > 1
            mesh = self.device_mesh(request.device) if has_copies else None
            self._copies = Copies(self.exchange, mesh)
        owners = Owners(request.model, self.exchange, self._copies.n_copies)
        self._owners[request.model] = owners
        return PipelineStep(
            request,
            owners,
            self._copies,
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


class PipelineStep(TrainingStep):
    """One batch through all stages.

    The model is cut at the first batch, whose shape sets that of the micro-batches.  Another shape
    makes torch's buffers anew; the cut stays.
    """

    def __init__(
        self,
        request: StepRequest,
        owners: Owners,
        copies: Copies,
        *,
        schedule: str | None,
        microbatches: int | None,
        split: Sequence[str],
        tell: Callable[[str | PipelineTimes], None],
    ) -> None:
        super().__init__(request)
        self._owners = owners
        self._copies = copies
        self._exchange = owners.exchange
        self._tell = tell
        n_ranks = copies.n_ranks
        few = microbatches is not None and microbatches < n_ranks
        self._schedule = schedule or ("gpipe" if few else schedules.DEFAULT_SCHEDULE)
        self._parts = cutting.parts_of(request.model)
        self._n_stages = n_ranks * schedules.stages_per_rank(
            self._schedule, len(self._parts), n_ranks
        )
        if microbatches is not None:
            schedules.check_microbatches(microbatches, self._schedule, n_ranks)
        if split:
            cutting.check_cut(self._parts, cutting.starts_named(self._parts, split, self._n_stages))
        wish = Wish(self._schedule, n_ranks, self._n_stages, microbatches, split)
        self._dry_pass = DryPass(request.model, self._parts, wish, request.settings, request.device)
        self._plan: Plan | None = None
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
        self.share = share = self.batch_share(batch)
        batch = tuple(moved(each, self.device) for each in batch)
        n_samples = n_samples_of(batch)
        if len(batch) != 2 or not isinstance(batch[0], torch.Tensor):
            raise ReportError(
                f"--strategy pipeline takes one tensor and the target, and step(…) got "
                f"{len(batch)} arguments, the first one a {type(batch[0]).__name__}; expected "
                f"step(x, y), or --strategy ddp"
            )
        self._check_target(batch[1], n_samples)
        weight = self._copies.share_of(0 if share is not None and share[0] == 0 else n_samples)
        self.optimizer.zero_grad()
        total = 0.0
        for n_part, (x, y) in parts_of(batch, n_samples, min(n_samples, self.settings.accumulate)):
            stages = self._stages_for(x)
            total = total + stages.train(x, y, self._scale * weight * n_part / n_samples)
            self._exchange.count(stages.bytes_per_batch)
        self._copies.add_up(self._owners.parameters, self._owners.buffers)
        loss = self._finished(total / self._scale)
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
            self._plan = self._dry_pass.plan(x, self._exchange)
        plan = self._plan
        n_rows = -(-len(x) // plan.n_microbatches)
        kind = (x.shape[1:], x.dtype)
        # Where a batch is short, the last sample is repeated: that is cheaper than new buffers.
        if self._stages is None or kind != self._made_for or n_rows > self._stages.n_rows:
            self._check_batch(x)
            metas = self._dry_pass.metas(x[:n_rows], plan.starts, self._copies.within)
            self._owners.assign(self._parts, plan.starts, self.optimizer, self.device)
            self._stages = Stages(
                self._parts,
                plan.starts,
                metas,
                schedule=self._schedule,
                n_microbatches=plan.n_microbatches,
                loss_fn=self.loss_fn,
                device=self.device,
                autocast=lambda: autocast(self.settings, self.device),
                group=self._copies.group,
            )
            if self._made_for is None and dist.get_rank() == 0:
                self._tell(_cut_text(self._cuts(plan), self._schedule, plan.n_microbatches))
                for text in plan.choices:
                    self._tell(text)
            self._made_for = kind
        return self._stages

    def _check_batch(self, x: Any) -> None:
        """Refuse batches of which each rank has another one: inputs and targets would not match."""
        content = x.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        mine = [list(x.shape), zlib.crc32(content.numpy())]
        if any(each != mine for each in self._copies.within.gather_json(mine)):
            raise ReportError(
                "--strategy pipeline needs the same batch on all ranks of a pipeline, and they "
                "were given different ones; write `loader = prepare(loader)`, and do not slice by "
                "rank()"
            )

    def _measure(self) -> None:
        """Tell when each rank computed what in this batch.  Collective."""
        stages, plan = self._stages, self._plan
        if stages is None or plan is None:
            return
        gathered = self._copies.within.gather_json(
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
                    n_ranks=self._copies.n_ranks,
                    n_copies=self._copies.n_copies,
                    schedule=self._schedule,
                    n_microbatches=plan.n_microbatches,
                    stages=self._cuts(plan),
                )
            )

    def _cuts(self, plan: Plan) -> tuple[PipelineStageCut, ...]:
        """What each stage consists of."""
        ends = (*plan.starts[1:], len(self._parts))
        return tuple(
            PipelineStageCut(
                rank=number % self._copies.n_ranks * self._copies.n_copies,
                first=self._parts[start].name,
                last=self._parts[end - 1].name,
                n_parts=end - start,
                forward_s=sum(plan.costs[start:end]),
                n_bytes=sum(part.n_bytes for part in self._parts[start:end]),
                kept_bytes=sum(plan.kept_bytes[start:end]),
            )
            for number, (start, end) in enumerate(zip(plan.starts, ends, strict=True))
        )

    def _finished(self, total: Any) -> Any:
        """Clip over all stages, update, and tell all ranks the loss, a sum over the ranks."""
        own = [each for each in self._owners.parameters if each.grad is not None]
        # Copies have the same gradients by now, and one of them is counted.
        counted = own if self._copies.number == 0 else []
        squares = sum(
            (torch.linalg.vector_norm(each.grad).double() ** 2 for each in counted), torch.zeros(())
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


def _cut_text(cuts: Sequence[PipelineStageCut], schedule: str, n_microbatches: int) -> str:
    """The cut in a sentence."""
    stages = "; ".join(
        f"stage {number} on rank {cut.rank}: "
        f"{cut.first if cut.n_parts == 1 else f'{cut.first} to {cut.last}'}, "
        f"{format_duration(cut.forward_s)}, {format_bytes(cut.n_bytes)}, keeps "
        f"{format_bytes(cut.kept_bytes)} of a micro-batch"
        for number, cut in enumerate(cuts[:_N_STAGES_TOLD])
    )
    more = f"; … {len(cuts)} in all" if len(cuts) > _N_STAGES_TOLD else ""
    cut = format_counted(n_microbatches, "micro-batch", "micro-batches")
    return f"pipeline: {schedule} with {cut}; {stages}{more}"
