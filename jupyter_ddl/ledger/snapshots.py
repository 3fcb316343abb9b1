"""From the folded state of a run to its snapshot; the totals that its last record keeps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from heapq import nlargest, nsmallest
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from jupyter_ddl.errors import LedgerError
from jupyter_ddl.formats import shortened
from jupyter_ddl.ledger.outputs import output_rows
from jupyter_ddl.ledger.profiles import operation_rows, trace_rows
from jupyter_ddl.ledger.run_state import GroupHistory, RunState, Series, by_importance
from jupyter_ddl.ledger.spending import spending_rows
from jupyter_ddl.ledger.step_parts import (
    bytes_per_step,
    hidden_share,
    pipeline_verdict,
    step_parts,
    step_verdict,
)
from jupyter_ddl.protocol.codec import encodable
from jupyter_ddl.protocol.events import Failure, HangVerdict, Reported, RunFinished
from jupyter_ddl.protocol.group import n_servers
from jupyter_ddl.protocol.prices import Held
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.snapshot import (
    PIPELINE,
    STALENESS,
    BestTrial,
    Driving,
    EncodedSnapshot,
    LearningCurve,
    OutputRow,
    RankRow,
    RunSnapshot,
    SpendingRow,
    StepParts,
    TrialRow,
)

if TYPE_CHECKING:
    from jupyter_ddl.ledger.run_state import RankGroupState, TrialState

V = TypeVar("V")

__all__ = [
    "MAX_SNAPSHOT_BYTES",
    "Liveness",
    "encoded_snapshot",
    "group_fields",
    "latest_round",
    "latest_step",
    "learning_curves",
    "snapshot_of",
    "trial_reported",
    "trial_rows",
    "with_totals",
]


# Learning curves of a search's trials: of those that run, are among the best or ended last.

_N_POINTS = 40
_N_KEPT = 64
"""Curves in memory: the best and the last ended trials, and the running ones that have room."""
_N_BEST = 4
_N_RUNNING = 6


def trial_reported(state: RunState, event: Reported) -> None:
    """A point for the trial's curve, where there is room for one."""
    study = state.spec.verb.study if state.spec is not None else None
    if study is None:
        return
    value = event.metrics.get(study.metric)
    if value is None or not math.isfinite(value):
        return
    series = state.learning.get(event.trial)
    if series is None:
        if len(state.learning) >= _N_KEPT:
            return
        series = state.learning[event.trial] = Series(_N_POINTS)
    series.add(event.step, value)


def learning_curves(state: RunState, n_curves: int) -> tuple[LearningCurve, ...]:
    """By number: the best trials, the newest that run, then the last ended ones.

    A trial that has reported once has no curve.
    """
    chosen = [number for _, number in state.top[:_N_BEST]]
    chosen += nlargest(_N_RUNNING, state.running & state.learning.keys())
    chosen += reversed(state.recent)
    curves: list[LearningCurve] = []
    for number in dict.fromkeys(chosen):
        series = state.learning.get(number)
        points = () if series is None else series.drawn()
        if len(points) > 1 and len(curves) < n_curves:
            curves.append(LearningCurve(number, state.trials[number].state, points))
    return tuple(sorted(curves, key=lambda curve: curve.trial))


# From the folded state of a ddp run to what its snapshot shows of ranks, rounds and series.

_N_ROWS = 64
_N_METRICS = 4
"""Of a rank, in its row."""
_N_WHOLE = 4
"""So many series have all their points; more of them share the same room."""
_MIN_POINTS = 20

Liveness: TypeAlias = Mapping[int, tuple[str, float]]
"""Of running ranks: their phase, and the Unix seconds at which they last moved.  No event tells it,
so the folded state does not have it."""


