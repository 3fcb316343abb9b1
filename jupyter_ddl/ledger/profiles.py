"""What the traces of ``--profile`` come to, all ranks together.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_ddl.formats import shortened
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.events import Operation, ProfileTaken
from jupyter_ddl.protocol.snapshot import OperationRow, TraceRow

__all__ = ["operation_rows", "trace_rows"]

_N_OPERATIONS = 10
_N_TRACES = 64
_N_TEXT = 80


def operation_rows(state: RunState) -> tuple[OperationRow, ...]:
    """The costliest operations of a step, on the average of all recorded steps of all ranks.

    By time on GPUs where there are any, else on CPUs.  A rank tells its twenty costliest only.
    """
    taken = state.profiles.values()
    n_steps = sum(each.n_steps for each in taken)
    whole_s = sum(each.device_s for each in taken)
    on_gpu = whole_s > 0
    whole_s = whole_s or sum(each.cpu_s for each in taken)
    if not n_steps or not whole_s > 0:
        return ()

    def own_s(each: Operation) -> float:
        return each.device_s if on_gpu else each.cpu_s

    order = sorted(_merged(taken), key=own_s, reverse=True)
    return tuple(
        OperationRow(
            name=shortened(each.name, _N_TEXT),
            share=own_s(each) / whole_s,
            cpu_s=each.cpu_s / n_steps,
            device_s=each.device_s / n_steps,
            n_calls=each.n_calls / n_steps,
        )
        for each in order[:_N_OPERATIONS]
    )


def _merged(taken: Iterable[ProfileTaken]) -> list[Operation]:
    found: dict[str, Operation] = {}
    for each in (operation for one in taken for operation in one.operations):
        known = found.get(each.name, Operation(each.name, 0, 0.0, 0.0))
        found[each.name] = Operation(
            each.name,
            known.n_calls + each.n_calls,
            known.cpu_s + each.cpu_s,
            known.device_s + each.device_s,
        )
    return list(found.values())


def trace_rows(state: RunState) -> tuple[TraceRow, ...]:
    """By trial and rank."""
    order = sorted(state.profiles.items())[:_N_TRACES]
    return tuple(
        TraceRow(trial, rank, taken.file, taken.size_bytes) for (trial, rank), taken in order
    )
