"""The run of one cell: opened with its first fit, fed batch by batch, closed with the cell."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.cell.draft import CellContext
from jupyter_ddl.cell.options import CellOptions
from jupyter_ddl.cell.settings import read_settings
from jupyter_ddl.client.environment import check_before
from jupyter_ddl.client.folder import check_resumed
from jupyter_ddl.client.link import Mailbox
from jupyter_ddl.client.prices import check_budget, check_prices, priced
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.session import session
from jupyter_ddl.client.submit import collect, new_run_id
from jupyter_ddl.client.waiting import OnSnapshot, OnTick, PauseTeller, wait_for_run
from jupyter_ddl.errors import (
    ClusterError,
    FitStoppedError,
    JupyterDDLError,
    ProtocolError,
    RunNotFoundError,
    SpecError,
)
from jupyter_ddl.protocol.assignment import StopWhen
from jupyter_ddl.protocol.facts import EnvironmentStatus
from jupyter_ddl.protocol.fit import FeedFit, FinishFit, FitEnding, TakeFit, TellFit
from jupyter_ddl.protocol.fit_results import FitResults, TakenUnit
from jupyter_ddl.protocol.prices import Budget
from jupyter_ddl.protocol.program import blobs_of
from jupyter_ddl.protocol.requests import ResumeRun, StopRunRequest, SubmitRun
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.sklearn_fit.batches import Batch, sealed
from jupyter_ddl.store.blobs import put_blob
from jupyter_ddl.store.paths import blob_dirs
from jupyter_ddl.store.processes import this_process
from jupyter_ddl.verbs.fit import Fit

__all__ = ["DaskProgress", "FitRun", "FitSetting", "OnUnits", "StoppedError"]

OnUnits = Callable[[Sequence[TakenUnit]], Any]

_TAKE_S = 0.25
_UNITS_PER_PART = 2_000
_MAX_REVIVALS = 5
_WAIT_S = 0.2
_WARM = ("sklearn.model_selection", "sklearn.pipeline", "sklearn.compose")


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSetting:
    """What the cell, or the caller of ``fit``, has chosen."""

    namespace: Mapping[str, Any]
    """The notebook's globals: the very dict, because its functions refer to it."""
    folder: Path
    """Modules below it travel."""
    verb: Fit = field(default_factory=Fit)
    options: CellOptions = field(default_factory=CellOptions)
    """``resume`` is the whole id of a run."""
    cell_number: int | None = None
    line: str = ""
    cell: str = ""
    notebook: Path | None = None
    on_phase: Callable[[str], None] = lambda _: None
    on_snapshot: OnSnapshot | None = None
    on_tick: Callable[[], Any] | None = None
    on_run: Callable[[Run], Any] | None = None


@dataclass(frozen=True, slots=True)
class DaskProgress:
    """How plain Dask work of the cell gets on."""

    name: str
    step: int
    metrics: dict[str, float]
    is_over: bool = False


class StoppedError(FitStoppedError):
    """The run was stopped while a batch was computed.

    Attributes
    ----------
    batch : Batch
    done : dict of int to TakenUnit
        Units that had finished.
    """

    def __init__(self, message: str, batch: Batch, done: dict[int, TakenUnit]) -> None:
        super().__init__(message)
        self.batch = batch
        self.done = done


