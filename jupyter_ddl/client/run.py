"""A run as the notebook holds it: what is on disk, and a handle to the controller driving it."""

from __future__ import annotations

import pickle
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_ddl.client.copies import here
from jupyter_ddl.client.files import RunFiles, files_of
from jupyter_ddl.client.logs import find_pieces, ranks_text, trials_text
from jupyter_ddl.client.outputs import Output, outputs_of_cells, outputs_of_trials
from jupyter_ddl.client.run_names import find_run
from jupyter_ddl.client.run_plots import RunPlots
from jupyter_ddl.client.scaling import scaling_of_runs, scaling_table
from jupyter_ddl.client.session import Session, session
from jupyter_ddl.client.waiting import OnInterrupt, OnTick, wait_for_run
from jupyter_ddl.errors import RunFailedError, RunNotFoundError, TrialError
from jupyter_ddl.formats import format_score
from jupyter_ddl.ledger.reader import LedgerReader
from jupyter_ddl.ledger.reducer import fold
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import encoded_snapshot, latest_step, snapshot_of
from jupyter_ddl.ledger.spending import Cost, cost_of
from jupyter_ddl.ledger.tables import (
    METRIC_COLUMNS,
    PROFILE_COLUMNS,
    RANK_COLUMNS,
    TRIAL_COLUMNS,
    metrics_table,
    profile_table,
    ranks_table,
    trials_table,
)
from jupyter_ddl.plotting.staleness import staleness_counts
from jupyter_ddl.protocol.assignment import StopWhen
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    Failure,
    RankEnded,
    RankStarted,
)
from jupyter_ddl.protocol.group import spans
from jupyter_ddl.protocol.requests import StopRunRequest, StopTrialRequest
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.snapshot import BestTrial, EncodedSnapshot, RunSnapshot, RunStateName
from jupyter_ddl.store.paths import ledger_path, run_dir
from jupyter_ddl.tracking.tensorboard.writing import tensorboard_dir, write_run

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Run", "map_results", "rank_result", "rank_results", "rank_values", "trial_values"]


# What the ranks of a group sent back: each rank's own file of values, and its result.

_RESULT = "value"
"""Name of the cell's own value in a values file."""


def rank_values(state: RunState, run_id: str, trial: int, rank: int) -> dict[str, Any]:
    """The variables that a rank brought in the last round, its result included.

    Raises
    ------
    TrialError
        The trial has no such rank, or the rank did not come to its end.
    """
    ended = _ended(state, trial)
    if rank not in ended:
        known = f"ranks 0 to {max(ended)}" if ended else "no rank"
        raise TrialError(f"rank {rank} of trial {trial} brought nothing; {known} finished there")
    return _read(run_id, ended[rank])


def rank_results(state: RunState, run_id: str, trial: int) -> list[Any]:
    """What the cell's last expression was on each rank of the last round; None where it failed."""
    ended = _ended(state, trial)
    n_ranks = 1 + max(ended, default=-1)
    return [rank_result(ended.get(rank), run_id) for rank in range(n_ranks)]


def rank_result(ended: RankEnded | None, run_id: str) -> Any:
    """One rank's result."""
    if ended is None or ended.outcome != "complete":
        return None
    if ended.has_inline_value:
        return ended.inline_value
    return _read(run_id, ended).get(_RESULT)


def _ended(state: RunState, trial: int) -> dict[int, RankEnded]:
    group = state.ranks.get(trial)
    return {} if group is None else group.ended


def _read(run_id: str, ended: RankEnded) -> dict[str, Any]:
    if ended.values_file is None:
        return {}
    with here(run_id, f"values/{ended.values_file}").open("rb") as file:
        values: dict[str, Any] = pickle.load(file)
    return values


# What trials sent back: the values that they brought, and a map's results.


def trial_values(state: RunState, run_id: str, number: int) -> dict[str, Any]:
    """The variables that a trial brought; empty without any."""
    name = state.values_file(number)
    if name is None:
        return {}
    with here(run_id, f"values/{name}").open("rb") as file:
        values: dict[str, Any] = pickle.load(file)
    return values


def map_results(state: RunState, run_id: str, events: Sequence[Event]) -> list[Any]:
    """What the cell's last expression was for each element; None where it failed."""
    inline = _inline_values(events)
    return [
        inline[number] if number in inline else _result(state, run_id, number)
        for number in range(state.n_trials)
    ]


