"""Executes the nodes and units of fit assignments in a rank."""

from __future__ import annotations

import contextlib
import pickle
import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.protocol.assignment import Assignment, TrialAssignment
from jupyter_ddl.protocol.events import AttemptFinished, Failure
from jupyter_ddl.protocol.fit import FitItem, FitPrefix, FitWork, node_file
from jupyter_ddl.protocol.fit_results import NodeResult, UnitResult
from jupyter_ddl.ranks.fit.node_store import NodeStore, StoredNode
from jupyter_ddl.ranks.fit.pipelines import CutPipeline
from jupyter_ddl.ranks.fit.step_cache import FITTED
from jupyter_ddl.ranks.fit.table import LoadedTable
from jupyter_ddl.ranks.fit.units import cut, run_call, run_score
from jupyter_ddl.ranks.log import RankLog
from jupyter_ddl.ranks.program import seed_everything
from jupyter_ddl.ranks.settings import RankSettings
from jupyter_ddl.ranks.stopping import TrialStopped
from jupyter_ddl.ranks.tracebacks import failure_of
from jupyter_ddl.ranks.work_folder import coming_back, enter_folder
from jupyter_ddl.store.atomic import replacing
from jupyter_ddl.store.blobs import BlobMissingError

__all__ = ["FitRunner"]

_INLINE_BYTES = 16 * 1024
"""A larger outcome goes to a file."""
_SHOWN_BYTES = 8 * 1024
"""Of what a unit prints, so much is shown in the cell; its log has all."""


class FitRunner:
    """Used on the rank's main thread."""

    def __init__(self) -> None:
        self._table: LoadedTable | None = None
        self._settings = RankSettings()

    def run(self, trial: TrialAssignment, assignment: Assignment, log: RankLog) -> AttemptFinished:
        """One attempt at a node or unit.  Raises only :class:`TrialStopped`."""
        with coming_back():
            return self._attempt(trial, assignment, log)

    def _attempt(
        self, trial: TrialAssignment, assignment: Assignment, log: RankLog
    ) -> AttemptFinished:
        work = assignment.fit
        started = time.perf_counter()
        result: NodeResult | UnitResult | None = None
        failure: Failure | None = None
        evicted = False
        try:
            if work is None:
                raise ValueError("this assignment is not a fit")
            enter_folder(assignment.folder)
            result = self._execute(trial, assignment, work, log)
        except TrialStopped:
            raise
        except BlobMissingError as error:
            failure, evicted = failure_of(error, "", kind="blob"), True
        except BaseException as error:  # noqa: BLE001 - the rank's wall around the user's code
            failure = failure_of(error, "")
        return AttemptFinished(
            trial=trial.trial,
            attempt=trial.attempt,
            outcome="evicted" if evicted else "complete" if failure is None else "failed",
            at_s=time.time(),
            duration_s=time.perf_counter() - started,
            failure=failure,
            log_end=log.position(),
            result=b"" if result is None else msgspec.msgpack.encode(result),
        )

    def _execute(
        self, trial: TrialAssignment, assignment: Assignment, work: FitWork, log: RankLog
    ) -> NodeResult | UnitResult:
        import joblib

        began = log.position()
        item = next(item for item in work.items if item.number == trial.trial)
        dirs = tuple(Path(directory) for directory in assignment.blob_dirs)
        table = self._loaded(work.table, dirs, Path(assignment.run_dir))
        kept = _KeptNodes(
            item, assignment.run_id, work, table, NodeStore(dirs, Path(work.spill_dir))
        )
        seed_everything(trial.seed)
        # What fits in parallel inside of this fit shares the rank's own CPUs.
        with joblib.parallel_config(backend="threading", n_jobs=1):
            if item.prefix is not None:
                return self._node(item, work, table, kept)
            if table.table.kind == "calls":
                result = run_call(table, item.fold)
            else:
                deepest = kept.deepest()
                steps = None if deepest is None else (deepest[0].n_steps, deepest[1])
                result = run_score(table, item.candidate, item.fold, steps)
        text = log.since(began, _SHOWN_BYTES) if table.table.is_verbose else ""
        return _stored(_with_text(result, text), assignment, trial)

    def _loaded(self, digest: str, dirs: tuple[Path, ...], run_dir: Path) -> LoadedTable:
        if self._table is None or self._table.digest != digest:
            self._table = None  # the former one goes before the next one comes
            self._table = LoadedTable(digest, dirs, run_dir, self._settings)
            self._settings.print_problems()
        self._table.enter()
        return self._table

    # -- prefixes --------------------------------------------------------------------------------

    def _node(
        self, item: FitItem, work: FitWork, table: LoadedTable, kept: _KeptNodes
    ) -> NodeResult:
        number = item.prefix or 0
        started = time.perf_counter()
        before = _random_state()
        try:
            outputs = self._outputs(table.table.prefixes[number], item, table, kept)
        except TrialStopped:
            raise
        except Exception:  # noqa: BLE001 - every user of this prefix meets the same, and tells of it
            return NodeResult("nowhere", reason="failed")
        seconds = time.perf_counter() - started
        if _random_state() != before:
            # Each of its users would have drawn other numbers.
            return NodeResult("nowhere", duration_s=seconds, reason="random")
        try:
            where, size = kept.store.put(
                kept.name_of(number),
                outputs,
                seconds=seconds,
                n_users=item.n_users,
                memory_left_bytes=work.memory_left_bytes,
            )
        except TrialStopped:
            raise
        except Exception:  # noqa: BLE001 - an output that can't be pickled is shared with nobody
            return NodeResult("nowhere", duration_s=seconds, reason="failed")
        reason = "bound" if where == "nowhere" else ""
        return NodeResult(where, size, time.perf_counter() - started, reason)  # type: ignore[arg-type]

    def _outputs(
        self, prefix: FitPrefix, item: FitItem, table: LoadedTable, kept: _KeptNodes
    ) -> dict[str, Any]:
        from sklearn.base import clone
        from sklearn.utils.validation import _check_method_params

        values = table.values
        train, test = values["folds"][item.fold]
        pipeline = clone(values["estimator"])
        parameters = values["candidates"][prefix.candidate]
        if parameters is not None:
            pipeline.set_params(**clone(parameters, safe=False))
        rows, y = cut(pipeline, values["X"], values["y"], train)
        test_rows, _ = cut(pipeline, values["X"], values["y"], test, train)
        cutting = CutPipeline(
            pipeline, prefix, kept.deepest(), kept.parts_of(prefix), kept.inside_of(prefix)
        )
        names = {name for name, _ in cutting.steps}
        params = {
            name: value
            for name, value in (values["arguments"].get("fit_params") or {}).items()
            if name.partition("__")[0] in names
        }
        params = _check_method_params(values["X"], params=params, indices=train)
        with _settings(values["function"]):
            outputs = cutting.run(
                (rows, y),
                test_rows,
                params,
                with_train=bool(values["arguments"].get("return_train_score")),
            )
            if table.table.keep_fitted:
                outputs[FITTED] = cutting.fitted()
        return outputs


