"""``jupyter_ddl.fit``: one fit on the cluster, from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from jupyter_ddl.cell.source import globals_of_caller
from jupyter_ddl.cell.work_folder import work_folder
from jupyter_ddl.client.run_names import find_run
from jupyter_ddl.protocol.snapshot import RunSnapshot
from jupyter_ddl.sklearn_fit.context import distributed_fits
from jupyter_ddl.sklearn_fit.exchange import FitSetting
from jupyter_ddl.verbs.fit import Fit

__all__ = ["fit"]

E = TypeVar("E")


def fit(
    search: E,
    X: Any,  # noqa: N803 - scikit-learn's name
    y: Any = None,
    *,
    options: Mapping[str, Any] | None = None,
    on_snapshot: Callable[[RunSnapshot], Any] | None = None,
    **fit_params: Any,
) -> E:
    """Fit a search, or any estimator that fits in parallel, on the cluster.

    Parameters
    ----------
    search : estimator
        ``GridSearchCV``, ``RandomizedSearchCV``, the halving searches, a forest, a stack …
    X, y
        What its ``fit`` is given: arrays, sparse matrices, data frames, lists of texts.
    options : mapping, optional
        Options of ``%%distribute fit`` with ``_`` for ``-`` (``resume``, ``max_parallel``,
        ``memory_bytes`` …; sizes in bytes, durations in seconds).
    on_snapshot : callable, optional
        Gets snapshots of the run while the call waits.
    **fit_params
        Passed to ``fit`` (``groups``, ``sample_weight`` …).

    Returns
    -------
    estimator
        ``search``, fitted.

    Raises
    ------
    FitError
        It can't be distributed as it is; nothing is left running.
    FitStoppedError
        It was stopped; a search has the results of the candidates that were finished.
    Exception
        What scikit-learn or the estimators raise.
    """
    verb, chosen = Fit.from_python(options or {})
    if chosen.resume is not None:
        chosen = msgspec.structs.replace(chosen, resume=find_run(chosen.resume))
    setting = FitSetting(
        namespace=globals_of_caller(),
        folder=work_folder(),
        verb=verb,
        options=chosen,
        on_snapshot=None if on_snapshot is None else lambda encoded: on_snapshot(encoded.decode()),
    )
    with distributed_fits(setting):
        target: Any = search
        if y is None:
            target.fit(X, **fit_params)
        else:
            target.fit(X, y, **fit_params)
    return search
