"""The sentences of a run that HTML and text share: state, progress, times, first failure."""

from __future__ import annotations

import datetime
import math

import msgspec

from jupyter_ddl.formats import (
    format_count,
    format_counted,
    format_duration,
    format_held,
    format_money,
    format_rate,
)
from jupyter_ddl.protocol.events import Failure
from jupyter_ddl.protocol.snapshot import RunSnapshot, SpendingRow, TrialRow, TrialStateName
from jupyter_ddl.views.drawing import plain

__all__ = [
    "FailureNote",
    "Segment",
    "amount_text",
    "clock_text",
    "costs",
    "duration_text",
    "elapsed_s",
    "failure_message",
    "failure_place",
    "first_failure",
    "is_final",
    "noun",
    "ordered_rows",
    "recovery_text",
    "segments",
    "state_text",
    "steps_text",
    "times",
]

_FINAL = frozenset({"complete", "failed", "cancelled"})
_N_BEST = 3
_N_RUNNING = 8
_HOUR_S = 3600.0

_SegmentOrder: tuple[TrialStateName, ...] = (
    "complete",
    "pruned",
    "failed",
    "cancelled",
    "running",
)


class Segment(msgspec.Struct, frozen=True):
    """A part of the progress bar."""

    state: TrialStateName
    n_trials: int
    share: float
    """Of the whole bar, 0 to 1."""


class FailureNote(msgspec.Struct, frozen=True):
    """The failure that explains most, and how many more trials failed."""

    failure: Failure
    trial: int | None
    n_more: int


def is_final(snapshot: RunSnapshot) -> bool:
    return snapshot.state in _FINAL


def noun(snapshot: RunSnapshot, n: int = 2) -> str:
    """What the run is made of, in the number that fits ``n``."""
    return snapshot.nouns.trial if n == 1 else snapshot.nouns.trials


def state_text(snapshot: RunSnapshot) -> str:
    """The run's state in one word, and what a person should know beyond it."""
    if is_final(snapshot):
        return snapshot.state
    if snapshot.stopping:
        return "stopping…"
    if snapshot.driver == "recovering":
        return "recovering"
    return "waiting" if snapshot.paused else snapshot.state


def elapsed_s(snapshot: RunSnapshot, now_s: float) -> float:
    """Seconds since the run began (since it was submitted, if it has not)."""
    start = snapshot.created_at_s if snapshot.started_at_s is None else snapshot.started_at_s
    end = now_s if snapshot.finished_at_s is None else snapshot.finished_at_s
    return max(0.0, end - start)


def segments(snapshot: RunSnapshot) -> tuple[Segment, ...]:
    """Parts of the progress bar, finished ones first; what waits is the rest of the bar."""
    counts = {state: max(0, getattr(snapshot.counts, state)) for state in _SegmentOrder}
    whole = max(1, snapshot.n_trials, sum(counts.values()))
    return tuple(
        Segment(state=state, n_trials=n, share=n / whole) for state, n in counts.items() if n
    )


def times(snapshot: RunSnapshot, now_s: float) -> tuple[str, ...]:
    """Elapsed time, rate and remaining time, as far as they are known."""
    elapsed = elapsed_s(snapshot, now_s)
    parts = [format_duration(elapsed)]
    if is_final(snapshot):
        n_done = snapshot.counts.finished
        rate = n_done / elapsed if n_done > 1 and elapsed > 0 else None
        parts.append(format_rate(rate, noun(snapshot)))
    elif snapshot.state == "running":
        parts.append(format_rate(snapshot.trials_per_s, noun(snapshot)))
        left_s = -1.0 if snapshot.ends_at_s is None else snapshot.ends_at_s - now_s
        if math.isfinite(left_s) and left_s >= 0 and not snapshot.paused:
            parts.append(f"about {format_duration(max(1.0, left_s))} left")
    return tuple(part for part in parts if part)


def costs(snapshot: RunSnapshot, now_s: float) -> tuple[str, ...]:
    """What it has cost so far and will cost, and what of its budget is gone."""
    return tuple(_spent_text(snapshot, row, now_s) for row in snapshot.spending)


