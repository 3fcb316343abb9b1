"""``run.plot.history()`` and its like: charts of what the records of runs hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from jupyter_ddl.client.scaling import scaling_chart, scaling_of_runs
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.plotting.attempts import attempts_chart
from jupyter_ddl.plotting.chart import Chart, Plot
from jupyter_ddl.plotting.curves import curves_chart
from jupyter_ddl.plotting.pipeline import pipeline_chart
from jupyter_ddl.plotting.record import PlottedRun
from jupyter_ddl.plotting.staleness import staleness_chart
from jupyter_ddl.plotting.svg import to_svg
from jupyter_ddl.plotting.trials import (
    history_chart,
    importance_chart,
    parallel_chart,
    slice_chart,
)
from jupyter_ddl.plotting.vega import to_vega
from jupyter_ddl.protocol.events import Event
from jupyter_ddl.protocol.run import RunSpec

__all__ = ["RunPlots"]


class Recorded(Protocol):
    """A run as far as its record tells: what :class:`~jupyter_ddl.Run` is."""

    id: str

    @property
    def spec(self) -> RunSpec: ...
    def events(self) -> list[Event]: ...
    def _fold(self) -> RunState: ...


Other: TypeAlias = Recorded | str


class RunPlots:
    """Plots of one run, or of several; each shows itself at the end of a cell.

    A plot is Vega-Lite with its data, which JupyterLab draws and which can be changed, and SVG for
    whoever can't draw that.  All values are those of the record.  Where there is nothing to see, a
    sentence says why.

    Examples
    --------
    >>> run.plot.history(runs=["other"])        # doctest: +SKIP
    >>> run.plot.curves("val_loss").save("curves.svg")   # doctest: +SKIP
    """

    def __init__(self, run: Recorded, find: Callable[[str], Recorded]) -> None:
        self._run = run
        self._find = find

    def __repr__(self) -> str:
        names = (
            "history(), importance(), parallel(), slice(), timeline(), curves(metric, runs=[…]), "
            "pipeline(), staleness(), scaling(runs=[…])"
        )
        return f"<plots of run {self._run.id}: {names}>"

    def history(self, *, runs: Sequence[Other] = ()) -> Plot:
        """The objective of each trial, and the best so far.

        Pruned trials are crosses: theirs is the last value that they have reported.

        Parameters
        ----------
        runs : sequence of Run or str, optional
            More runs to draw beside this one, by handle, id or name.

        Returns
        -------
        Plot

        Raises
        ------
        OptionError
            A run has no objective, or another one than this run.
        RunNotFoundError
            There is no such run.
        """
        return _plot(history_chart(self._plotted(runs)))

    def importance(self) -> Plot:
        """How much each parameter has to do with the best trials, by Optuna's PED-ANOVA.

        Shares add up to 1.  Needs ten complete trials; of more than a thousand, a thousand are
        taken.

        Returns
        -------
        Plot

        Raises
        ------
        OptionError
            The run has no search space.
        """
        return _plot(importance_chart(self._plotted()[0]))

    def parallel(self, params: Sequence[str] | None = None) -> Plot:
        """Every trial as a line through its parameters to its objective.

        The best one stands out; lines of pruned trials are dashed.

        Parameters
        ----------
        params : sequence of str, optional
            Parameters and their order; by default all, at most 12.

        Returns
        -------
        Plot

        Raises
        ------
        OptionError
            There is no such parameter, or the run has no objective.
        """
        return _plot(parallel_chart(self._plotted()[0], params))

    def slice(self, params: Sequence[str] | None = None) -> Plot:
        """The objective against each parameter.

        Parameters
        ----------
        params : sequence of str, optional
            By default all, at most 12.

        Returns
        -------
        Plot

        Raises
        ------
        OptionError
            There is no such parameter, or the run has no objective.
        """
        return _plot(slice_chart(self._plotted()[0], params))

    def timeline(self) -> Plot:
        """What ran where and when: a bar for each attempt at a trial.

        Returns
        -------
        Plot
        """
        return _plot(attempts_chart(self._run.events(), self._run.spec.verb.nouns.trial))

    def pipeline(self) -> Plot:
        """Show what each rank computed when, in the last measured batch of ``--strategy pipeline``.

        Below it stands the same order of computations if nothing else took time.

        Returns
        -------
        Plot
        """
        ranks = self._run._fold().ranks.get(0)
        return _plot(pipeline_chart(None if ranks is None else ranks.pipeline))

    def staleness(self) -> Plot:
        """Show how many updates late gradients came under ``--strategy ps-async``.

        Returns
        -------
        Plot
        """
        ranks = self._run._fold().ranks.get(0)
        return _plot(staleness_chart(() if ranks is None else ranks.staleness.values()))

    def curves(self, metric: str | None = None, *, runs: Sequence[Other] = ()) -> Plot:
        """A metric over the steps: of a search's trials, or of a training.

        Of a search with many trials the best and the last ones are drawn, 60 in all; lines of
        pruned trials are dashed.

        Parameters
        ----------
        metric : str, optional
            As named in ``report()``; by default what trials are judged by, else the first
            validation metric or loss.
        runs : sequence of Run or str, optional
            More runs to draw beside this one, by handle, id or name.

        Returns
        -------
        Plot

        Raises
        ------
        OptionError
            No run has reported such a metric; the message has the nearest name.
        RunNotFoundError
            There is no such run.
        """
        handles = [self._run, *map(self._handle, _several(runs))]
        events = [handle.events() for handle in handles]
        return _plot(curves_chart(self._plotted(runs), events, metric))

    def scaling(self, *, runs: Sequence[Other] = ()) -> Plot:
        """What more ranks would give: :meth:`jupyter_ddl.Run.scaling` as a picture.

        Parameters
        ----------
        runs : sequence of Run or str, optional
            Runs of the same cell on other numbers of ranks.

        Returns
        -------
        Plot

        Raises
        ------
        OptionError
            As for the table.
        RunNotFoundError
            There is no such run.
        """
        others = map(self._handle, _several(runs))
        return _plot(scaling_chart(scaling_of_runs([self._run, *others])))

    # -- inside ----------------------------------------------------------------------------------

    def _handle(self, other: Other) -> Recorded:
        return self._find(other) if isinstance(other, str) else other

    def _plotted(self, runs: Sequence[Other] = ()) -> list[PlottedRun]:
        """This run and others, by names that differ."""
        found: list[PlottedRun] = []
        for run in (self._run, *map(self._handle, _several(runs))):
            spec, state = run.spec, run._fold()
            name = spec.name or spec.run_id
            taken = {each.name for each in found}
            found.append(PlottedRun(name if name not in taken else spec.run_id, spec, state))
        return found


def _several(runs: Sequence[Other]) -> Sequence[Other]:
    """One name is a sequence of letters, too."""
    return [runs] if isinstance(runs, str) else runs


def _plot(chart: Chart) -> Plot:
    return Plot(chart, to_vega, to_svg)
