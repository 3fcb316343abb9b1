"""``run.scaling()``: what more ranks would give, by what runs of the same cell have measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from jupyter_ddl.client.run_names import read_lines
from jupyter_ddl.errors import JupyterDDLError, OptionError
from jupyter_ddl.formats import format_counted, format_percent
from jupyter_ddl.ledger.reader import LedgerReader, read_submitted
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.scaling import Measured, Scaling, measured_of, scaling_of
from jupyter_ddl.plotting.chart import Chart, Layer, Mark, Panel, Scale
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.paths import ledger_path

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["earlier_runs", "first_guess", "scaling_chart", "scaling_of_runs", "scaling_table"]

_N_LOOKED_AT = 50
"""Newest trainings among which a dry run looks for those of its cell."""
_COLUMNS = ("ranks", "strategy", "efficiency", "error")


class Recorded(Protocol):
    """A run as far as its record tells."""

    @property
    def spec(self) -> RunSpec: ...
    def _fold(self) -> RunState: ...


def scaling_of_runs(runs: Sequence[Recorded]) -> Scaling:
    """Predictions from runs of one program.

    Raises
    ------
    OptionError
        They are of different cells, or one has too few measured steps.
    """
    first = runs[0].spec
    for run in runs[1:]:
        if run.spec.program.source.strip() != first.program.source.strip():
            raise OptionError(
                f"scaling(): run {run.spec.run_id} is of another cell than run {first.run_id}; "
                f"expected runs of the same cell with other -n"
            )
    return scaling_of([measured_of(run._fold()) for run in runs])


def scaling_table(found: Scaling) -> pd.DataFrame:
    """One row per number of ranks and strategy; ``attrs`` has ``best`` and ``notes``."""
    import pandas as pd

    table = pd.DataFrame(found.rows, columns=list(_COLUMNS))
    table["error"] = table["error"].astype(float)
    table.attrs = {"best": dict(found.best), "notes": list(found.notes)}
    return table


def scaling_chart(found: Scaling) -> Chart:
    """Efficiency over ranks: a line for each strategy, points where it was measured."""
    strategies = tuple(dict.fromkeys(row[1] for row in found.rows))
    lines = tuple(
        Mark(ranks, efficiency, series=strategy, line=strategy, label=_label(*row))
        for strategy in strategies
        for row in found.rows
        if (ranks := row[0], efficiency := row[2]) and row[1] == strategy
    )
    points = tuple(
        Mark(ranks, efficiency, series=strategy, label=f"{ranks} ranks measured: {efficiency:.1%}")
        for ranks, strategy, efficiency in found.measured
    )
    layers = (Layer("line", lines), Layer("point", points))
    return Chart(
        title="Efficiency of more ranks",
        panels=(Panel(Scale("ranks", "log"), Scale("efficiency"), layers),),
        note="; ".join(found.notes),
        series=strategies,
        text=found.text,
    )


def _label(ranks: int, strategy: str, efficiency: float, error: float | None) -> str:
    missed = "" if error is None else f"; predicted without it {error:.1%} beside what was measured"
    return f"{ranks} ranks, {strategy}: {efficiency:.1%}{missed}"


def first_guess(spec: RunSpec) -> list[str]:
    """What a dry run says of more ranks, by earlier runs of the same cell; nothing for others."""
    if not spec.verb.can.has_ranks:
        return []
    runs = earlier_runs(spec)
    if not runs:
        return [
            "Scaling: no run of this cell has told of its steps; `%%distribute ddp -n 1` with a "
            "few of them lets a dry run guess"
        ]
    found = scaling_of(runs)
    predicted = ", ".join(
        f"{ranks} ranks {format_percent(efficiency)}"
        for ranks, strategy, efficiency, _ in found.rows
        if strategy == found.best[ranks]
    )
    sizes = sorted({run.n_ranks for run in runs})
    source = f"{format_counted(len(runs), 'run')} of this cell on {', '.join(map(str, sizes))}"
    lines = [f"Scaling: by {source} ranks, efficiency at {predicted} by the best strategy"]
    return lines + [f"  {note}" for note in found.notes]


def earlier_runs(spec: RunSpec) -> list[Measured]:
    """Those of the same cell that have told of their steps."""
    source = spec.program.source.strip()
    found: list[Measured] = []
    lines = [line for line in read_lines() if line.can.has_ranks and not line.is_damaged]
    for line in lines[:_N_LOOKED_AT]:
        path = ledger_path(line.run_id)
        try:
            if read_submitted(path).spec.program.source.strip() == source:
                with LedgerReader(path, stops_at_damage=True) as reader:
                    found.append(measured_of(fold_all(reader.poll())))
        except JupyterDDLError:
            continue  # it has too few steps, or is removed in this moment
    return found