def _spent_text(snapshot: RunSnapshot, row: SpendingRow, now_s: float) -> str:
    of_budget = "" if row.budget is None else f" of {amount_text(row, row.budget)}"
    if is_final(snapshot):
        return f"{amount_text(row, row.amount)}{of_budget}"
    spent = row.amount + max(0.0, now_s - row.at_s) * row.per_hour / _HOUR_S
    text = f"{amount_text(row, spent)} so far{of_budget}"
    left_s = -1.0 if snapshot.ends_at_s is None else snapshot.ends_at_s - now_s
    if row.currency and row.per_hour > 0 and math.isfinite(left_s) and left_s >= 0:
        to_go = format_money(left_s * row.per_hour / _HOUR_S, plain(row.currency, 3), True)
        text += f", about {to_go} to go"
    return text


def amount_text(row: SpendingRow, amount: float) -> str:
    """An amount in the unit of a row."""
    if row.unit == "money":
        return format_money(amount, plain(row.currency, 3))
    return format_held(amount, "CPU" if row.unit == "cpuh" else "GPU")


def recovery_text(snapshot: RunSnapshot) -> str:
    """What was lost with a worker and tried again; empty when nothing was."""
    n = snapshot.n_evictions
    if n <= 0:
        return ""
    return f"{format_counted(n, 'attempt')} evicted and tried again"


def first_failure(snapshot: RunSnapshot) -> FailureNote | None:
    """The run's first cause, or while it runs, that of the failed trial with the lowest number."""
    n_failed = snapshot.counts.failed
    if snapshot.failure is not None:
        charged = 1 if snapshot.failed_trial is not None else 0
        return FailureNote(
            failure=snapshot.failure,
            trial=snapshot.failed_trial,
            n_more=max(0, n_failed - charged),
        )
    failed = [
        (row.number, row.failure)
        for row in snapshot.rows
        if row.failure is not None and row.state == "failed"
    ]
    if not failed:
        return None
    number, failure = min(failed, key=lambda one: one[0])
    return FailureNote(failure=failure, trial=number, n_more=max(0, n_failed - 1))


def failure_place(snapshot: RunSnapshot, note: FailureNote) -> str:
    """What failed, in front of the exception's class: ``Trial 7 failed: `` or ``Rank 1: ``."""
    if snapshot.can.has_ranks:
        rank = note.failure.rank
        return "" if rank is None else f"Rank {rank}: "
    return "" if note.trial is None else f"{noun(snapshot, 1).capitalize()} {note.trial} failed: "


def failure_message(failure: Failure) -> str:
    """The message without the rank that stands in front of it."""
    return failure.message.removeprefix(f"rank {failure.rank}: ")


def ordered_rows(snapshot: RunSnapshot, n_shown: int) -> tuple[TrialRow, ...]:
    """At most ``n_shown`` rows: the best, then running ones, then the rest, newest first."""
    best_number = None if snapshot.best is None else snapshot.best.number
    scored = [row for row in snapshot.rows if row.state == "complete" and _has_value(row)]
    scored.sort(key=lambda row: _badness(row, snapshot.mode, best_number))
    running = [row for row in snapshot.rows if row.state == "running"]
    top = scored[:_N_BEST] if snapshot.metric is not None else []
    taken = {row.number for row in (*top, *running)}
    rest = sorted(
        (row for row in snapshot.rows if row.number not in taken), key=lambda row: -row.number
    )
    running.sort(key=lambda row: row.number)
    return (*top, *running[:_N_RUNNING], *rest)[:n_shown]


def _has_value(row: TrialRow) -> bool:
    return row.value is not None and math.isfinite(row.value)


def _badness(row: TrialRow, mode: str, best_number: int | None) -> tuple[bool, float, int]:
    value = row.value or 0.0
    return row.number != best_number, -value if mode == "max" else value, row.number


def clock_text(at_s: float) -> str:
    """Local day and time, for a drawing that may be looked at much later."""
    return datetime.datetime.fromtimestamp(at_s).strftime("%Y-%m-%d %H:%M:%S")


def steps_text(snapshot: RunSnapshot, row: TrialRow) -> str:
    """The last step, and of how many where that is known."""
    if row.step is None:
        return ""
    total = row.metrics.get(snapshot.nouns.total)
    return format_count(row.step) + ("" if total is None else f" / {format_count(int(total))}")


def duration_text(row: TrialRow, now_s: float) -> str:
    """How long the last attempt took, or a running one has taken so far; empty before one."""
    if row.state == "running" and row.started_at_s is not None:
        return format_duration(max(0.0, now_s - row.started_at_s))
    return "" if row.duration_s is None else format_duration(row.duration_s)
