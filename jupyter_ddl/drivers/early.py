"""Asks an own sampler whether running trials are to stop (its ``should_stop`` hook)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from jupyter_ddl.drivers.records import to_record
from jupyter_ddl.drivers.source import TrialSource
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.events import AttemptFinished, AttemptStarted, Event, Reported

__all__ = ["EarlyCheck"]

log = logging.getLogger(__name__)


class EarlyCheck:
    """One question at a time per trial, always with its newest reports."""

    def __init__(self, source: TrialSource, metric: str, prune: Callable[[int], None]) -> None:
        self._source = source
        self._metric = metric
        self._prune = prune
        self._reports: dict[int, list[tuple[int, float]]] = {}
        self._asking: dict[int, asyncio.Task[None]] = {}

    def poll(self, events: Sequence[Event], state: RunState) -> None:
        """Follow committed events; ask where the objective was reported."""
        for event in events:
            if isinstance(event, AttemptStarted):
                self._reports[event.trial] = []
            elif isinstance(event, AttemptFinished):
                self._reports.pop(event.trial, None)
            elif isinstance(event, Reported) and self._metric in event.metrics:
                reports = self._reports.setdefault(event.trial, [])
                reports.append((event.step, event.metrics[self._metric]))
                if event.trial not in self._asking:
                    self._asking[event.trial] = asyncio.create_task(self._ask(event.trial, state))

    def close(self) -> None:
        for task in self._asking.values():
            task.cancel()

    async def _ask(self, trial: int, state: RunState) -> None:
        n_shown = -1
        try:
            while (reports := self._reports.get(trial)) is not None and len(reports) != n_shown:
                n_shown = len(reports)
                record = to_record(state.trial(trial))
                record = msgspec.structs.replace(record, reports=tuple(reports))
                if await self._source.should_stop(record):
                    self._prune(trial)
                    return
        except JupyterDDLError as error:
            log.warning("early check of trial %d: %s", trial, error.message)
        finally:
            del self._asking[trial]