def group_fields(
    state: RunState,
    spec: RunSpec,
    *,
    n_rows: int,
    n_points: int,
    n_text: int,
    liveness: Liveness = MappingProxyType({}),
) -> dict[str, Any]:
    """Fields of a snapshot by name; none for runs that are not a single group.

    Parameters
    ----------
    n_rows, n_points, n_text
        Most ranks, most points of a series, longest text in characters.
    """
    if not spec.verb.can.has_ranks:
        return {"world_size": spec.verb.ranks.n_ranks} if spec.verb.can.has_cells else {}
    group = state.group
    ranks = state.ranks.get(0)
    hang = group.hang
    steps = {} if ranks is None else _of_training(spec, ranks, ranks.steps)
    started = {} if ranks is None else _of_training(spec, ranks, ranks.started)
    parts = step_parts(steps)
    hosts = {rank: one.host for rank, one in started.items()}
    hidden = None if ranks is None else hidden_share(ranks.steps)
    pipeline = None if ranks is None else ranks.pipeline
    if pipeline is None:
        makes_steps = "prepare_step" in spec.program.own_calls
        strategy = spec.verb.ranks.strategy
        verdict = step_verdict(parts, hosts, strategy, makes_steps=makes_steps, hidden=hidden)
    else:
        verdict = pipeline_verdict(pipeline)
    return {
        "ranks": ()
        if ranks is None
        else _rows(ranks, min(n_rows, _N_ROWS), n_text, liveness, parts),
        "world_size": 0 if ranks is None else _world_size(ranks),
        "n_to_come": 0 if ranks is None else _world_size(ranks) - len(ranks.started),
        "round": latest_round(state),
        "max_rounds": spec.limits.max_own_failures,
        "restarts": tuple(group.restarts),
        "checkpoint_step": group.checkpoint_step,
        **_series_fields(group, n_points, n_text),
        "hang": None if hang is None else _hang(hang),
        "step_verdict": shortened(verdict, 300),
        "bytes_sent": group.bytes_sent,
        "charts": () if ranks is None else _charts(ranks),
    }


def _charts(ranks: RankGroupState) -> tuple[OutputRow, ...]:
    """What there is to draw of a round beside its ranks."""
    found = []
    if ranks.pipeline is not None:
        found.append(OutputRow(0, PIPELINE, float(ranks.pipeline.step)))
    if ranks.staleness:
        n_told = sum(sum(each.counts) + each.n_dropped for each in ranks.staleness.values())
        found.append(OutputRow(0, STALENESS, float(n_told)))
    return tuple(found)


