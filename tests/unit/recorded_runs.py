"""Searches whose record is on disk, without a cluster: what each trial had is known."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    Reported,
    RunFinished,
    RunStarted,
    RunSubmitted,
    TrialCreated,
)
from jupyter_ddl.store.paths import ledger_path, private_dir, run_dir
from tests.unit.cell.cell_makers import compiled

__all__ = ["CELL", "LINE", "events_of_search", "params_of", "record_search", "value_of"]

LINE = "search --metric val_acc --trials 30 --seed 1"
CELL = (
    "lr = loguniform(1e-4, 1e-1)\n"
    'act = choice("relu", "gelu")\n'
    "width = randint(8, 64)\n"
    "val_acc = lr\n"
    "report(step=0, val_acc=val_acc)\n"
)
BEGAN_S = 1_700_000_000.0


def params_of(number: int) -> dict[str, float | int | str]:
    return {
        "lr": 10.0 ** (-4 + 3 * (number * 37 % 30) / 30),
        "act": "relu" if number % 2 else "gelu",
        "width": 8 + number % 57,
    }


def value_of(number: int) -> float:
    """Best where lr is about 0.01; nothing else counts."""
    return 1.0 - abs(math.log10(float(params_of(number)["lr"])) + 2) / 3


def events_of_search(
    n_trials: int = 30, *, values: Iterable[float] | None = None, n_steps: int = 4
) -> list[Event]:
    """Every fifth trial is pruned, the seventh has failed; all but that one have reported."""
    given = list(values) if values is not None else [value_of(n) for n in range(n_trials)]
    events: list[Event] = [RunStarted(BEGAN_S, 1, 2, 2, 4242)]
    for n, value in enumerate(given):
        at_s = BEGAN_S + n
        events.append(TrialCreated(n, params_of(n), at_s))
        worker = f"w{n % 2}"
        events.append(AttemptStarted(n, 1, at_s, worker=worker, pid=9, log="a.log", log_start=0))
        for step in range(n_steps):
            metrics = {"loss": 2.0 - value - step, "val_acc": value - (n_steps - 1 - step) / 10}
            events += [Reported(n, 1, step, metrics, at_s + step / 10)] if n != 7 else []
        outcome = "failed" if n == 7 else "pruned" if n % 5 == 4 else "complete"
        final = None if n == 7 else value
        events.append(
            AttemptFinished(n, 1, outcome, at_s + 1.5, duration_s=1.5, value=final, log_end=0)
        )
    return events


def record_search(
    run_id: str,
    events: list[Event] | None = None,
    *,
    line: str = LINE,
    cell: str = CELL,
    name: str = "",
    ends: bool = True,
) -> None:
    """Write a search's ledger into this test's home."""
    spec = msgspec.structs.replace(compiled(line, cell).spec, run_id=run_id, name=name)
    spec = msgspec.structs.replace(spec, created_at_s=BEGAN_S)
    private_dir(run_dir(run_id))
    events = events_of_search() if events is None else events
    end = [RunFinished(BEGAN_S + 60, "complete", totals={})] if ends else []
    with LedgerWriter.open(ledger_path(run_id), create=True) as ledger:
        ledger.append([RunSubmitted(spec, BEGAN_S), *events, *end])