def _result(state: RunState, run_id: str, number: int) -> Any:
    trial = state.trials.get(number)
    if trial is None or trial.state != "complete" or trial.values_file is None:
        return None
    return trial_values(state, run_id, number).get("value")


def _inline_values(events: Sequence[Event]) -> dict[int, Any]:
    return {
        event.trial: event.inline_value
        for event in events
        if isinstance(event, AttemptFinished)
        and event.outcome == "complete"
        and event.has_inline_value
    }


class Run:
    """One execution of a cell.  Everything it tells comes from the ledger on disk.

    Parameters
    ----------
    run : str
        An id as ``%runs`` shows it, the unique beginning of one, a run's name, or ``last``.

    Raises
    ------
    RunNotFoundError
        There is no such run; the message has the nearest.

    Warns
    -----
    UserWarning
        Several runs have this name; the newest of them is meant.
    """

    def __init__(self, run: str) -> None:
        self.id = find_run(run, lambda text: warnings.warn(text, stacklevel=5))
        self._guard = threading.Lock()
        self._reader: LedgerReader | None = None
        self._state = RunState()

    # -- what it is --------------------------------------------------------------------------

    @property
    def spec(self) -> RunSpec:
        """The run's spec: what it is to do."""
        spec = self._fold().spec
        if spec is None:
            raise RunNotFoundError(f"run {self.id} has no first record; `%runs rm {self.id}`")
        return spec

    @property
    def state(self) -> RunStateName:
        """submitted, starting, running, then complete, failed or cancelled."""
        return self._fold().state

    @property
    def best(self) -> BestTrial | None:
        """The best complete trial (``number``, ``params``, ``value``); None before there is one."""
        return self._fold().best

    @property
    def trials(self) -> pd.DataFrame:
        """One row per trial, one column per parameter; see ``events.tables.trials_table``."""
        import pandas as pd

        rows = trials_table(self._fold())
        found = pd.DataFrame(rows, columns=None if rows else TRIAL_COLUMNS)
        for name in rows[0] if rows else ():
            kinds = {type(row[name]) for row in rows}
            if kinds == {int, type(None)}:  # whole numbers stay whole beside a gap
                found[name] = found[name].astype("Int64")
        return found

    @property
    def metrics(self) -> pd.DataFrame:
        """One row per report: trial, attempt, step, one column per metric."""
        import pandas as pd

        rows = metrics_table(self.events())
        return pd.DataFrame(rows, columns=None if rows else METRIC_COLUMNS)

    @property
    def ranks(self) -> pd.DataFrame:
        """One row per rank of a training's latest round: what its steps are made of, and cost.

        ``steps`` are optimizer steps, ``step_ms`` and its parts those of one on the average,
        ``bytes_per_step`` the payload that the rank has sent, by ``steps``; of a parameter server
        it is what it gives to workers.  ``peak_memory_bytes`` is the most main memory that its
        process has held up to its last word.  NaN: not measured, as the bytes of ``fsdp`` and of
        loops by hand.
        """
        import pandas as pd

        found = pd.DataFrame(ranks_table(self._fold()), columns=list(RANK_COLUMNS))
        measured = list(RANK_COLUMNS[RANK_COLUMNS.index("step_ms") :])
        return found.astype(dict.fromkeys(measured, float) | {"steps": "Int64"})

    @property
    def profile(self) -> pd.DataFrame:
        """The costliest operations of each rank that ``--profile`` recorded, and their traces.

        ``calls``, ``cpu_ms`` and ``device_ms`` are those of one step, without the operations that
        were called; ``share`` is of the step's time on the GPU, where there is one.  ``trace`` is a
        file for https://ui.perfetto.dev or ``chrome://tracing``.
        """
        import pandas as pd

        state = self._fold()
        for taken in state.profiles.values():
            here(self.id, f"profiles/{taken.file}")
        rows = profile_table(state, self.directory / "profiles")
        return pd.DataFrame(rows, columns=list(PROFILE_COLUMNS))

    @property
    def errors(self) -> dict[int, Failure]:
        """Why trials failed for good, by number; of a ddp run, why ranks of its last round did."""
        state = self._fold()
        if self.spec.verb.can.has_ranks:
            ended = state.ranks[0].ended if 0 in state.ranks else {}
            return {n: end.failure for n, end in sorted(ended.items()) if end.failure}
        trials = state.trials.values()
        return {t.number: t.failure for t in trials if t.state == "failed" and t.failure}

    @property
    def bytes_sent(self) -> int | None:
        """Payload that all ranks of a training have sent in steps of ``prepare_step``, in bytes.

        Of a collective it is what each rank puts in: an averaged gradient counts once per rank.
        None: no step was made so, or its strategy does not count.
        """
        return self._fold().group.bytes_sent

    @property
    def staleness(self) -> list[int]:
        """Gradients that parameter servers have used in the last round, by how late they came.

        Number ``n`` came ``n`` updates later than the parameters they were computed from.  Empty:
        the strategy is not ``ps-async``.
        """
        ranks = self._fold().ranks.get(0)
        return [] if ranks is None else staleness_counts(ranks.staleness.values())

    @property
    def directory(self) -> Path:
        """Where the ledger, logs, checkpoints and values lie."""
        return run_dir(self.id)

    @property
    def cost(self) -> Cost:
        """What it has cost and held so far, as far as its record tells (once a minute)."""
        return cost_of(self._fold())

    def events(self) -> list[Event]:
        """All committed events, in order."""
        with LedgerReader(ledger_path(self.id), stops_at_damage=True) as reader:
            return list(reader.poll())

    @property
    def damage(self) -> str:
        """What is damaged in its record; empty if nothing is.  All else tells what is before it."""
        self._fold()
        damage = None if self._reader is None else self._reader.damage
        return "" if damage is None else damage.message

    def snapshot(self) -> RunSnapshot:
        """The run at this moment, as views draw it."""
        return snapshot_of(self._fold(), time.time())

    def encoded_snapshot(self) -> EncodedSnapshot:
        """The same as it travels to live views."""
        return encoded_snapshot(self._fold(), time.time())

    @property
    def plot(self) -> RunPlots:
        """Plots of its record: ``run.plot.history()``, ``.importance()``, ``.curves("loss")`` …"""
        return RunPlots(self, Run)

    def scaling(self, *other_runs: Run | str) -> pd.DataFrame:
        """What 2 to 64 ranks would give, by a cost model fitted to the steps of this training.

        Runs of the same cell on other numbers of ranks make it better, and show its error.

        Parameters
        ----------
        other_runs : Run or str
            By handle, id or name.

        Returns
        -------
        pandas.DataFrame
            ``ranks``, ``strategy``, ``efficiency`` (samples per second, as a share of those of as
            many ranks that need not wait for one another), ``error``: by how much of the measured
            step a fit to the other sizes misses this one, NaN where nothing was measured; and
            ``basis``: ``fit``, or ``estimate`` of a strategy whose steps are computed from the
            fitted parameters and what ``attrs["assumed"]`` says of it.  ``attrs["best"]`` is the
            best strategy by ranks of those that train as one process does, ``attrs["fastest"]``
            of all, ``attrs["notes"]`` what the fit assumes.

        Raises
        ------
        OptionError
            A run is no training, is of another cell, or has told of too few optimizer steps.
        RunNotFoundError
            There is no such run.
        """
        others = [Run(other) if isinstance(other, str) else other for other in other_runs]
        return scaling_table(scaling_of_runs([self, *others]))

    # -- what it printed and made --------------------------------------------------------------

    def logs(
        self, which: int | None = None, /, *, trial: int | None = None, rank: int | None = None
    ) -> str:
        """Everything the code printed, in the last attempt of each trial.

        Parameters
        ----------
        which : int, optional
            The trial; of a ddp run, the rank.
        trial, rank : int, optional
            The same by name.  Without a rank all ranks, with a line in front of each.

        Raises
        ------
        TrialError
            There is no such trial or rank.
        """
        pieces = find_pieces(self.events())
        if self.spec.verb.can.has_ranks:
            rank, trial = which if rank is None else rank, 0
        elif trial is None:
            trial = which
        if trial is None:
            if rank is None:
                return trials_text(pieces, self.directory)
            trial = self._fold().best_number or 0
        if trial not in self._fold().trials and trial not in pieces:
            if self.spec.verb.can.has_ranks:
                return ""  # its ranks have not begun
            raise TrialError(f"run {self.id} has no trial {trial}", trial=trial)
        return ranks_text(pieces.get(trial, {}), self.directory, rank)

    @property
    def outputs(self) -> list[Output]:
        """Figures and tables that its trials show, by trial: the newest ones of each."""
        return self._outputs(None)

    def show_outputs(self, trial: int | None = None) -> None:
        """Show them in the notebook as what they are.

        Parameters
        ----------
        trial : int, optional
            Only this one's; of a persistent group, this cell's.  By default of all, each trial
            below its number.

        Raises
        ------
        TrialError
            Nothing is kept.
        """
        from IPython.display import display

        found = self._outputs(trial)
        if not found:
            of = f"run {self.id}" if trial is None else f"trial {trial} of run {self.id}"
            others = sorted({output.trial for output in self.outputs})
            known = f"; there are some of {spans(others)}" if others else ""
            raise TrialError(f"{of} keeps no figures or tables{known}", trial=trial)
        heading = None if trial is None and not self.spec.verb.can.has_ranks else found[0].trial
        for output in found:
            if output.trial != heading:
                heading = output.trial
                display({"text/plain": f"trial {heading}"}, raw=True)
            display(output)

    def value(self, name: str, trial: int | None = None, *, rank: int = 0) -> Any:
        """A brought variable: the best trial's (search), that of element ``trial`` (map), or of a
        rank (ddp).

        Raises
        ------
        TrialError
            Nothing of that name was brought; the message says what was.
        """
        values = self._values_at(trial, rank)
        if name not in values:
            brought = ", ".join(values) or "nothing"
            raise TrialError(
                f"run {self.id} brought {brought}, not {name!r}; add `--bring {name}` to the line"
            )
        return values[name]

    @property
    def values(self) -> list[Any]:
        """Results in order: each element's value (map), or each rank's (ddp); None: it failed."""
        state = self._fold()
        if self.spec.verb.can.has_ranks:
            return rank_results(state, self.id, 0)
        if not self.spec.verb.can.has_items:
            best = state.best_number
            return [] if best is None else [trial_values(state, self.id, best)]
        return map_results(state, self.id, self.events())

    def bring(self) -> dict[str, Any]:
        """Every variable named by ``--bring``, from the best trial or from rank 0."""
        values = self._values_at(None, 0)
        return {name: values[name] for name in self.spec.bring if name in values}

    @property
    def files(self) -> RunFiles:
        """What the ranks have written by relative names, where the notebook does not see it.

        Has their sizes; ``run.files.fetch("*.pt")`` downloads them.  A worker's files go with it.
        """
        state = self._fold()
        number = 0 if self.spec.verb.can.has_ranks else state.best_number
        return files_of(self.spec, _last_worker(self.events(), number))

    def tensorboard(self, directory: str | Path | None = None) -> Path:
        """Write scalars and hyper-parameters as TensorBoard reads them; returns the directory.

        Parameters
        ----------
        directory : path, optional
            By default ``tensorboard`` in the run's own.  Files that are there are brought up to
            date.

        Raises
        ------
        OptionError
            The package tensorboard is missing.
        LedgerBusyError
            The run goes on and writes them by itself.
        """
        target = tensorboard_dir(self.id) if directory is None else Path(directory)
        write_run(self.id, target)
        return target

    # -- what can be done with it -----------------------------------------------------------------

    def wait(
        self,
        timeout_s: float | None = None,
        on_snapshot: Callable[[RunSnapshot], Any] | None = None,
        *,
        on_tick: OnTick | None = None,
        on_interrupt: OnInterrupt = "stop",
    ) -> Run:
        """Wait for the end.  The first interrupt stops the run at its next reports, the second now.

        Parameters
        ----------
        on_snapshot, on_tick : callable, optional
            Called while waiting: with what is new, and about ten times per second in between.
        on_interrupt : str
            With ``leave``, an interrupt ends the wait and the run goes on.

        Raises
        ------
        RunFailedError
            The run failed; the message is the first cause with the cell's own line.
        TimeoutError
            ``timeout_s`` passed; the run goes on.
        """
        last = wait_for_run(
            self._session(),
            self.id,
            timeout_s,
            None if on_snapshot is None else lambda encoded: on_snapshot(encoded.decode()),
            on_tick=on_tick,
            on_interrupt=on_interrupt,
        )
        self.raise_for_failure(last.decode())
        return self

    def raise_for_failure(self, snapshot: RunSnapshot | None = None) -> None:
        """Raise the first cause if the run failed."""
        last = snapshot or self.snapshot()
        if last.state == "failed":
            raise _failed(self.id, last)

    def cancel(self, when: StopWhen = "now") -> None:
        """Stop the run: at once, or each trial at its ``next_report``; no-op when it has ended."""
        if self._fold().end is not None:
            return
        try:
            self._session().ask_controller_of(self.spec.cluster, StopRunRequest(self.id, when))
        except RunNotFoundError:
            if self._fold().end is None:
                raise  # otherwise it ended in this very moment

    def stop_trial(self, trial: int, when: StopWhen = "next_report") -> None:
        """Stop one running trial; the run goes on."""
        request = StopTrialRequest(self.id, trial, when)
        self._session().ask_controller_of(self.spec.cluster, request)

    def __repr__(self) -> str:
        state = self._fold()
        if self.spec.verb.can.has_ranks:
            step = latest_step(state)
            told = "" if step is None else f", step {step:,}"
            return f"<Run {self.id} {state.state}, {self.spec.n_ranks} ranks{told}>"
        best = "" if state.best is None else f", best {format_score(state.best.value)}"
        return f"<Run {self.id} {state.state}, {state.counts.finished} of {state.n_trials}{best}>"

    def __del__(self) -> None:
        reader = getattr(self, "_reader", None)
        if reader is not None:
            reader.close()

    # -- inside ----------------------------------------------------------------------------------

    def _session(self) -> Session:
        return session()

    def _fold(self) -> RunState:
        """The state as of now: reads only what is new since the last call."""
        with self._guard:
            if self._reader is None:
                self._reader = LedgerReader(ledger_path(self.id), stops_at_damage=True)
            for event in self._reader.poll():
                fold(self._state, event)
            if self._state.end is not None:
                self._reader.rest()  # a notebook may keep a thousand of them
            return self._state

    def _outputs(self, trial: int | None) -> list[Output]:
        if self.spec.verb.can.has_cells:
            return outputs_of_cells(self.events(), self.directory, trial)
        return outputs_of_trials(self._fold(), self.directory, trial)

    def _values_at(self, trial: int | None, rank: int) -> dict[str, Any]:
        state = self._fold()
        is_ddp = self.spec.verb.can.has_ranks
        number = trial if trial is not None else 0 if is_ddp else state.best_number
        if number is None:
            return {}
        if rank or is_ddp:
            return rank_values(state, self.id, number, rank)
        return trial_values(state, self.id, number)


