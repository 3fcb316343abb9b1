"""A look at a model before its first step in a pipeline: where it is cut, and what goes between.

Runs forward passes only.  Nothing of the model, and no random state, is changed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import psutil
import torch

from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.exchange import Exchange
from jupyter_ddl.ranks.strategies.pipeline import cutting, microbatches
from jupyter_ddl.ranks.strategies.pipeline.stages import Meta
from jupyter_ddl.ranks.strategies.steps import StepSettings, autocast
from jupyter_ddl.store.host_limits import host_limits

__all__ = ["DryPass", "Plan", "Wish", "metas_of"]

_MIN_NORM_ROWS = 8
"""Fewer samples than this have no statistics that a BatchNorm could use."""


class Plan(NamedTuple):
    """How a model is cut; the same on all ranks."""

    n_microbatches: int
    starts: tuple[int, ...]
    costs: tuple[float, ...]
    """Seconds of each part for one micro-batch, forward."""
    kept_bytes: tuple[int, ...]
    """What each part keeps of one micro-batch for its backward pass."""
    choices: tuple[str, ...]
    """Why there are so many micro-batches, where the line does not say it, and why the model is
    not cut where stages are fastest, if so: a sentence each."""


class Wish(NamedTuple):
    """What the line says of a plan."""

    schedule: str
    n_ranks: int
    """Of one pipeline."""
    n_stages: int
    microbatches: int | None = None
    split: Sequence[str] = ()


class DryPass:
    """Of one model.  Methods are collective: one rank looks, and all do as it says.

    Measured times are equal nowhere, and ranks that cut differently would wait for one another.
    """

    def __init__(
        self,
        model: Any,
        parts: Sequence[cutting.Part],
        wish: Wish,
        settings: StepSettings,
        device: Any,
    ) -> None:
        self._model = model
        self._parts = parts
        self._wish = wish
        self._settings = settings
        self._device = device

    def plan(self, x: Any, everyone: Exchange) -> Plan:
        """Where to cut the model, by the first batch of the first of all ranks.

        Raises
        ------
        ReportError
            The model, or the batch, is not one that can be cut so.
        """
        n_microbatches, *rows = _said_by_first(everyone, lambda: self._planned(x))
        return Plan(n_microbatches, *map(tuple, rows))

    def metas(self, x: Any, starts: Sequence[int], pipeline: Exchange) -> tuple[Meta, ...]:
        """What goes between stages for a micro-batch, as the first rank of a pipeline sees it.

        Raises
        ------
        ReportError
            It can't be sent.
        """

        def look() -> list[Any]:
            with self._running():
                values = list(cutting.chained(self._parts, x))
            self._model.cpu()  # each rank has only its own stages on its device
            return list(metas_of(self._parts, x, values, starts))

        found = _said_by_first(pipeline, look)
        return tuple(Meta(tuple(shape), dtype, has) for shape, dtype, has in found)

    def _planned(self, x: Any) -> Plan:
        schedule, n_ranks, _, n_asked, _ = self._wish
        least = _MIN_NORM_ROWS if self._norms else 1
        numbers = microbatches.possible(n_asked, schedule, n_ranks, len(x), least)
        with self._running():
            first = x[: -(-len(x) // numbers[-1])]
            self._check_norms(len(first))
            self._check_chain(first)
            free_bytes = _free_bytes(self._device)
            looks = [
                self._looked_at(x[: -(-len(x) // number)], number, free_bytes) for number in numbers
            ]
        look = microbatches.chosen(looks, schedule, n_ranks, free_bytes)
        cutting.check_cut(self._parts, look.starts)
        choices = []
        if n_asked is None:
            choices.append(microbatches.choice_text(looks, look, schedule, n_ranks, free_bytes))
        if not self._wish.split:
            fastest = look._replace(starts=cutting.balanced(look.costs, self._wish.n_stages))
            text = microbatches.cut_text(look, fastest, schedule, n_ranks, free_bytes)
            choices += [text] if text else []
        return Plan(look.n_microbatches, look.starts, look.costs, look.kept_bytes, tuple(choices))

    def _looked_at(self, x: Any, n_microbatches: int, free_bytes: float) -> microbatches.Look:
        """Measure one micro-batch, and cut by it."""
        wish, parts = self._wish, self._parts
        costs, kept = cutting.measured(parts, x), cutting.kept(parts, x)
        if wish.split:
            starts = cutting.starts_named(parts, wish.split, wish.n_stages)
        else:
            limits = microbatches.stage_limits(
                wish.schedule, wish.n_ranks, wish.n_stages, n_microbatches, free_bytes
            )
            starts = cutting.fitting(costs, kept, limits)
        return microbatches.Look(n_microbatches, starts, costs, kept)

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        with (
            torch.no_grad(),
            torch.random.fork_rng(),
            _evaluating(self._model),
            autocast(self._settings, self._device),
        ):
            self._model.to(self._device)
            yield

    @property
    def _norms(self) -> list[str]:
        kind = torch.nn.modules.batchnorm._BatchNorm
        return [name for name, module in self._model.named_modules() if isinstance(module, kind)]

    def _check_norms(self, n_rows: int) -> None:
        found = self._norms
        if found and n_rows < _MIN_NORM_ROWS and self._wish.microbatches != 1:
            raise ReportError(
                f"--strategy pipeline gives {found[0]!r} (BatchNorm) micro-batches of {n_rows} "
                f"samples, too few for its statistics; expected at least {_MIN_NORM_ROWS}: a "
                f"larger batch_size, fewer --microbatches, or GroupNorm"
            )

    def _check_chain(self, x: Any) -> None:
        if not cutting.is_chain(self._model, self._parts, x):
            names = ", ".join(part.name for part in self._parts[:8])
            raise ReportError(
                f"--strategy pipeline runs the children of {type(self._model).__name__} one after "
                f"another ({names} …), and its forward() gives something else; write it as "
                f"torch.nn.Sequential(…) of modules that take and return one tensor, or train with "
                f"--strategy fsdp"
            )


def metas_of(
    parts: Sequence[cutting.Part], x: Any, values: Sequence[Any], starts: Sequence[int]
) -> Iterator[Any]:
    """Shape, type, and whether a gradient comes back, of what goes between stages.

    Parameters
    ----------
    values : sequence of Tensor
        What each part has made of ``x``.

    Raises
    ------
    ReportError
        It can't be sent.
    """
    yield [list(x.shape), _name_of(x.dtype), False]
    for end in (*starts[1:], len(values)):
        value = values[end - 1]
        if not value.dim() or len(value) != len(x):
            raise ReportError(
                f"--strategy pipeline sends micro-batches from stage to stage, and "
                f"{parts[end - 1].name!r} made a tensor of shape {tuple(value.shape)} of "
                f"{len(x)} samples; expected samples first, or --split elsewhere"
            )
        if value.is_complex() and end < len(values):
            raise ReportError(
                f"--strategy pipeline sends real numbers from stage to stage, and "
                f"{parts[end - 1].name!r} returned {_name_of(value.dtype)}; expected "
                f"torch.view_as_real(…) between stages, --split elsewhere, or --strategy ddp"
            )
        trained = any(
            each.requires_grad for part in parts[:end] for each in part.module.parameters()
        )
        has_gradient = trained and value.dtype.is_floating_point
        yield [list(value.shape), _name_of(value.dtype), has_gradient]


def _said_by_first(exchange: Exchange, look: Callable[[], Any]) -> Any:
    """What the first of some ranks finds, as plain data, or the refusal that all repeat."""
    said: Any = None
    if exchange.is_first:
        try:
            said = {"found": look()}
        except ReportError as error:
            said = {"error": error.message}
    said = exchange.gather_json(said)[0]
    if "error" in said:
        raise ReportError(said["error"])
    return said["found"]


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


def _free_bytes(device: Any) -> int:
    """Memory that a rank may still take, where others of this host take as much."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = min(psutil.virtual_memory().available, host_limits().memory_bytes)
    return free // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def _name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
