"""Metrics reduced over the ranks of a group, by one all-reduce."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping
from typing import Any

from jupyter_ddl.worker.metrics import ReportError, shown

__all__ = ["REDUCTIONS", "check_reduction", "reduced"]

REDUCTIONS = ("mean", "sum", "max", "min")


def check_reduction(how: Any) -> None:
    """Refuse what is none of :data:`REDUCTIONS`."""
    if how is not None and how not in REDUCTIONS:
        raise ReportError(
            f"report(reduce={shown(how)}): expected one of {', '.join(REDUCTIONS)}; "
            f"a metric of your own can't have the name 'reduce'"
        )


def reduced(values: Mapping[str, float], how: str) -> dict[str, float]:
    """Reduce each metric over all ranks, in 64 bits.  Collective.

    Raises
    ------
    ReportError
        There is no process group, or ranks gave other names.
    """
    torch: Any = sys.modules.get("torch")
    distributed: Any = sys.modules.get("torch.distributed")
    if torch is None or distributed is None or not distributed.is_initialized():
        raise ReportError(
            f"report(reduce={how!r}) needs torch's process group, which is not initialised; "
            f"import torch in the cell, and call init_process_group() with --no-init"
        )
    names = sorted(values)
    # Ranks that give other names would reduce loss with accuracy: an unequal sum tells.
    mark = float(zlib.crc32("\0".join(names).encode()))
    device = torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")
    numbers = torch.tensor(
        [mark, *(values[name] for name in names)], dtype=torch.float64, device=device
    )
    operation = (
        distributed.ReduceOp.SUM if how == "mean" else getattr(distributed.ReduceOp, how.upper())
    )
    distributed.all_reduce(numbers, op=operation)
    n_ranks = distributed.get_world_size()
    seen, *results = numbers.tolist()
    if seen != (mark * n_ranks if how in ("mean", "sum") else mark):
        raise ReportError(
            f"report(reduce={how!r}) got the metrics {', '.join(names)} on this rank and others on "
            f"another one; every rank must report the same names"
        )
    if how == "mean":
        results = [value / n_ranks for value in results]
    return dict(zip(names, results, strict=True))
