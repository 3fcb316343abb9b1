"""How large the next round of a rank group is, and when a smaller one may grow."""

from __future__ import annotations

import time
from collections.abc import Callable

from jupyter_ddl.drivers.admission import waiting_text
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.placement.gpus import Grant
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.assignment import TrialAssignment
from jupyter_ddl.protocol.events import Event, Notice
from jupyter_ddl.protocol.run import RunSpec

__all__ = ["Rounds", "round_notices"]

_AGAIN_S = 30.0
"""A group that was asked to leave and has not is asked again after so long (the new round, if
there was one, does not know of it)."""


class Rounds:
    """Takes the slots of one run's groups, all or none.  Used on the controller's loop only.

    Parameters
    ----------
    clock : callable
        Monotonic seconds.
    """

    def __init__(
        self, spec: RunSpec, slots: SlotBook, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run_id = spec.run_id
        ranks = spec.verb.ranks
        self._n_ranks = ranks.n_ranks
        self._n_fewest = ranks.n_fewest
        self._gpus_per_rank = ranks.gpus_per_rank
        self._resize_after_s = ranks.resize_after_s
        self._slots = slots
        self._clock = clock
        self._waiting_since_s: float | None = None
        self._room_since_s: float | None = None
        self._asked_at_s: float | None = None

    def take(self) -> Grant | None:
        """Places for a round; None while the run has to wait."""
        taken = self._slots.take_with_gpus(self._run_id, self._n_ranks, self._gpus_per_rank)
        if taken is None:
            taken = self._take_fewer()
        if taken is None:
            return None
        self._waiting_since_s = self._room_since_s = self._asked_at_s = None
        return taken

    def _take_fewer(self) -> Grant | None:
        now = self._clock()
        if self._waiting_since_s is None:
            self._waiting_since_s = now
        if now - self._waiting_since_s < self._resize_after_s:
            return None
        number = min(self._n_ranks - 1, self._n_within_reach)
        if number < self._n_fewest:
            return None
        return self._slots.take_with_gpus(self._run_id, number, self._gpus_per_rank)

    @property
    def _n_within_reach(self) -> int:
        return self._slots.n_within_reach(self._run_id, self._gpus_per_rank)

    def hold(self) -> None:
        """No round is wanted at present."""
        self._waiting_since_s = None

    @property
    def waiting(self) -> str:
        """Why the next round can't begin; empty when none waits."""
        if self._waiting_since_s is None:
            return ""
        return waiting_text(self._run_id, self._n_fewest, self._slots, self._gpus_per_rank)

    def may_grow(self, n_ranks: int) -> bool:
        """Whether a round of ``n_ranks`` is to end at its next checkpoint to be followed by a
        larger one; True once, then again only after half a minute."""
        now = self._clock()
        if n_ranks >= self._n_ranks or not self._n_within_reach:
            self._room_since_s = None
            return False
        if self._room_since_s is None:
            self._room_since_s = now
        if now - self._room_since_s < self._resize_after_s:
            return False
        if self._asked_at_s is not None and now - self._asked_at_s < _AGAIN_S:
            return False
        self._asked_at_s = now
        return True


def round_notices(
    spec: RunSpec, state: RunState, trial: TrialAssignment, n_ranks: int, now_s: float
) -> list[Event]:
    """What the user is told when a ddp run begins another round, or a smaller one."""
    if not spec.verb.can.has_ranks:
        return []
    size = "" if n_ranks == spec.n_ranks else f" with {n_ranks} of {spec.n_ranks} ranks"
    if trial.attempt == 1:
        return [Notice(now_s, f"started{size}: no more slots are free")] if size else []
    saved = state.trials[trial.trial].checkpoint
    if saved is None:
        text = f"restarted{size} from the beginning: the cell saved no checkpoint"
        return [Notice(now_s, text, "warning")]
    return [Notice(now_s, f"restarted{size} from the checkpoint at step {saved.step}")]