class FitRun:
    """Used on the thread that runs the cell."""

    def __init__(self, setting: FitSetting) -> None:
        self._setting = setting
        self._run: Run | None = None
        self._cluster = ""
        self._mailbox: Mailbox | None = None
        self._on_snapshot: OnSnapshot
        self._on_tick: OnTick
        self._n_batches = 0
        self._n_candidates = 0
        self._n_interrupts = 0
        self._cell_id = secrets.token_hex(8)
        self.is_stopped = False

    @property
    def run(self) -> Run | None:
        """The run; None as long as the cell has fitted nothing."""
        return self._run

    # -- batches ---------------------------------------------------------------------------------

    def execute(self, batch: Batch, on_units: OnUnits = lambda _: None) -> dict[int, TakenUnit]:
        """Have a batch computed; outcomes by unit, up to the first one that raises.

        Parameters
        ----------
        on_units : callable
            Given outcomes as they come in.

        Raises
        ------
        StoppedError
            The run was stopped; what is done comes with it.
        CaptureError
            Something of the batch can't travel; nothing was sent.
        """
        setting = self._setting
        table, blobs, modules = sealed(
            batch, setting.namespace, setting.folder, setting.options.capture_limit_bytes
        )
        run = self._open()
        directories = blob_dirs()
        for digest, data in blobs:
            put_blob(data, directories, digest)
        digest = put_blob(msgspec.msgpack.encode(table), directories)
        named = (digest, *blobs_of(table))
        session().hand_over(self._cluster, named, setting.on_phase)
        self._n_batches += 1
        parts = [
            msgspec.structs.replace(part, first_candidate=self._n_candidates, cell_id=self._cell_id)
            for part in _parts(run.id, self._n_batches, digest, batch, _imports(modules))
        ]
        if self._n_batches == 1:
            told = (*parts[0].notes, *read_settings().notes)
            parts[0] = msgspec.structs.replace(parts[0], notes=told)
        self._n_candidates += len(batch.candidates)
        return self._exchange(run, batch, parts, on_units)

    def _exchange(
        self, run: Run, batch: Batch, parts: list[FeedFit], on_units: OnUnits
    ) -> dict[int, TakenUnit]:
        done: dict[int, TakenUnit] = {}
        number = parts[0].batch
        n_lost = 0
        is_fed, n_taken = False, 0
        n_wanted = len(batch.units)

        def has_all() -> bool:
            return all(unit in done for unit in range(n_wanted))

        while True:
            try:
                if not is_fed:
                    for part in parts:
                        self._ask(part)
                    is_fed, n_taken = True, 0
                if has_all():
                    # Answered once it is on record; a new controller is asked for that anew.
                    self._ask(FinishFit(run.id, batch=number))
                    return done
                results = self._ask(TakeFit(run.id, number, n_taken, _TAKE_S))
                if not isinstance(results, FitResults):
                    raise ProtocolError(f"a fit was answered with {type(results).__name__}")
                n_taken += len(results.units)
                new = [unit for unit in results.units if unit.unit not in done]
                done |= {unit.unit: unit for unit in new}
                on_units(new)
                self._show()
                if results.is_stopped:
                    raise self._stopped(batch, done, results.reason)
                # The first unit that raises does so in the notebook: none behind it is waited for.
                n_wanted = min([n_wanted, *(u.unit + 1 for u in new if self._ends(u, batch))])
            except KeyboardInterrupt:
                self._interrupted(run)
            except RunNotFoundError:
                if has_all():
                    return done
                raise self._stopped(batch, done, "") from None
            except ClusterError:
                n_lost += 1
                if n_lost > _MAX_REVIVALS:
                    if has_all():
                        return done
                    raise
                time.sleep(_WAIT_S * n_lost)  # a killed one is not gone at once
                # A new controller goes on with the run; it is told again what it had been told.
                with contextlib.suppress(ClusterError):
                    self._revive(run)
                is_fed = False
            except JupyterDDLError:
                if has_all():  # the run was stopped meanwhile: the cell needs nothing more of it
                    return done
                raise

    @staticmethod
    def _ends(unit: TakenUnit, batch: Batch) -> bool:
        """Whether what has become of a unit raises in the notebook, so that others are in vain."""
        return unit.has_raised or (
            unit.lost is not None and (batch.kind != "score" or batch.error_score == "raise")
        )

    def _stopped(self, batch: Batch, done: dict[int, TakenUnit], reason: str) -> StoppedError:
        self.is_stopped = True
        run_id = "" if self._run is None else self._run.id
        why = f" ({reason})" if reason and reason != "stopped by user" else ""
        return StoppedError(
            f"the fit was stopped{why}: {len(done):,} of {len(batch.units):,} fits are done; "
            f"`--resume {run_id}` computes only the others",
            batch,
            done,
        )

    def _interrupted(self, run: Run) -> None:
        """The first interrupt lets running fits end, the second ends them, the third leaves."""
        self._n_interrupts += 1
        if self._n_interrupts > 2:
            raise KeyboardInterrupt
        when: StopWhen = "next_report" if self._n_interrupts == 1 else "now"
        with contextlib.suppress(JupyterDDLError):
            session().ask(self._cluster, StopRunRequest(run.id, when))

    def _ask(self, body: Any) -> Any:
        return session().ask(self._cluster, body)

    def _revive(self, run: Run) -> None:
        session().ensure(self._setting.on_phase)
        with contextlib.suppress(JupyterDDLError):
            self._ask(ResumeRun(run.id))
        if self._mailbox is not None:
            self._mailbox = session().watch(self._cluster, run.id)

    # -- plain Dask work -------------------------------------------------------------------------

    def add_candidate(self) -> int:
        """A place among the candidates for what is told of; returns how many came before."""
        self._n_candidates += 1
        return self._n_candidates - 1

    def tell(self, place: int, work: DaskProgress) -> None:
        """Put on record how plain Dask work gets on, and show it.

        Raises
        ------
        FitStoppedError
            The run was stopped.
        """
        run = self._open()
        told = TellFit(run.id, place, {"dask": work.name}, work.step, work.metrics, work.is_over)
        try:
            self._ask(told)
        except (RunNotFoundError, SpecError):
            self.is_stopped = True
            raise FitStoppedError(
                f"the fit was stopped: {work.step:,} of {int(work.metrics['tasks']):,} Dask tasks "
                f"were done"
            ) from None
        self._show()

    # -- the run ---------------------------------------------------------------------------------

    def _open(self) -> Run:
        if self._run is not None:
            return self._run
        budget = self._budget()  # before a cluster is started for a run that is refused
        self._cluster = session().ensure(self._setting.on_phase)
        run_id = self._setting.options.resume or new_run_id()
        environment = check_before(
            self._cluster, ("sklearn",), self._setting.folder, self._setting.options.env_check
        )
        if self._setting.options.resume is None:
            self._ask(SubmitRun(self._spec(run_id, environment)))
        else:
            check_resumed(Run(run_id).spec)
            self._ask(ResumeRun(run_id, budget))
        self._run = Run(run_id)
        if self._setting.on_run is not None:
            self._setting.on_run(self._run)
        pauses = PauseTeller(run_id)
        self._on_snapshot = self._setting.on_snapshot or pauses.snapshot
        self._on_tick = self._setting.on_tick or pauses.tick
        self._mailbox = session().watch(self._cluster, run_id)
        return self._run

    def _budget(self) -> Budget | None:
        """What the run may cost; refuses what no run of fits can have."""
        options = self._setting.options
        if options.resume is not None:
            run = Run(options.resume)
            check_budget(run.spec, run._fold(), options.budget)
        elif options.budget is not None:
            check_prices(options.budget)
        return options.budget

    def _spec(self, run_id: str, environment: EnvironmentStatus | None) -> RunSpec:
        setting = self._setting
        origin = collect(setting.line, setting.cell, setting.notebook, ("sklearn",))
        verb = msgspec.structs.replace(setting.verb, client=this_process())
        context = CellContext(setting.cell_number, setting.folder)
        draft = verb.compile(setting.cell, setting.namespace, context, setting.options)
        provenance = msgspec.structs.replace(origin, environment=environment)
        return priced(draft.submitted(run_id, self._cluster, provenance))

    def close(self, state: FitEnding, reason: str = "") -> None:
        """The cell is over; returns when that is on record."""
        if self._run is None:
            return
        with contextlib.suppress(JupyterDDLError):
            if not self.is_stopped:
                self._finish(FinishFit(self._run.id, state, reason))
            wait_for_run(session(), self._run.id, 60.0, self._on_snapshot)
        if self._mailbox is not None:
            session().unwatch(self._cluster, self._run.id, self._mailbox)

    def _finish(self, asked: FinishFit) -> None:
        """End the run; answered once that is on record, or else the next controller is told."""
        for n_lost in range(1, _MAX_REVIVALS + 1):
            try:
                self._ask(asked)
                return
            except RunNotFoundError:
                return  # it has ended
            except ClusterError:
                time.sleep(_WAIT_S * n_lost)

    def _show(self) -> None:
        if self._mailbox is None:
            return
        snapshot = self._mailbox.take(0.0)
        if snapshot is not None:
            self._on_snapshot(snapshot)
        else:
            self._on_tick()


def _imports(modules: frozenset[str]) -> tuple[str, ...]:
    """Modules that zygotes import for all ranks to come."""
    found = sorted(name for name in modules if name.partition(".")[0] in ("sklearn", "scipy"))
    return (*_WARM, *found)


def _parts(
    run_id: str, number: int, table: str, batch: Batch, imports: tuple[str, ...]
) -> Iterator[FeedFit]:
    """The batch in pieces that fit into a request."""
    starts = range(0, max(1, len(batch.units)), _UNITS_PER_PART)
    for part, start in enumerate(starts):
        is_first = part == 0
        yield FeedFit(
            run_id=run_id,
            batch=number,
            part=part,
            table=table,
            candidates=batch.candidates if is_first else (),
            nodes=batch.nodes if is_first else (),
            units=batch.units[start : start + _UNITS_PER_PART],
            notes=batch.notes if is_first else (),
            imports=imports if is_first else (),
            is_last=start == starts[-1],
        )
