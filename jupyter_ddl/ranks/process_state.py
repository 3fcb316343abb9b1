"""What trials of one process share, put back after each of them."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import warnings
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from jupyter_ddl.ranks.settings import RankSettings

__all__ = ["ProcessState", "empty_namespace"]

_COLLECT_AFTER_S = 1.0
"""Only behind a trial of this length is a full garbage collection cheap in comparison."""
_COMPARE_AFTER_S = 0.005
"""Likewise for looking through the settings of all libraries, which takes 0.1 ms."""
_KEPT_LONGEST = (FunctionType, ModuleType, type)


class ProcessState:
    """The process as the first trial finds it: directory, environment, arguments, settings."""

    def __init__(self, settings: RankSettings) -> None:
        self._main = sys.modules["__main__"]
        self._cwd = os.getcwd()  # noqa: PTH109 - a Path would cost 3 µs per trial
        self._environ = _environment().copy()
        self._path = sys.path.copy()
        self._argv = sys.argv.copy()
        self._streams = sys.stdout, sys.stderr
        self._flush_c = ctypes.CDLL(None).fflush
        self._warnings: warnings.catch_warnings[None] | None = None
        self._steps = (
            self._restore_streams,
            self._flush,
            self._restore_warnings,
            settings.complete,
            self._restore_main,
            self._restore_path,
            self._restore_environment,
            self._restore_directory,
            self._close_figures,
        )
        self._long_steps = (*self._steps, settings.restore)

    def enter(self) -> None:
        """Begin a trial: what it warns about is shown anew."""
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()

    def restoring_steps(self, duration_s: float) -> tuple[Callable[[], None], ...]:
        """What ends a trial that took ``duration_s``, in this order.

        Each step is worth taking if another one fails.
        """
        return self._long_steps if duration_s > _COMPARE_AFTER_S else self._steps

    def collect(self, duration_s: float) -> None:
        """Free what only a collection frees, behind a trial that took ``duration_s``."""
        if duration_s > _COLLECT_AFTER_S:
            gc.collect()

    def _restore_streams(self) -> None:
        current = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = self._streams
        for stream, original in zip(current, self._streams, strict=True):
            if stream is not original and stream is not None and not stream.closed:
                stream.flush()

    def _flush(self) -> None:
        """Send on everything that was printed, by Python and by C libraries."""
        for stream in self._streams:
            stream.flush()
        self._flush_c(None)

    def _restore_warnings(self) -> None:
        if self._warnings is not None:
            warned, self._warnings = self._warnings, None
            warned.__exit__(None, None, None)

    def _restore_main(self) -> None:
        sys.modules["__main__"] = self._main

    def _restore_path(self) -> None:
        if sys.path != self._path:
            sys.path[:] = self._path
        if sys.argv != self._argv:
            sys.argv[:] = self._argv

    def _close_figures(self) -> None:
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is not None:
            pyplot.close("all")

    def _restore_environment(self) -> None:
        current = _environment()
        if current == self._environ:
            return
        current = current.copy()
        for name in current.keys() - self._environ.keys():
            del os.environb[name]
        for name, value in self._environ.items():
            if current.get(name) != value:
                os.environb[name] = value

    def _restore_directory(self) -> None:
        try:
            moved = os.getcwd() != self._cwd  # noqa: PTH109
        except FileNotFoundError:  # the trial removed the directory that it was in
            moved = True
        if moved:
            os.chdir(self._cwd)


def _environment() -> dict[bytes, bytes]:
    """What ``os.environb`` holds, not a copy: one of forty variables takes 10 µs for each trial."""
    data: dict[bytes, bytes] = os.environb._data  # type: ignore[attr-defined]
    return data


def empty_namespace(namespace: dict[str, Any]) -> None:
    """Drop a trial's values now: functions refer back to them, so only a collection would.

    The newest go first, and functions and modules last, because ``__del__`` may use them.
    """
    # Most are functions of ours, which every trial finds.
    others = [name for name, value in namespace.items() if type(value) not in _KEPT_LONGEST]
    for name in reversed(others):
        if not isinstance(namespace.get(name), _KEPT_LONGEST):
            namespace.pop(name, None)
    namespace.clear()