class _KeptNodes:
    """The outputs of prefixes that one item of work may begin with."""

    def __init__(
        self, item: FitItem, run_id: str, work: FitWork, table: LoadedTable, store: NodeStore
    ) -> None:
        self.store = store
        self._item = item
        self._run_id = run_id
        self._batch = work.batch
        self._prefixes = table.table.prefixes

    def name_of(self, index: int) -> str:
        """The file of a prefix's output on the item's fold."""
        return node_file(self._run_id, self._batch, index, self._item.fold)

    def deepest(self) -> tuple[FitPrefix, StoredNode] | None:
        """The longest kept prefix of whole steps."""
        known = [(self._prefixes[index], index) for index in self._item.have]
        whole = sorted((p.n_steps, index) for p, index in known if not p.path)
        return self._first_of(index for _, index in reversed(whole))

    def parts_of(self, prefix: FitPrefix) -> dict[int, StoredNode]:
        """Kept parts of the step that a prefix ends with."""
        found = {}
        for index in set(prefix.parts) & set(self._item.have):
            node = self.store.open(self.name_of(index))
            if node is not None:
                found[self._prefixes[index].path[0]] = node
        return found

    def inside_of(self, prefix: FitPrefix) -> tuple[FitPrefix, StoredNode] | None:
        """Kept steps of the part that a prefix goes on in."""
        if not prefix.path:
            return None
        return self._first_of(index for index in self._item.have if self._prefixes[index].path)

    def _first_of(self, indices: Iterable[int]) -> tuple[FitPrefix, StoredNode] | None:
        for index in indices:
            node = self.store.open(self.name_of(index))
            if node is not None:
                return self._prefixes[index], node
        return None


def _random_state() -> tuple[Any, ...]:
    """The state of the global generators: a fit that changes it draws from them."""
    import numpy as np

    legacy: Any = np.random.get_state()
    return legacy[1].tobytes(), legacy[2:], hash(random.getstate())


@contextlib.contextmanager
def _settings(function: Any) -> Any:
    """The notebook's settings of scikit-learn, as the call itself would have them."""
    from sklearn import config_context

    with config_context(**getattr(function, "config", {})):
        yield


def _with_text(result: UnitResult, text: str) -> UnitResult:
    """The outcome behind what was printed, which can so be read alone."""
    return msgspec.structs.replace(result, outcome=pickle.dumps(text) + result.outcome)


def _stored(result: UnitResult, assignment: Assignment, trial: TrialAssignment) -> UnitResult:
    if len(result.outcome) <= _INLINE_BYTES:
        return result
    # The assignment's name tells sessions of the run apart; numbers start over in each of them.
    name = f"unit-{assignment.assignment_id}-{trial.trial}.pkl"
    path = Path(assignment.run_dir) / "values" / name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(path, is_synced=True) as file:  # the record says that it is there
        file.write(result.outcome)
    return msgspec.structs.replace(result, outcome=b"", file=name)
