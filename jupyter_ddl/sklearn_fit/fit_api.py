"""``jupyter_ddl.fit``: one fit on the cluster, from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from jupyter_ddl.cell.fit_options import FitOptions
from jupyter_ddl.cell.source import globals_of_caller
from jupyter_ddl.client.history import find_run
from jupyter_ddl.errors import OptionError
from jupyter_ddl.protocol.snapshot import RunSnapshot
from jupyter_ddl.sklearn_fit.context import distributed_fits
from jupyter_ddl.sklearn_fit.exchange import FitSetting

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
    chosen = _chosen(options or {})
    setting = FitSetting(
        namespace=globals_of_caller(),
        folder=Path.cwd(),
        name=chosen.name,
        seed=chosen.seed,
        timeout_s=chosen.timeout_s,
        max_parallel=chosen.max_parallel,
        memory_bytes=chosen.memory_bytes,
        capture_limit_bytes=chosen.capture_limit_bytes,
        env_check=chosen.env_check,
        resume=None if chosen.resume is None else find_run(chosen.resume),
        on_snapshot=None if on_snapshot is None else lambda encoded: on_snapshot(encoded.decode()),
    )
    with distributed_fits(setting):
        target: Any = search
        if y is None:
            target.fit(X, **fit_params)
        else:
            target.fit(X, y, **fit_params)
    return search


def _chosen(options: Mapping[str, Any]) -> FitOptions:
    known = [name for name in FitOptions.__dataclass_fields__ if name != "out"]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise OptionError(f"there is no option {unknown[0]!r}; known are {', '.join(known)}")
    return FitOptions(**options)
