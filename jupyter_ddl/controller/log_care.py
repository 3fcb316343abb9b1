"""Keeps the logs of runs within their budget on disk while they go on, and says so once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection

from jupyter_ddl.background import BackgroundTasks
from jupyter_ddl.formats import format_bytes
from jupyter_ddl.store.log_space import LOG_VARIABLE, bound_logs, can_not_cut, log_budget
from jupyter_ddl.store.paths import run_dir

__all__ = ["LogCare"]

log = logging.getLogger(__name__)

_INTERVAL_S = 1.0
_SHARE = 0.05
"""Of the time that this may take: a run of thousands of ranks has as many files to look at."""


class LogCare:
    """Used on the controller's loop only.

    Parameters
    ----------
    active
        The runs that may print.
    tell
        Has the record of a run say something.

    Raises
    ------
    OptionError
        The budget in the environment is no size.
    """

    def __init__(
        self, active: Callable[[], Collection[str]], tell: Callable[[str, str], None]
    ) -> None:
        self._active = active
        self._tell = tell
        self._budget = log_budget()
        self._told: set[str] = set()
        self._tasks = BackgroundTasks(log, "log care")
        self._tasks.start(self._keep_polling(), name="log care")

    async def close(self) -> None:
        await self._tasks.close()

    async def _keep_polling(self) -> None:
        while True:
            began_s = time.monotonic()
            await self.poll()
            took_s = time.monotonic() - began_s
            await asyncio.sleep(max(_INTERVAL_S, took_s / _SHARE))

    async def poll(self) -> None:
        """Cut what is too long, once."""
        for run_id in tuple(self._active()):
            folder = run_dir(run_id) / "logs"
            try:
                n_bytes = await asyncio.to_thread(bound_logs, folder, self._budget)
            except OSError as error:
                self._say(run_id, _why_not(error, self._budget))
                continue
            if n_bytes:
                self._say(
                    run_id,
                    f"ranks have printed more than {format_bytes(self._budget)} ({LOG_VARIABLE}): "
                    f"their logs keep beginnings and ends, and say where the rest was",
                )

    def _say(self, run_id: str, text: str) -> None:
        if run_id not in self._told:
            self._told.add(run_id)
            log.warning("run %s: %s", run_id, text)
            self._tell(run_id, text)


def _why_not(error: OSError, budget: int) -> str:
    what = f"ranks have printed more than {format_bytes(budget)} ({LOG_VARIABLE})"
    if can_not_cut(error):
        return (
            f"{what}, and the file system of the runs can't give back parts of a file: print less, "
            f"or set JUPYTER_DDL_HOME to another file system"
        )
    return f"{what}, and their logs can't be cut: {error.strerror or error}"
