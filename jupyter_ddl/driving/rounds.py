"""One round of a rank group, with its deadlines: who is told to do what, and until when.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from jupyter_ddl.driving.group_fold import (
    DEAD_ROUND_GRACE_S,
    Action,
    AskToLeave,
    AwaitCause,
    AwaitReturned,
    GroupFold,
    Join,
    StopOthers,
    TellMembers,
)
from jupyter_ddl.driving.hangs import Blame, StepWatch, whereabouts
from jupyter_ddl.driving.machine import Instruction, Now, Signal, WriteStacks, earliest
from jupyter_ddl.protocol.assignment import (
    Assignment,
    Control,
    DumpStacks,
    StopTrial,
    StopWhen,
    TrialAssignment,
)
from jupyter_ddl.protocol.events import (
    AttemptStarted,
    Event,
    HangVerdict,
    Notice,
    Probe,
    RankEvent,
)
from jupyter_ddl.protocol.group import JoinGroup, MembersChanged

__all__ = ["Round"]

_CAUSE_TIMEOUT_S = 0.7
"""How long a failure that looks like a consequence waits for its cause: the end of a killed
process is noticed later than the connections that it closes."""
_END_TIMEOUT_S = 15.0
"""Within it a rank that was told to end is gone, or given up with its worker."""
_PROBE_TIMEOUT_S = 6.0


class Round:
    """One round from its first message to its last, with its deadlines.

    The methods return what is to be recorded; the group's ``AttemptFinished`` is the last of it.

    Parameters
    ----------
    workers, hosts
        Of each rank; empty for those that are absent.
    hang_timeout_s : float, optional
        See :class:`~jupyter_ddl.driving.hangs.StepWatch`.
    devices
        What to call the device of each rank; empty: all are CPUs.
    do, write_stacks : callable
        Take what is to be done.  :meth:`stacks_written` follows on ``write_stacks``.
    start_again : callable
        Takes a rank that is lost and the number of its next process, and has it started.
    give_up : callable
        Waits for a rank's assignment no longer, and has its worker ended; :meth:`rank_ended`
        follows.
    """

    def __init__(
        self,
        assignments: Sequence[Assignment],
        workers: Sequence[str],
        hosts: Sequence[str],
        now: Now,
        *,
        do: Callable[[Instruction], None],
        write_stacks: Callable[[WriteStacks], None],
        give_up: Callable[[int], None],
        start_again: Callable[[int, int], None] = lambda _rank, _life: None,
        hang_timeout_s: float | None = None,
        devices: Sequence[str] = (),
    ) -> None:
        self._assignments = tuple(assignments)
        self._workers = list(workers)
        self._hosts = list(hosts)
        self._empty = {rank for rank, worker in enumerate(workers) if not worker}
        """Ranks without a worker: there was none, or it is lost."""
        self._do = do
        self._write_stacks = write_stacks
        self._give_up = give_up
        self._start_again = start_again
        self._fold = GroupFold(assignments, hosts, devices)
        self._epoch_s = now.wall_s - now.mono_s
        self._steps = StepWatch(len(workers), hang_timeout_s, now.mono_s)
        for rank in self._empty:
            self._steps.ended(rank)
        self._cause_due_s: float | None = None
        self._dismiss_due_s: float | None = None
        self._give_up_s: dict[int, float] = {}
        self._abandoned: set[int] = set()
        self._probes: dict[int, Probe] | None = None  # while the ranks are looked at
        self._probes_due_s: float | None = None
        self._only_tells = False
        self._blame: Blame | None = None
        self.may_start_again = True
        """Whether ranks without which the others go on are started again; not while it ends."""
        self._due_s: float | None = None
        self._has_changed = True
        """Since the deadline was worked out: every event of any group asks for it."""

    @property
    def due_s(self) -> float | None:
        """When :meth:`woken` has something to do."""
        if self._has_changed:
            self._due_s, self._has_changed = self._earliest_s(), False
        return self._due_s

    def _earliest_s(self) -> float | None:
        if self._fold.over:
            return None
        hang_due_s = late_due_s = None
        if self._blame is None:
            hang_due_s = self._steps.due_s if self._probes is None else self._probes_due_s
            late_due_s = self._steps.late_due_s
        own_due_s = earliest(self._cause_due_s, self._dismiss_due_s)
        return earliest(own_due_s, *self._give_up_s.values(), hang_due_s, late_due_s)

    def liveness(self) -> dict[int, tuple[str, float]]:
        """Phase of each running rank, and the Unix seconds at which it last moved."""
        moved = self._steps.moved()
        return {rank: (phase, at_s + self._epoch_s) for rank, (phase, at_s) in moved.items()}

    def arrived(self, rank: int, events: Sequence[RankEvent], now: Now) -> list[Event]:
        """A rank, or its worker, has sent events."""
        self._has_changed = True
        recorded: list[Event] = []
        for event in events:
            if not isinstance(event, Probe):
                self._steps.observe(rank, event, now.mono_s)
            elif self._probes is not None:
                self._probes[rank] = event
            if isinstance(event, AttemptStarted) and rank in self._give_up_s:
                # What told it to end came before what told it to begin, and found nobody.
                self._stop(rank, "cancelled", "now", DEAD_ROUND_GRACE_S)
            found, actions = self._fold.add(rank, event)
            recorded += found
            self._act(actions, now)
        return [*recorded, *self._judge(now)]

    def rank_ended(self, rank: int, lost: str, now: Now) -> list[Event]:
        """The assignment of a rank is over; a rank that has told of no end is lost."""
        self._has_changed = True
        self._give_up_s.pop(rank, None)
        # One that was never executed is to the group as lost as any other.
        why = lost or "its worker did not begin it"
        if rank in self._abandoned:
            why = "it did not end when told to"
        recorded, actions = self._fold.lost(rank, now.wall_s, why)
        self._act(actions, now)
        self._steps.ended(rank)
        may_start = not lost and self.may_start_again
        life = self._fold.begin_again(rank) if may_start else None
        if life is None:
            self._act(self._fold.not_back(rank), now)
        else:
            self._steps.begin_again(rank)
            self._start_again(rank, life)
        if lost:
            self._empty.add(rank)
        return recorded

    @property
    def vacant(self) -> tuple[int, ...]:
        """Ranks without a worker that could join the others if they had one."""
        if not self.may_start_again:
            return ()
        return tuple(filter(self._fold.may_join, sorted(self._empty)))

    def give_worker(self, rank: int, worker: str, host: str, now: Now) -> tuple[int, list[Event]]:
        """A vacant rank is to be started at a worker: as its process of which number."""
        self._has_changed = True
        is_new = not self._workers[rank]
        self._empty.remove(rank)
        self._workers[rank], self._hosts[rank] = worker, host
        self._fold.move(rank, host)
        life = self._fold.begin_again(rank)
        assert life is not None, "asked for a rank that may not join"
        self._steps.begin_again(rank)
        what = "a slot is free" if is_new else "there is another worker"
        text = f"{what}: rank {rank} is started, and joins the others"
        return life, [Notice(now.wall_s, text)]

    def woken(self, now: Now) -> list[Event]:
        """See which deadlines have passed."""
        now_s = now.mono_s
        if self.due_s is None or now_s < self.due_s:
            return []
        self._has_changed = True
        if self._cause_due_s is not None and now_s >= self._cause_due_s:
            self._cause_due_s = None
            self._act(self._fold.cause_is_late(), now)
        if self._dismiss_due_s is not None and now_s >= self._dismiss_due_s:
            self._dismiss_due_s = None
            self._act(self._fold.dismiss_returned(), now)
        for rank in [rank for rank, due_s in self._give_up_s.items() if now_s >= due_s]:
            del self._give_up_s[rank]
            self._abandoned.add(rank)
            self._give_up(rank)
        if self._fold.over or self._blame is not None:
            return []
        is_late = self._steps.is_late(now_s)
        if self._probes is None and (is_late or self._steps.is_due(now_s)):
            self._probes, self._probes_due_s = {}, now_s + _PROBE_TIMEOUT_S
            self._only_tells = is_late
            trial = self._trial
            dump = DumpStacks(self._run_id, trial.trial, trial.attempt)
            for worker in dict.fromkeys(self._workers[r] for r in sorted(self._steps.running)):
                self._signal(worker, dump)
        return self._judge(now)

    def stacks_written(self, now: Now) -> list[Event]:
        """Say who hangs, now that whoever reads it can look at the stacks."""
        if self._blame is None:
            return []
        self._has_changed = True
        verdict = HangVerdict(
            trial=self._trial.trial,
            attempt=self._trial.attempt,
            rank=self._blame.rank,
            at_s=now.wall_s,
            text=self._blame.text,
            line=self._blame.line,
            is_outside=self._blame.is_outside,
            stacks_file=self._stacks_dir,
        )
        recorded, actions = self._fold.hang(verdict)
        self._act(actions, now)
        return recorded

    def ask_to_leave(self) -> None:
        """Have rank 0 leave at its next checkpoint, and the others with it, to be restarted.

        Were all asked, each would leave at another step, and one could wait for another.
        """
        self._stop(0, "moved", "next_checkpoint")

    @property
    def _run_id(self) -> str:
        return self._assignments[0].run_id

    @property
    def _trial(self) -> TrialAssignment:
        return self._assignments[0].trials[0]

    @property
    def _stacks_dir(self) -> str:
        return f"stacks/{self._trial.trial}-a{self._trial.attempt}"

    def _judge(self, now: Now) -> list[Event]:
        """Who hangs, once all ranks that run were looked at, or had their time to be."""
        probes = self._probes
        if probes is None or self._probes_due_s is None:
            return []
        if self._steps.running - probes.keys() and now.mono_s < self._probes_due_s:
            return []
        self._probes = self._probes_due_s = None
        if self._only_tells:
            are_in_cell = self._steps.are_in_cell
            text = self._steps.who_waits(probes) if are_in_cell else self._absent(probes)
            if not (text and are_in_cell):
                self._steps.look_again(now.mono_s)
            return [Notice(now.wall_s, text)] if text else []
        self._blame = self._steps.judge(probes, now.mono_s)
        if self._blame is not None:
            texts = {rank: probe.stacks for rank, probe in probes.items()}
            self._write_stacks(WriteStacks(self._stacks_dir, texts))
        return []

    def _absent(self, probes: dict[int, Probe]) -> str:
        where = {
            rank: whereabouts(probe.state, probe.stacks, self._hosts[rank])
            for rank, probe in probes.items()
        }
        return self._steps.absent(where)

    def _act(self, actions: Sequence[Action], now: Now) -> None:
        for action in actions:
            match action:
                case Join(addresses=addresses, store=store, rank=which):
                    trial = self._trial
                    join = JoinGroup(self._run_id, trial.trial, trial.attempt, addresses, store)
                    first = [n for n, worker in enumerate(self._workers) if worker]
                    self._signal_all(join, first if which is None else [which])
                case TellMembers(number=number, lives=lives):
                    trial = self._trial
                    who = (self._run_id, trial.trial, trial.attempt)
                    self._signal_all(MembersChanged(*who, number, lives), lives)
                case StopOthers(ranks=ranks, grace_s=grace_s):
                    for rank in ranks:
                        self._stop(rank, "cancelled", "now", grace_s)
                        self._give_up_s.setdefault(rank, now.mono_s + _END_TIMEOUT_S)
                case AwaitCause():
                    due_s = now.mono_s + _CAUSE_TIMEOUT_S
                    self._cause_due_s = earliest(self._cause_due_s, due_s)
                case AskToLeave():
                    self.ask_to_leave()
                case AwaitReturned(patience_s=0.0):
                    self._act(self._fold.dismiss_returned(), now)
                case AwaitReturned(patience_s=patience_s):
                    self._dismiss_due_s = earliest(self._dismiss_due_s, now.mono_s + patience_s)

    def _stop(
        self,
        rank: int,
        reason: Literal["cancelled", "moved"],
        when: StopWhen | Literal["next_checkpoint"],
        grace_s: float | None = None,
    ) -> None:
        trial = self._trial
        stop = StopTrial(self._run_id, trial.trial, trial.attempt, reason, when, rank, grace_s)
        self._signal(self._workers[rank], stop)

    def _signal_all(self, control: Control, ranks: Iterable[int]) -> None:
        for worker in dict.fromkeys(self._workers[rank] for rank in ranks):
            self._signal(worker, control)

    def _signal(self, worker: str, control: Control) -> None:
        self._do(Signal(worker, (control,)))
