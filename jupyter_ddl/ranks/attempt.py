"""The attempt in progress: what ``report``, ``checkpoint`` and ``resume`` do inside a run."""

from __future__ import annotations

import math
import operator
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jupyter_ddl.protocol.assignment import Assignment, TrialAssignment
from jupyter_ddl.protocol.events import (
    CheckpointSaved,
    GroupSettled,
    Notice,
    OutputShown,
    PipelineTimed,
    RankEvent,
    Reported,
    StalenessCounted,
)
from jupyter_ddl.protocol.pipeline import PipelineTimes
from jupyter_ddl.protocol.staleness import Staleness
from jupyter_ddl.ranks.checkpoints import (
    checkpoint_names,
    newest_checkpoint,
    read_or_notice,
    save_checkpoint,
)
from jupyter_ddl.ranks.group_votes import GroupVotes
from jupyter_ddl.ranks.metrics import (
    MetricError,
    ReportError,
    as_number,
    check_reduction,
    combined,
    reduced,
    shown,
)
from jupyter_ddl.ranks.outputs import Outputs
from jupyter_ddl.ranks.stopping import StopFlag, StopReason, TrialStopped
from jupyter_ddl.ranks.training import PRIVATE_KEY, Training

__all__ = ["Attempt"]

_n_forks = 0
"""Forks between the interpreter's start and this process."""


def _count_fork() -> None:
    global _n_forks
    _n_forks += 1


os.register_at_fork(after_in_child=_count_fork)


class _Passed(NamedTuple):
    """How far a round was when it saved a checkpoint."""

    attempt: int
    n_steps: int
    n_reports: int
    n_gathered: int


