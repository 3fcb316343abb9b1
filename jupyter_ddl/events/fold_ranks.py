"""From the folded state of a ddp run to what its snapshot shows of ranks, rounds and series."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_ddl.events.messages import HangVerdict
from jupyter_ddl.events.snapshot import RankRow
from jupyter_ddl.spec.run import DdpSpec, RunSpec

if TYPE_CHECKING:
    from jupyter_ddl.events.group_state import RankGroupState
    from jupyter_ddl.events.run_state import RunState

__all__ = ["group_fields", "latest_round", "latest_step"]

_N_ROWS = 64
_N_METRICS = 4


def group_fields(
    state: RunState, spec: RunSpec, *, n_rows: int, n_points: int, n_text: int
) -> dict[str, Any]:
    """Fields of a snapshot by name; none for runs that are no single group.

    Parameters
    ----------
    n_rows, n_points, n_text
        Most ranks, most points of a series, longest text in characters.
    """
    if not isinstance(spec.verb, DdpSpec):
        return {}
    group = state.group
    ranks = state.ranks.get(0)
    hang = group.hang
    return {
        "ranks": () if ranks is None else _rows(ranks, min(n_rows, _N_ROWS), n_text),
        "world_size": 0 if ranks is None else _world_size(ranks),
        "round": latest_round(state),
        "max_rounds": spec.limits.max_own_failures,
        "restarts": tuple(group.restarts),
        "checkpoint_step": group.checkpoint_step,
        "series": {
            _short(name, n_text): _thinned(points, n_points)
            for name, points in list(group.series.items())[:_N_METRICS]
        },
        "hang": None if hang is None else _hang(hang),
    }


def latest_round(state: RunState) -> int:
    """The number of a ddp run's latest round, from 1; 0 before the first, and of other runs."""
    ranks = _ranks(state)
    return 0 if ranks is None else ranks.attempt


def latest_step(state: RunState) -> int | None:
    """The last step of a ddp run's latest round: rank 0's, else the furthest of any rank."""
    ranks = _ranks(state)
    if ranks is None or not ranks.reports:
        return None
    first = ranks.reports.get(0)
    return max(each.step for each in ranks.reports.values()) if first is None else first.step


def _ranks(state: RunState) -> RankGroupState | None:
    is_group = state.spec is not None and isinstance(state.spec.verb, DdpSpec)
    return state.ranks.get(0) if is_group else None


def _world_size(ranks: RankGroupState) -> int:
    told = max((event.world_size for event in ranks.started.values()), default=0)
    return told or len(ranks.started)


def _rows(ranks: RankGroupState, n_rows: int, n_text: int) -> tuple[RankRow, ...]:
    rows = []
    for rank in sorted(ranks.started)[:n_rows]:
        started = ranks.started[rank]
        ended = ranks.ended.get(rank)
        report = ranks.reports.get(rank)
        pairs = () if report is None else zip(report.names, report.values, strict=True)
        rows.append(
            RankRow(
                rank=rank,
                host=_short(started.host, n_text),
                worker=_short(started.worker, n_text),
                device=_short(started.device, n_text),
                pid=started.pid,
                state="running" if ended is None else ended.outcome,
                step=None if report is None else report.step,
                metrics={_short(n, n_text): v for n, v in list(pairs)[:_N_METRICS]},
            )
        )
    return tuple(rows)


def _thinned(points: tuple[tuple[int, float], ...], n_points: int) -> tuple[tuple[int, float], ...]:
    """The first and the last point are among what is left."""
    if len(points) <= n_points:
        return points
    stride = math.ceil(len(points) / (n_points - 1))
    return (*points[:-1:stride], points[-1])


def _hang(hang: HangVerdict) -> HangVerdict:
    return msgspec.structs.replace(hang, text=_short(hang.text, 600))


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
