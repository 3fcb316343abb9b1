"""While a cell runs, joblib's parallel calls go to the cluster; afterwards all is as before.

Scikit-learn makes its searches, cross-validations and ensembles through ``joblib.Parallel``.
Within :func:`distributed_fits` a backend of ours is the default one, and calls that choose it are
taken as a whole, so that it can be seen what they have in common.  A call that chooses another
backend, needs shared memory or comes from another thread is joblib's own business.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jupyter_ddl.cell.capture import capture
from jupyter_ddl.client.copies import here
from jupyter_ddl.errors import FitError, FitStoppedError
from jupyter_ddl.sklearn_fit.batches import Call, calls_batch
from jupyter_ddl.sklearn_fit.dask_work import DaskWork, computed, dask_waits
from jupyter_ddl.sklearn_fit.exchange import FitRun, FitSetting, StoppedError
from jupyter_ddl.sklearn_fit.outcomes import Outcomes, SearchRecord, without_stopped
from jupyter_ddl.sklearn_fit.scores import is_scoring, score_batch

__all__ = ["distributed_fits"]

_UNASKED = -1_000_000
"""What joblib takes for ``n_jobs`` where it is left out; one job, as everywhere."""
_TRIED_S = 1.0
_LONG_S = 2.0
"""Calls that nobody asked to make in parallel are made here; after ``_TRIED_S``, those that are
left go to the cluster if they would take longer than this."""


@contextlib.contextmanager
def distributed_fits(setting: FitSetting) -> Iterator[FitRun]:
    """Within this, fits of this thread run on the cluster.

    Raises
    ------
    FitError
        Scikit-learn is not installed.
    FitStoppedError
        The run was stopped.
    """
    joblib = _joblib()
    run = FitRun(setting)
    fits, work = _Fits(run, setting), DaskWork(run)
    with contextlib.ExitStack() as stack:
        stack.enter_context(joblib.parallel_config(backend=_backend_class()(), n_jobs=_UNASKED))
        stack.enter_context(_replaced(joblib.Parallel, "__call__", fits.parallel))
        stack.enter_context(_replaced(_validation(), "indexable", _of_computed))
        stack.enter_context(_replaced(_base_search(), "fit", fits.search))
        stack.enter_context(_replaced(_base_search(), "_format_results", without_stopped))
        if (waits := dask_waits()) is not None:
            work.begin()
            stack.callback(work.leave)
            stack.enter_context(_replaced(waits, "sync", work.sync))
        try:
            yield run
            work.close()
        except FitStoppedError:
            run.close("cancelled")
            raise
        except KeyboardInterrupt:
            run.close("cancelled", "the cell was interrupted")
            raise
        except BaseException as error:
            run.close("failed", f"the cell raised {type(error).__name__}: {str(error)[:200]}")
            raise
        run.close("complete")


def _joblib() -> Any:
    try:
        import joblib
        import sklearn.model_selection  # noqa: F401
    except ImportError as error:
        raise FitError(
            f"fits need scikit-learn, and importing it failed: {error}; "
            f"`pip install 'jupyter_ddl[sklearn]'`"
        ) from error
    return joblib


def _base_search() -> Any:
    from sklearn.model_selection._search import BaseSearchCV

    return BaseSearchCV


def _validation() -> Any:
    from sklearn.model_selection import _validation

    return _validation


def _of_computed(indexable: Any) -> Any:
    """What takes the place of the function that cross-validations first give their data to."""

    @functools.wraps(indexable)
    def of_computed(*data: Any) -> Any:
        return indexable(*computed(*data))

    return of_computed


@functools.cache
def _backend_class() -> Any:
    from joblib.parallel import ParallelBackendBase

    class ClusterBackend(ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
        """Marks the calls that are ours; it never sees one of their functions."""

        supports_sharedmem = False
        default_n_jobs = _UNASKED

        def effective_n_jobs(self, n_jobs: int | None) -> int:
            if n_jobs is None or n_jobs in (1, _UNASKED):
                return 1
            return max(2, _n_slots()) if n_jobs < 0 else n_jobs

        def submit(self, func: Any, callback: Any = None) -> Any:
            raise NotImplementedError("calls are taken as a whole")

        def get_nested_backend(self) -> Any:
            from joblib.parallel import SequentialBackend

            return SequentialBackend(nesting_level=1), None

    return ClusterBackend


def _n_slots() -> int:
    from jupyter_ddl.client.session import session
    from jupyter_ddl.protocol.replies import StatusResult
    from jupyter_ddl.protocol.requests import GetStatus

    name = session().current
    if name is None:
        return 2
    with contextlib.suppress(Exception):
        answer = session().ask(name, GetStatus(), 5.0)
        if isinstance(answer, StatusResult):
            return sum(worker.n_slots for worker in answer.status.workers)
    return 2


def _module_of(calls: Sequence[Call]) -> str:
    function = calls[0][0]
    return str(getattr(getattr(function, "function", function), "__module__", ""))


def _is_validation(calls: Sequence[Call]) -> bool:
    """Whether these are fits on folds, which go to the cluster whatever their ``n_jobs``."""
    return _module_of(calls).startswith("sklearn.model_selection.")


def _may_go(calls: Sequence[Call]) -> bool:
    """Whether calls may be made elsewhere unasked: they change nothing that they are given.

    Of scikit-learn's own, only unions fit the very transformers that they were given.
    """
    module = _module_of(calls)
    return module.startswith("sklearn.") and module != "sklearn.pipeline"


def _while_short(calls: Sequence[Call]) -> Iterator[Call]:
    """The calls one by one, until it is seen that those which are left would take long."""
    began = time.monotonic()
    for number, call in enumerate(calls):
        spent_s = time.monotonic() - began
        left_s = spent_s / max(1, number) * (len(calls) - number)
        if number and spent_s > _TRIED_S and left_s > _LONG_S:
            return
        yield call


@contextlib.contextmanager
def _replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    original = owner.__dict__[name]
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


class _Fits:
    """What takes the place of ``joblib.Parallel.__call__`` and of a search's ``fit``."""

    def __init__(self, run: FitRun, setting: FitSetting) -> None:
        self._run = run
        self._setting = setting
        self._searches: list[SearchRecord] = []

    def parallel(self, original: Any) -> Any:
        @functools.wraps(original)
        def call(parallel: Any, iterable: Any) -> Any:
            __tracebackhide__ = True
            if not isinstance(parallel._backend, _backend_class()) or parallel.return_generator:
                return original(parallel, iterable)
            calls = list(iterable)
            if not calls:
                return []
            if is_scoring(calls):
                return self._executed(score_batch(calls))
            done: list[Any] = []
            if parallel.n_jobs in (1, _UNASKED) and not _is_validation(calls):
                is_free = parallel.n_jobs == _UNASKED and _may_go(calls)
                done = original(parallel, _while_short(calls) if is_free else calls)
            if len(done) == len(calls):
                return done
            # What a search does in parallel beside its scoring is its refit.
            is_refit = bool(self._searches)
            left = calls[len(done) :]
            batch = calls_batch(left, self._setting.namespace, is_refit=is_refit)
            batch.is_verbose |= parallel.verbose > 0
            return done + self._executed(batch)

        return call

    def _executed(self, batch: Any) -> list[Any]:
        __tracebackhide__ = True
        record = self._searches[-1] if self._searches else None
        outcomes = Outcomes(batch, self._file_of_value)
        try:
            done = self._run.execute(batch, outcomes.show)
        except StoppedError as stopped:
            if record is not None:
                record.add_part(batch, stopped.done, outcomes)
            raise
        values = outcomes.values(done)
        if record is not None:
            record.add(batch, values)
        return values

    def _file_of_value(self, name: str) -> Path:
        run = self._run.run
        return here("" if run is None else run.id, f"values/{name}")

    def search(self, original: Any) -> Any:
        @functools.wraps(original)
        def fit(search: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            record = SearchRecord(search)
            self._searches.append(record)
            try:
                kept = dict(zip(kwargs, computed(*kwargs.values()), strict=True))
                return original(search, *computed(*args), **kept)
            except StoppedError:
                record.leave()
                raise
            except TypeError as error:
                if "pickle" in str(error):
                    # Scikit-learn could not clone it; the same, said with the name of the culprit.
                    given = search.get_params(deep=False).items()
                    cloned = {n: v for n, v in given if n.startswith(("estimator", "param"))}
                    capture(cloned, self._setting.namespace)
                raise
            finally:
                self._searches.pop()

        return fit
