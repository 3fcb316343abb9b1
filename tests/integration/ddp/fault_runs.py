"""Rank groups for the tests of faults: raw programs, submitted to the test's cluster."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from jupyter_ddl.client.run import Run
from jupyter_ddl.client.session import session
from jupyter_ddl.ledger.reader import LedgerReader
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    CheckpointSaved,
    Event,
    RankEnded,
    RankStarted,
    Reported,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.requests import SubmitRun
from jupyter_ddl.protocol.run import Limits, RunSpec
from jupyter_ddl.protocol.verb import VerbSpec
from jupyter_ddl.store.paths import ledger_path
from jupyter_ddl.verbs.ddp import Ddp
from tests.until import until

TRAIN = """
import time
import torch
import torch.distributed as dist

state = resume() or {"epoch": -1}
for epoch in range(state["epoch"] + 1, 10**9):
    dist.all_reduce(torch.ones(4))
    report(step=epoch, size=world_size())
    checkpoint(step=epoch, epoch=epoch)
    time.sleep(0.05)
"""
"""A step, a report and a checkpoint 20 times a second, without an end of its own."""


class Started:
    """A run of one rank group, whose ledger is read as it grows."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._reader = LedgerReader(ledger_path(run.id))
        self._events: list[Event] = []

    def __del__(self) -> None:
        self._reader.close()

    def all_events(self) -> list[Event]:
        self._events.extend(self._reader.poll())
        return self._events

    def events(self, kind: type[Any], attempt: int | None = None) -> list[Any]:
        found = [event for event in self.all_events() if isinstance(event, kind)]
        return [event for event in found if attempt is None or event.attempt == attempt]

    def pids(self, attempt: int) -> dict[int, int]:
        """Rank to process of one round."""
        return {event.rank: event.pid for event in self.events(RankStarted, attempt)}

    def wait_for_step(self, attempt: int, *, more: int = 3, timeout_s: float = 30.0) -> int:
        """Wait until a round has reported, and saved, a few steps; return its last one."""

        def reports() -> list[Reported]:
            saved = self.events(CheckpointSaved, attempt)
            found = [e for e in self.events(Reported, attempt) if e.rank == 0]
            return found if len(found) >= more and (saved or more == 1) else []

        what = f"{more} reports of attempt {attempt} of {self.run.id}"
        return int(until(reports, timeout_s, what)[-1].step)

    def end_of(self, attempt: int, timeout_s: float = 30.0) -> AttemptFinished:
        what = f"the end of attempt {attempt}"
        found = until(lambda: self.events(AttemptFinished, attempt), timeout_s, what)
        assert isinstance(found[0], AttemptFinished)
        return found[0]

    def ranks_ended(self, attempt: int) -> dict[int, RankEnded]:
        return {event.rank: event for event in self.events(RankEnded, attempt)}

    def stop(self) -> None:
        self.run.cancel("now")
        until(lambda: self.run.snapshot().finished_at_s, 20.0, "the end of the stopped run")


def start(
    source: str,
    n_ranks: int = 2,
    *,
    verb: VerbSpec | None = None,
    max_own_failures: int = 4,
    name: str = "test",
    admission_timeout_s: float | None = None,
    **options: Any,
) -> Started:
    """Submit a program as a rank group; its first line is line 1."""
    run_id = f"r{time.time_ns() % 10**12}"
    spec = RunSpec(
        run_id=run_id,
        verb=verb or Ddp(n_ranks=n_ranks, **options),
        program=Program(source=source, filename="In [1]", imports=("torch",)),
        seed=1,
        cluster=name,
        created_at_s=time.time(),
        limits=Limits(max_own_failures=max_own_failures, admission_timeout_s=admission_timeout_s),
    )
    session().ask(name, SubmitRun(spec))
    return Started(Run(run_id))


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> float:
    """Signal a process; return when (Unix seconds)."""
    os.kill(pid, number)
    return time.time()