class Attempt:
    """One attempt at one trial, used from the rank's main thread.

    Parameters
    ----------
    votes : GroupVotes, optional
        What the ranks of a group decide by together; without it every rank decides alone.
    """

    def __init__(
        self,
        trial: TrialAssignment,
        assignment: Assignment,
        emit: Callable[[RankEvent], None],
        stop: StopFlag,
        votes: GroupVotes | None = None,
    ) -> None:
        self.reported: dict[str, float] = {}
        """The last value of each metric."""
        place = assignment.place
        self.rank = place.rank if place else 0
        self.world_size = place.n_workers if place else 1
        self.local_rank = place.local_rank if place else 0
        self.serves = self.rank >= self.world_size
        """Whether it keeps parameters for ranks that train, and has none of its own to bring."""
        self.on_cpu = place is not None and not place.gpus
        """Whether the rank has no GPU although its host may have some."""
        self.device_index = place.device_index if place else 0
        store = None if votes is None else votes.store
        self.training = Training(
            place, trial.seed, tell=self.tell, store=store, settled=self.settled
        )
        self._goes_on = place is not None and place.goes_on
        self._joins = place is not None and place.life > 1
        self._votes = votes
        self._n_reports = 0
        self._stop_at: tuple[int, StopReason] | None = None
        self._trial = trial
        self._assignment = assignment
        self._emit = emit
        self._stop = stop
        self._last_step: int | None = None
        self._pid = os.getpid()
        self._n_forks = _n_forks

    def objective_so_far(self) -> float | None:
        """The last reported objective if it is finite."""
        value = self.reported.get(self._assignment.metric or "")
        return value if value is not None and math.isfinite(value) else None

    def prepare(self, objects: tuple[Any, ...], device: Any) -> tuple[Any, ...]:
        """See :func:`jupyter_ddl.ranks.incell.prepare`."""
        return self.training.prepare(objects, device)

    def device_mesh(self, device: Any) -> Any:
        """See :func:`jupyter_ddl.ranks.incell.device_mesh`."""
        return self.training.device_mesh(device)

    def prepare_step(
        self, model: Any, loss_fn: Any, optimizer: Any, settings: Mapping[str, Any], device: Any
    ) -> Any:
        """See :func:`jupyter_ddl.ranks.incell.prepare_step`."""
        return self.training.prepare_step(model, loss_fn, optimizer, settings, device)

    def report(
        self, step: int | None, metrics: Mapping[str, Any], reduce: str | None = None
    ) -> None:
        """See :func:`jupyter_ddl.ranks.incell.report`."""
        # Called in the middle of a training, which has emptied the caches: each function more costs
        # some microseconds here, and each system call ten.  So the common cases come first.
        if self._n_forks != _n_forks:
            self._refuse_children("report")
        last = self._last_step
        at = step if type(step) is int and (last is None or step > last) else self._next_step(step)
        if self._joins and self.training.passes:
            self._pass_over(at, reduce)
            return
        values: dict[str, float] = {}
        for name, value in metrics.items():
            values[name] = value if type(value) is float else _number(name, value)
        if reduce is not None:
            check_reduction(reduce)
            if self.world_size > 1:
                values = self._reduced(values, reduce)
        self._last_step = at
        self.record(at, values)

    def _reduced(self, values: Mapping[str, float], how: str) -> dict[str, float]:
        """One value of all ranks for each metric."""
        if self._goes_on and self._votes is not None:
            return combined(self._votes.gather(dict(values)), how)
        return reduced(values, how, self.training.reporting_group)

    def _pass_over(self, at: int, reduce: str | None) -> None:
        """The others have reported this before: count it, and tell nothing."""
        if reduce is not None and self._votes is not None:
            self._votes.n_gathered += 1
        self._last_step = at
        self._n_reports += 1
        reason = self._stop.pending(self._trial.trial, self._trial.attempt)
        if reason is not None:
            raise TrialStopped(reason)

    @property
    def objective(self) -> str | None:
        """The metric that the run is about."""
        return self._assignment.metric

    @property
    def speaks_for_itself(self) -> bool:
        """Whether the cell has called ``report``."""
        return self._last_step is not None

    @property
    def side_folder(self) -> str:
        """Where frameworks write that trials beside this one don't; empty if it is the only one."""
        trial = self._trial
        return f"trial-{trial.trial}" if trial.params or trial.item is not None else ""

    def record(self, at: int, values: Mapping[str, float]) -> None:
        """Record numbers at a step, of the cell or of a framework that counts for itself.

        Raises
        ------
        MetricError
            The objective is not finite.
        TrialStopped
            The attempt ends here.
        """
        self._n_reports += 1
        self.reported.update(values)
        trial = self._trial
        self._emit(Reported(trial.trial, trial.attempt, at, dict(values), time.time(), self.rank))
        objective = values.get(self._assignment.metric or "")
        if objective is not None and not math.isfinite(objective):
            raise MetricError(
                f"metric {self._assignment.metric!r} is {objective} at step {at}; "
                f"expected a finite number",
                metric=self._assignment.metric,
                step=at,
            )
        reason = self._stop.pending(trial.trial, trial.attempt)
        votes = self._votes
        if votes is not None:
            is_open = self._stop_at is not None or self._n_reports >= votes.next_look
            reason = self._agreed(votes, reason) if is_open else None
        if reason is not None:
            raise TrialStopped(reason)

    def _agreed(self, votes: GroupVotes, reason: StopReason | None) -> StopReason | None:
        """Why all ranks of the group stop at this report; a rank alone must not."""
        if self._stop_at is None:
            self._stop_at = votes.stop_after(self._n_reports, reason)
        if self._stop_at is None or self._n_reports < self._stop_at[0]:
            return None
        return self._stop_at[1]

    def checkpoint(self, step: int | None, state: Mapping[str, Any]) -> None:
        """See :func:`jupyter_ddl.ranks.incell.checkpoint`."""
        if self._n_forks != _n_forks:
            self._refuse_children("checkpoint")
        at = (self._last_step or 0) if step is None else _whole("checkpoint", step)
        if PRIVATE_KEY in state:
            raise ReportError(f"checkpoint({PRIVATE_KEY}=…): this name is taken; use another one")
        is_first = self.rank == 0
        if not is_first and not self.training.is_collective(state):
            return
        if self._joins and self.training.passes:
            return
        plain = self.training.plain_state(state, keep=is_first)
        if not is_first:
            return
        if self.objective in self.reported and (self._last_step or 0) >= at:
            plain.setdefault(PRIVATE_KEY, {})["objective"] = self.reported[self.objective]
        trial = self._trial
        if self._goes_on and self._votes is not None:
            passed = _Passed(
                trial.attempt, self.training.n_steps, self._n_reports, self._votes.n_gathered
            )
            plain.setdefault(PRIVATE_KEY, {})["passed"] = list(passed)
        saved = save_checkpoint(self._directory(), trial.trial, trial.attempt, at, plain)
        self._emit(CheckpointSaved(trial.trial, trial.attempt, at, *saved, time.time()))

    def resume(self) -> dict[str, Any] | None:
        """See :func:`jupyter_ddl.ranks.incell.resume`."""
        number = self._trial.trial
        directory = self._directory()
        if self._votes is None or self._joins:
            state = newest_checkpoint(directory, number, self.warn)
        else:
            # Every rank reads; a file that one of them finds broken is used by none.
            state = self._votes.first_readable(
                checkpoint_names(directory, number) if self.rank == 0 else (),
                lambda name: read_or_notice(directory, number, name, self.warn),
            )
        if state is None:
            return None
        if self._joins:
            self._go_on_behind(state.get(PRIVATE_KEY, {}).get("passed"))
        # One that was saved behind the last report leaves nothing to report again.
        objective = state.get(PRIVATE_KEY, {}).get("objective")
        if objective is not None and self.objective is not None:
            self.reported.setdefault(self.objective, objective)
        return self.training.restore(state)

    def _go_on_behind(self, passed: Sequence[int] | None) -> None:
        """A checkpoint of this round says how far the others were; of another, they began there."""
        if passed is None or self._votes is None or passed[0] != self._trial.attempt:
            return
        _, n_steps, self._n_reports, self._votes.n_gathered = passed
        self.training.begin_at(n_steps)

    def outputs(self) -> Outputs | None:
        """Where it shows figures and tables; None: a rank behind the first, which prints them."""
        trial = self._trial
        if self.rank:
            return None

        def tell(file: str, size: int, shown: tuple[str, ...]) -> None:
            self._emit(OutputShown(trial.trial, trial.attempt, file, size, time.time(), shown))

        folder = f"{self._assignment.run_dir}/outputs"
        return Outputs(folder, f"trial-{trial.trial}-a{trial.attempt}", tell)

    def warn(self, text: str) -> None:
        """Tell the user something in one sentence."""
        self._emit(Notice(time.time(), text))

    def settled(self) -> None:
        """The group's ranks are ready for steps."""
        self._emit(GroupSettled(self._trial.trial, self._trial.attempt))

    def tell(self, what: str | PipelineTimes | Staleness) -> None:
        """Record what the strategy says, or has measured."""
        if isinstance(what, str):
            self.warn(what)
            return
        who = (self._trial.trial, self._trial.attempt, time.time())
        if isinstance(what, Staleness):
            self._emit(StalenessCounted(*who, what))
        else:
            self._emit(PipelineTimed(*who, what))

    def _directory(self) -> Path:
        return Path(self._assignment.run_dir) / "checkpoints"

    def _next_step(self, step: int | None) -> int:
        last = self._last_step
        if step is None:
            return 0 if last is None else last + 1
        at = _whole("report", step)
        if last is not None and at <= last:
            raise ReportError(
                f"report(step={at}) came after report(step={last}); steps must grow within a "
                f"trial; report all metrics of a step in one call",
                step=at,
                last_step=last,
            )
        return at

    def _refuse_children(self, function: str) -> None:
        # A forked child shares the pipe to the worker, and its bytes would mix with ours.
        raise ReportError(
            f"{function}() was called in process {os.getpid()}, a child of the trial's process "
            f"{self._pid}; return the values to the cell and call it there"
        )


def _number(name: str, value: Any) -> float:
    number = as_number(value)
    if number is None:
        raise ReportError(
            f"metric {name!r} is {shown(value)} ({type(value).__name__}); expected a number",
            metric=name,
        )
    return number


def _whole(function: str, step: Any) -> int:
    if type(step) is int:
        return step
    try:
        return operator.index(step)
    except TypeError:
        raise ReportError(
            f"{function}(step=…) is {shown(step)} ({type(step).__name__}); expected a whole number"
        ) from None