def _series_fields(group: GroupHistory, n_points: int, n_text: int) -> dict[str, Any]:
    series = group.series
    n_each = max(_MIN_POINTS, n_points * _N_WHOLE // max(_N_WHOLE, len(series)))
    cut = _cut(series, len(series), n_text)
    drawn = {name: _thinned(points, n_each) for name, points in cut.items()}
    return {"series": drawn, "metrics": tuple(drawn), "n_metrics": group.n_metrics}


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
    is_group = state.spec is not None and state.spec.verb.can.has_ranks
    return state.ranks.get(0) if is_group else None


def _world_size(ranks: RankGroupState) -> int:
    told = max((event.world_size for event in ranks.started.values()), default=0)
    return told or len(ranks.started)


def _of_training(spec: RunSpec, ranks: RankGroupState, by_rank: Mapping[int, V]) -> dict[int, V]:
    """Without those that keep parameters: what these wait for is no part of a step."""
    needs = spec.verb.ranks
    n_workers = _world_size(ranks) - n_servers(needs.strategy, needs.strategy_options)
    return {rank: told for rank, told in by_rank.items() if rank < n_workers}


def _rows(
    ranks: RankGroupState,
    n_rows: int,
    n_text: int,
    liveness: Liveness,
    parts: Mapping[int, StepParts],
) -> tuple[RankRow, ...]:
    rows = []
    for rank in sorted(ranks.started)[:n_rows]:
        started = ranks.started[rank]
        ended = ranks.ended.get(rank)
        report = ranks.reports.get(rank)
        timed = ranks.steps.get(rank)
        pairs = () if report is None else zip(report.names, report.values, strict=True)
        phase, heard_at_s = liveness.get(rank, ("", None)) if ended is None else ("", None)
        rows.append(
            RankRow(
                rank=rank,
                host=shortened(started.host, n_text),
                worker=shortened(started.worker, n_text),
                device=shortened(started.device, n_text),
                pid=started.pid,
                state="running" if ended is None else ended.outcome,
                step=None if report is None else report.step,
                metrics=_cut(_important(dict(pairs)), _N_METRICS, n_text),
                phase=phase,
                heard_at_s=heard_at_s,
                parts=parts.get(rank),
                bytes_per_step=bytes_per_step(timed),
                peak_memory_bytes=None if timed is None else timed.peak_memory_bytes,
            )
        )
    return tuple(rows)


def _important(metrics: dict[str, float]) -> dict[str, float | None]:
    return {name: metrics[name] for name in by_importance(metrics)}


def _thinned(points: tuple[tuple[int, float], ...], n_points: int) -> tuple[tuple[int, float], ...]:
    """The first and the last point are among what is left."""
    if len(points) <= n_points:
        return points
    stride = math.ceil(len(points) / (n_points - 1))
    return (*points[:-1:stride], points[-1])


def _hang(hang: HangVerdict) -> HangVerdict:
    return msgspec.structs.replace(hang, text=shortened(hang.text, 600))


# From the folded state of a run to the bounded snapshot that every face draws.

MAX_SNAPSHOT_BYTES = 64_000
"""As JSON in UTF-8."""

_ENCODER = msgspec.json.Encoder()

_N_RUNNING_ROWS = 20
_N_FAILED = 5
_WINDOW_S = 60.0
_MIN_WINDOW = 16


class _Detail(NamedTuple):
    """How much of a run is shown."""

    n_rows: int
    n_params: int
    n_metrics: int
    n_text: int
    """Characters of a parameter, a name, a worker."""
    n_traceback: int
    n_message: int
    n_points: int
    n_cause: int
    """Characters of the first cause's traceback."""
    n_curves: int
    """Learning curves."""


# From generous to bare: the first one that fits is taken.
_DETAILS = (
    _Detail(64, 40, 20, 80, 1000, 1000, 300, 4096, 12),
    _Detail(64, 12, 6, 40, 0, 300, 300, 4096, 12),
    _Detail(30, 6, 3, 40, 0, 200, 150, 4096, 8),
    _Detail(15, 4, 2, 30, 0, 100, 100, 1500, 4),
    _Detail(3, 2, 1, 20, 0, 80, 50, 1500, 0),
)
_BY_ITSELF = _Detail(1, 256, 256, 80, 0, 300, 0, 0, 0)
"""Of a trial that was asked for: what its cell may have of parameters, and reports."""


def snapshot_of(state: RunState, now_s: float, paused: str = "", max_rows: int = 64) -> RunSnapshot:
    """Draw up a run at one moment.  See :func:`encoded_snapshot`.

    Parameters
    ----------
    state : RunState
        Not changed.
    now_s : float
        Unix seconds; only the rate and the expected end depend on it.
    paused : str
        Why the run waits, empty when it does not.
    max_rows : int
        Most rows; all trials when there are no more, else the best, the running, the last
        finished and the first failed ones.

    Raises
    ------
    LedgerError
        Nothing has been folded yet.
    """
    return _bounded(state, now_s, paused, max_rows, {})[0]


def encoded_snapshot(
    state: RunState,
    now_s: float,
    paused: str = "",
    liveness: Liveness = MappingProxyType({}),
    driver: Driving = "live",
    spending: tuple[SpendingRow, ...] | None = None,
) -> EncodedSnapshot:
    """The same as it travels, with what is known of a group's ranks and costs beside the record."""
    n_rows = _DETAILS[0].n_rows
    drawn, encoded = _bounded(state, now_s, paused, n_rows, liveness, driver, spending)
    return EncodedSnapshot(drawn.run_id, drawn.seq, drawn.state, encoded)


def _bounded(
    state: RunState,
    now_s: float,
    paused: str,
    max_rows: int,
    liveness: Liveness,
    driver: Driving = "live",
    spending: tuple[SpendingRow, ...] | None = None,
) -> tuple[RunSnapshot, bytes]:
    """As much of a run as fits, and the encoding that has shown that it does."""
    spec = state.spec
    if spec is None:
        raise LedgerError("drawing a run failed: its ledger has no RunSubmitted record yet")
    if spending is None:
        spending = spending_rows(state, state.spent, Held(), state.spent_at_s)
    for level in _DETAILS:
        detail = level._replace(n_rows=min(level.n_rows, max_rows))
        drawn = _draw(state, spec, now_s, paused, detail, liveness, driver, spending)
        try:
            encoded = _ENCODER.encode(drawn)
        except UnicodeEncodeError:
            drawn = encodable(drawn, RunSnapshot)
            encoded = _ENCODER.encode(drawn)
        if len(encoded) <= MAX_SNAPSHOT_BYTES:
            return drawn, encoded
    raise LedgerError(
        f"drawing run {spec.run_id} failed: its snapshot exceeds {MAX_SNAPSHOT_BYTES:,} bytes"
    )


def trial_rows(state: RunState, numbers: Iterable[int]) -> tuple[TrialRow, ...]:
    """Rows of any trials, in the order given and in more detail than a snapshot may hold."""
    rows = (_row(state.trials[number], _BY_ITSELF) for number in numbers)
    return tuple(encodable(row, TrialRow) for row in rows)


def _draw(
    state: RunState,
    spec: RunSpec,
    now_s: float,
    paused: str,
    detail: _Detail,
    liveness: Liveness,
    driver: Driving,
    spending: tuple[SpendingRow, ...],
) -> RunSnapshot:
    verb = spec.verb
    study, objective = verb.study, verb.objective
    end = state.end
    rate = _trials_per_s(state, now_s)
    counts = state.counts
    remaining = max(state.n_trials - counts.finished, 0)
    failure, failed_trial = _first_cause(state)
    curve = () if objective is None else _curve(state, detail.n_points)
    return RunSnapshot(
        seq=state.seq,
        run_id=shortened(spec.run_id, 80),
        name=shortened(spec.name, 200),
        verb=verb.word,
        can=verb.can,
        nouns=verb.nouns,
        state=state.state,
        cluster=shortened(spec.cluster, 80),
        created_at_s=spec.created_at_s,
        n_trials=state.n_trials,
        counts=counts,
        started_at_s=state.started_at_s,
        finished_at_s=state.finished_at_s,
        metric=None if objective is None else shortened(objective.metric, 80),
        mode="max" if objective is None else objective.mode,
        sampler="" if study is None else shortened(study.sampler.name, 80),
        pruner="" if study is None else shortened(study.pruner.name, 80),
        best=None if objective is None else _best(state, detail),
        rows=_shown_rows(state, detail, objective is not None),
        curve=curve,
        pruned=tuple(x for x, _ in curve if state.trials[x].state == "pruned"),
        best_curve=() if objective is None else tuple(state.best_curve),
        learning=learning_curves(state, detail.n_curves),
        trials_per_s=rate,
        ends_at_s=now_s + remaining / rate
        if rate and state.state == "running" and not paused
        else None,
        n_evictions=state.n_evictions,
        notices=tuple(state.notices),
        paused=shortened(paused, 300),
        driver=driver,
        stopping=state.stop is not None and end is None,
        reason="" if end is None else shortened(end.reason, 1000),
        failure=None if failure is None else _failure(failure, detail.n_cause, 1000),
        failed_trial=failed_trial,
        outputs=output_rows(state),
        n_outputs=sum(map(len, state.outputs.values())),
        operations=operation_rows(state),
        traces=trace_rows(state),
        usage=None if end is None else end.usage,
        spending=spending,
        **group_fields(
            state,
            spec,
            n_rows=detail.n_rows,
            n_points=detail.n_points,
            n_text=detail.n_text,
            liveness=liveness,
        ),
        cells=tuple(state.cells)[-5:] if detail.n_traceback == 0 else tuple(state.cells),
    )


def _first_cause(state: RunState) -> tuple[Failure | None, int | None]:
    """The run's own verdict, else the trial that failed for good before all others."""
    if state.end is not None and state.end.failure is not None:
        return state.end.failure, state.end.failed_trial
    first = state.first_failure
    return (None, None) if first is None else (first.failure, first.number)


def _trials_per_s(state: RunState, now_s: float) -> float | None:
    """Trials finished per second: of late while running, of the whole session afterwards."""
    if state.end is not None:
        began = state.session_started_at_s
        span = 0.0 if began is None else state.end.at_s - began
        n_done = state.n_finished - state.n_finished_before - len(state.ended_with_run)
        return n_done / span if span > 0 and n_done > 0 else None
    marks = list(state.marks)
    begin = max(len(marks) - _MIN_WINDOW, 0)
    while begin > 0 and marks[begin - 1] >= state.busy_s(now_s) - _WINDOW_S:
        begin -= 1
    window = marks[begin:]
    # Finish times come from the workers' clocks, which may be ahead of ours.
    span = max(state.busy_s(now_s), window[-1]) - window[0] if len(window) > 1 else 0.0
    return (len(window) - 1) / span if span > 0 else None


def _shown_rows(state: RunState, detail: _Detail, with_values: bool) -> tuple[TrialRow, ...]:
    if len(state.trials) <= detail.n_rows:
        numbers = list(state.trials)
    else:
        chosen = [number for _, number in state.top] if with_values else []
        chosen += nsmallest(_N_RUNNING_ROWS, state.running)
        chosen += reversed(state.recent)
        chosen += state.failed[:_N_FAILED]
        numbers = list(dict.fromkeys(chosen))[: detail.n_rows]
    return tuple(_row(state.trials[number], detail) for number in sorted(numbers))


def _row(trial: TrialState, detail: _Detail) -> TrialRow:
    failure = trial.failure
    return TrialRow(
        number=trial.number,
        state=trial.state,
        params=_cut(trial.params, detail.n_params, detail.n_text),
        value=trial.objective if trial.state == "running" else trial.value,
        step=trial.step,
        metrics=_cut(trial.metrics, detail.n_metrics, detail.n_text),
        attempts=trial.n_attempts,
        own_failures=trial.own_failures,
        evictions=trial.evictions,
        worker=shortened(trial.worker, detail.n_text),
        started_at_s=trial.started_at_s,
        duration_s=trial.duration_s,
        failure=None
        if failure is None
        else _failure(failure, detail.n_traceback, detail.n_message),
    )


def _best(state: RunState, detail: _Detail) -> BestTrial | None:
    best = state.best
    if best is None:
        return None
    return BestTrial(best.number, _cut(best.params, detail.n_params, detail.n_text), best.value)


def _curve(state: RunState, n_points: int) -> tuple[tuple[int, float], ...]:
    """Finished trials by number; the best one is among them however few points there are."""
    points = sorted(state.curve)
    if len(points) >= n_points:
        step = math.ceil(len(points) / (n_points - 1))
        points = points[::step]
    best = state.best
    if best is not None and (best.number, best.value) not in points:
        points = sorted([*points, (best.number, best.value)])
    return tuple(points)


def _cut(named: Mapping[str, V], n_items: int, n_text: int) -> dict[str, V]:
    """The first items, long texts shortened.  Keys that become equal get a number."""
    shown: dict[str, V] = {}
    for name, value in named.items():
        if len(shown) == n_items:
            break
        key = shortened(name, n_text)
        if key in shown:
            key = f"{key}{len(shown)}"
        # A shortened str is a str: the type of the values stays what it was.
        shown[key] = shortened(value, n_text) if isinstance(value, str) else value  # type: ignore[assignment]
    return shown


def _failure(failure: Failure, n_traceback: int, n_message: int) -> Failure:
    traceback = failure.traceback
    if len(traceback) > n_traceback:
        traceback = "…" + traceback[len(traceback) - n_traceback :] if n_traceback else ""
    return Failure(
        kind=failure.kind,
        type_name=shortened(failure.type_name, 80),
        message=shortened(failure.message, n_message),
        traceback=traceback,
        line=failure.line,
        rank=failure.rank,
    )


def with_totals(state: RunState, event: RunFinished) -> RunFinished:
    """The last record of a run with the totals that a listing of runs shows.

    ``state`` has not folded ``event`` yet: what waits or runs in it is cancelled by the end.
    """
    counts = msgspec.structs.asdict(state.counts)
    totals = {name: number for name, number in counts.items() if number}
    open_trials = totals.pop("waiting", 0) + totals.pop("running", 0)
    if open_trials:
        totals["cancelled"] = totals.get("cancelled", 0) + open_trials
    search = state.spec is not None and state.spec.verb.objective is not None
    return msgspec.structs.replace(
        event,
        totals=totals,
        best_trial=state.best_number if search else None,
        best_value=state.best_value if search else None,
        step=latest_step(state),
        round=latest_round(state),
    )