def _last_worker(events: Iterable[Event], trial: int | None) -> str:
    """The name of the worker that had a trial, or rank 0 of it, last."""
    found = ""
    for event in events:
        if isinstance(event, RankStarted | AttemptStarted) and event.trial == trial:
            is_first = not isinstance(event, RankStarted) or event.rank == 0
            found = event.worker if is_first else found
    return found


def _failed(run_id: str, snapshot: RunSnapshot) -> RunFailedError:
    failure = snapshot.failure
    if failure is None:
        return RunFailedError(f"run {run_id} failed: {snapshot.reason}", run_id=run_id)
    is_trial = snapshot.failed_trial is not None and not snapshot.can.has_ranks
    places = [f"{snapshot.nouns.trial} {snapshot.failed_trial}"] if is_trial else []
    stacks = ""
    if failure.kind == "hang":  # its sentence has the lines of all ranks
        if snapshot.hang is not None and snapshot.hang.stacks_file:
            stacks = f"; stacks of all ranks: {run_dir(run_id) / snapshot.hang.stacks_file}"
    elif failure.line is not None:
        places.append(f"at line {failure.line} of the cell")
    where = f"{', '.join(places)}: " if places else ""
    return RunFailedError(
        f"{where}{failure.type_name}: {failure.message}{stacks} "
        f"({snapshot.reason}; `%runs logs {run_id}` has all output)",
        run_id=run_id,
        trial=snapshot.failed_trial,
        traceback=failure.traceback,
        line=failure.line,
    )
