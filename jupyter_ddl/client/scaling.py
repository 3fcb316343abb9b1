"""``run.scaling()``: what more ranks would give, by what runs of the same cell have measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from jupyter_ddl.client.run_names import read_lines
from jupyter_ddl.errors import JupyterDDLError, OptionError
from jupyter_ddl.formats import format_counted
from jupyter_ddl.ledger.reader import LedgerReader, read_submitted
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.scaling import Measured, Prediction, Scaling, measured_of, scaling_of
from jupyter_ddl.plotting.chart import Chart, Layer, Mark, Panel, Scale
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.paths import ledger_path

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["earlier_runs", "first_guess", "scaling_chart", "scaling_of_runs", "scaling_table"]

_N_LOOKED_AT = 50
"""Newest trainings among which a dry run looks for those of its cell."""
_COLUMNS = ("ranks", "strategy", "efficiency", "error", "basis")


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
    """One row per number of ranks and strategy; ``attrs`` has the rest."""
    import pandas as pd

    table = pd.DataFrame(found.rows, columns=list(_COLUMNS))
    table["error"] = table["error"].astype(float)
    table.attrs = {
        "best": dict(found.best),
        "fastest": dict(found.fastest),
        "assumed": dict(found.assumed),
        "notes": list(found.notes),
    }
    return table


def scaling_chart(found: Scaling) -> Chart:
    """Efficiency over ranks: a line for each strategy, faint if estimated; points are measured."""
    points = tuple(
        Mark(ranks, efficiency, series=strategy, label=f"{ranks} ranks measured: {efficiency:.1%}")
        for ranks, strategy, efficiency in found.measured
    )
    fits = _curves(each for each in found.rows if each.basis == "fit")
    estimates = _curves(each for each in found.rows if each.basis == "estimate")
    layers = (
        Layer("line", _marks(estimates, found.assumed), is_faint=True),
        Layer("line", _marks(fits, found.assumed)),
        Layer("point", points),
    )
    faint = [f"{names} assumes {what}" for what, names in _by_assumption(found.assumed).items()]
    return Chart(
        title="Efficiency of more ranks",
        panels=(Panel(Scale("ranks", "log"), Scale("efficiency"), layers),),
        note="; ".join([*found.notes, f"faint lines are estimates: {', '.join(faint)}"]),
        series=(*fits, *estimates),
        text=found.text,
    )


def _curves(rows: Iterable[Prediction]) -> dict[str, list[Prediction]]:
    """Rows by the name of their line; estimates that are always the same share one."""
    of: dict[str, list[Prediction]] = {}
    for row in rows:
        of.setdefault(row.strategy, []).append(row)
    shared: dict[tuple[object, ...], list[str]] = {}
    for strategy, each in of.items():
        is_fit = each[0].basis == "fit"
        shared.setdefault((is_fit and strategy, *(row.efficiency for row in each)), []).append(
            strategy
        )
    return {", ".join(names): of[names[0]] for names in shared.values()}


def _marks(
    curves: Mapping[str, Sequence[Prediction]], assumed: Mapping[str, str]
) -> tuple[Mark, ...]:
    return tuple(
        Mark(
            row.n_ranks,
            row.efficiency,
            series=name,
            line=name,
            label=_label(name, row, assumed.get(row.strategy, "")),
        )
        for name, rows in curves.items()
        for row in rows
    )


def _by_assumption(assumed: Mapping[str, str]) -> dict[str, str]:
    """Names of strategies by what is assumed of them."""
    names: dict[str, list[str]] = {}
    for strategy, what in assumed.items():
        names.setdefault(what, []).append(strategy)
    return {what: " and ".join(each) for what, each in names.items()}


def _label(name: str, row: Prediction, assumed: str) -> str:
    text = f"{row.n_ranks} ranks, {name}: {row.efficiency:.1%}"
    if row.basis == "estimate":
        return f"{text}, an estimate that assumes {assumed}"
    if row.error is None:
        return text
    return f"{text}; predicted without it {row.error:.1%} beside what was measured"


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
    predicted = ", ".join(f"{each.n_ranks} ranks ({each.text})" for each in found.best_rows)
    sizes = sorted({run.n_ranks for run in runs})
    source = f"{format_counted(len(runs), 'run')} of this cell on {', '.join(map(str, sizes))}"
    lines = [f"Scaling: by {source} ranks, the best strategy for {predicted}"]
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
