"""The places of one run: what it takes of the cluster, when it may, and why it waits.  Pure."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_ddl.driving.admission import AdmissionTimeout, waiting_text
from jupyter_ddl.driving.machine import earliest
from jupyter_ddl.placement.gpus import Grant
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.run import RunSpec

__all__ = ["Pauses", "Places", "RoundSizes", "kept_text"]

_AGAIN_S = 30.0
"""A group that was asked to leave and has not is asked again after so long (the new round, if
there was one, does not know of it)."""
_NO_WORKER_S = 60.0
_DISK_FULL_PAUSE_S = 2.0
_LOOK_EVERY_S = 1.0
"""For what the host has lost: somebody may have run the cell again."""
_N_UNBEGUN = 3
"""Assignments in a row that came back without having begun, before the next ones are delayed."""
_FIRST_HOLD_S = 0.1
_LONGEST_HOLD_S = 10.0
_GPU_POLL_S = 0.5
"""GPUs of a lost worker become free without a word from anybody."""


class Places:
    """Takes and gives the slots and GPUs of one run.  All times are monotonic seconds.

    Parameters
    ----------
    n_wanted : callable
        Workers that the cluster was asked for.
    """

    def __init__(self, spec: RunSpec, slots: SlotBook, n_wanted: Callable[[], int]) -> None:
        self.pauses = Pauses(slots, n_wanted)
        self._run_id = spec.run_id
        self._gpus_per_rank = spec.gpus_per_rank
        self._slots = slots
        self._sizes = RoundSizes(spec, slots) if spec.is_grouped else None
        self._timeout = AdmissionTimeout(
            spec.run_id,
            spec.verb.ranks.n_fewest,
            slots,
            spec.limits.admission_timeout_s,
            spec.gpus_per_rank,
        )
        self._n_unbegun = 0
        self._hold_until_s = 0.0
        self._is_unused = False
        self._waits_for_gpu = False

    def check(self, now_s: float, *, may_begin: bool) -> None:
        """Follow how long a group waits; ``may_begin``: it could, if it had slots.

        Raises
        ------
        PlacementError
            It has waited for too long.
        """
        if self._sizes is not None:
            # With a place in hand and no trial for it, it is the sampler that is waited for.
            is_waiting = may_begin and not self._is_unused and not self.pauses.is_incomplete
            self._timeout.check(now_s, is_waiting=is_waiting)

    def may_grow(self, n_ranks: int, now_s: float) -> bool:
        """Whether a round of ``n_ranks`` is to make room for a larger one."""
        return self._sizes is not None and self._sizes.may_grow(n_ranks, now_s)

    def take_joining(self, suits: Callable[[str], bool]) -> str | None:
        """Hold a slot for a rank that joins its round; it stands in no line for one."""
        return self._slots.take_joining(self._run_id, suits)

    def may_send(self, now_s: float) -> bool:
        """Whether nothing speaks against sending at present."""
        is_paused = bool(self.pauses.text(now_s)) or self.pauses.is_looking
        return not is_paused and now_s >= self._hold_until_s

    def take(self, n_flights: int, n_parallel: int, depth: int, now_s: float) -> Grant | None:
        """Hold a place for a batch, or all places of a group at once.

        Parameters
        ----------
        n_flights, n_parallel
            Assignments or groups on their way, and how many there may be.
        depth
            Assignments per slot.
        """
        self._is_unused = self._waits_for_gpu = False
        if self._sizes is None and not self._gpus_per_rank:
            address = self._slots.take(self._run_id, depth, n_parallel)
            return None if address is None else Grant((address,))
        if n_flights >= n_parallel:
            return None
        if self._sizes is not None:
            taken = self._sizes.take(now_s)
        else:
            # One at a time per GPU: nothing waits at the worker behind it.
            taken = self._slots.take_with_gpus(self._run_id, 1, self._gpus_per_rank)
        self._waits_for_gpu = taken is None and self._gpus_per_rank > 0
        return taken

    def give(self, places: Grant) -> None:
        """Return places that were used."""
        gpus = places.gpus or ((),) * len(places.workers)
        for worker, own in zip(places.workers, gpus, strict=True):
            self._slots.give(self._run_id, worker, own)

    def give_unused(self, places: Grant) -> None:
        """Return places for which there was no trial."""
        self.give(places)
        self._is_unused = True

    def hold(self) -> None:
        """Want no place at present, and keep no other run from having one."""
        self._is_unused = self._waits_for_gpu = False
        if self._sizes is not None:
            self._sizes.hold()
        self._slots.withdraw(self._run_id)

    @property
    def in_line(self) -> bool:
        """Whether this run was refused a place, and others may be refused one because of it."""
        return self._run_id in self._slots.in_line()

    @property
    def others_in_line(self) -> bool:
        """Whether another run was refused a place."""
        return bool(self._slots.in_line() - {self._run_id})

    def used(self, now_s: float, *, has_begun: bool) -> None:
        """An assignment came back.  Where none begins, the next ones are sent more slowly."""
        self._n_unbegun = 0 if has_begun else self._n_unbegun + 1
        if self._n_unbegun >= _N_UNBEGUN:
            n_more = min(self._n_unbegun - _N_UNBEGUN, 10)
            self._hold_until_s = now_s + min(_FIRST_HOLD_S * 2**n_more, _LONGEST_HOLD_S)

    def waiting(self, *, may_have_more: bool) -> str:
        """Why no rank group, or trial on a GPU, can begin yet; empty when none waits."""
        if self._sizes is not None:
            return self._sizes.waiting
        n_gpus = self._gpus_per_rank
        if not n_gpus or not may_have_more or self._slots.n_within_reach(self._run_id, n_gpus):
            return ""
        return waiting_text(self._run_id, 1, self._slots, n_gpus)

    def due_s(self, now_s: float) -> float | None:
        """When waiting alone changes what is possible."""
        hold_s = self._hold_until_s if self._hold_until_s > now_s else None
        due_s = earliest(self.pauses.due_s(now_s), hold_s)
        if self._sizes is not None:
            due_s = earliest(due_s, self._sizes.due_s(now_s), self._timeout.due_s)
        return earliest(due_s, now_s + _GPU_POLL_S) if self._waits_for_gpu else due_s


class RoundSizes:
    """Takes the slots of one run's groups, all or none: how large the next round is, and when a
    smaller one may grow.  All times are monotonic seconds."""

    def __init__(self, spec: RunSpec, slots: SlotBook) -> None:
        self._run_id = spec.run_id
        ranks = spec.verb.ranks
        self._n_ranks = ranks.n_ranks
        self._n_fewest = ranks.n_fewest
        self._gpus_per_rank = ranks.gpus_per_rank
        self._resize_after_s = ranks.resize_after_s
        self._slots = slots
        self._waiting_since_s: float | None = None
        self._room_since_s: float | None = None
        self._asked_at_s: float | None = None

    def take(self, now_s: float) -> Grant | None:
        """Places for a round; None while the run has to wait."""
        taken = self._slots.take_with_gpus(self._run_id, self._n_ranks, self._gpus_per_rank)
        if taken is None:
            taken = self._take_fewer(now_s)
        if taken is None:
            return None
        self._waiting_since_s = self._room_since_s = self._asked_at_s = None
        return taken

    def _take_fewer(self, now_s: float) -> Grant | None:
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        if now_s < self._waiting_since_s + self._resize_after_s:
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

    def may_grow(self, n_ranks: int, now_s: float) -> bool:
        """Whether a round of ``n_ranks`` is to end at its next checkpoint to be followed by a
        larger one; True once, then again only after half a minute."""
        if n_ranks >= self._n_ranks or not self._n_within_reach:
            self._room_since_s = None
            return False
        if self._room_since_s is None:
            self._room_since_s = now_s
        if now_s < self._room_since_s + self._resize_after_s:
            return False
        if self._asked_at_s is not None and now_s < self._asked_at_s + _AGAIN_S:
            return False
        self._asked_at_s = now_s
        return True

    def due_s(self, now_s: float) -> float | None:
        """When waiting alone changes what :meth:`take` or :meth:`may_grow` answer."""
        starts = (self._waiting_since_s, self._room_since_s)
        dues = [since_s + self._resize_after_s for since_s in starts if since_s is not None]
        if self._asked_at_s is not None:
            dues.append(self._asked_at_s + _AGAIN_S)
        return earliest(*(due_s for due_s in dues if due_s > now_s))


class Pauses:
    """Why a run sends nothing for now, in a sentence that says what helps.

    Parameters
    ----------
    slots : SlotBook
        Slots of the connected workers.
    n_wanted : callable
        Workers that the cluster was asked for.
    """

    def __init__(self, slots: SlotBook, n_wanted: Callable[[], int]) -> None:
        self._slots = slots
        self._n_wanted = n_wanted
        self.uncommitted = ""
        """Why nothing can be committed; empty when it can."""
        self.is_looking = False
        """Whether it is being looked whether all that the run is made of is there."""
        self._lost = ""
        self._look_at_s: float | None = None
        self._disk_full = ""
        self._disk_full_until_s = 0.0
        self._no_worker_since_s: float | None = None

    @property
    def is_incomplete(self) -> bool:
        """Whether something of the run itself is lost, or may be: no slot would help it."""
        return self.is_looking or bool(self._lost)

    def disk_is_full(self, message: str, now_s: float) -> None:
        """A rank found no space: nothing is sent for two seconds."""
        self._disk_full = message
        self._disk_full_until_s = now_s + _DISK_FULL_PAUSE_S

    def looked(self, lost: str, now_s: float) -> tuple[str, ...]:
        """Take what the host has lost, empty when all is there; returns what is to be told."""
        told: tuple[str, ...] = ()
        if bool(lost) != bool(self._lost):
            told = (lost or "all that the run is made of is there again: it goes on",)
        self.is_looking = False
        self._lost = lost
        self._look_at_s = now_s + _LOOK_EVERY_S if lost else None
        return told

    def may_look(self, now_s: float) -> bool:
        """Whether it is time to look once more; True once."""
        if self.is_looking or self._look_at_s is None or now_s < self._look_at_s:
            return False
        self._look_at_s = None
        return True

    def check(self, now_s: float) -> None:
        """Note since when there has been no worker."""
        if self._slots.n_slots:
            self._no_worker_since_s = None
        elif self._no_worker_since_s is None:
            self._no_worker_since_s = now_s

    def text(self, now_s: float) -> str:
        """Empty while the run waits for nothing."""
        if self.uncommitted:
            return self.uncommitted
        if self._lost:
            return self._lost
        if now_s < self._disk_full_until_s:
            return self._disk_full
        since_s = self._no_worker_since_s
        if since_s is None:
            return kept_text(self._slots)
        if self._n_wanted() == 0:
            return "the cluster has no workers; `%cluster scale N` starts some"
        if now_s > since_s + _NO_WORKER_S:
            # Without the time: what changes every second would be drawn every second.
            return (
                "no worker has been connected for more than a minute; "
                "see `%cluster logs`, or `%cluster scale N`"
            )
        return ""

    def due_s(self, now_s: float) -> float | None:
        """When waiting alone changes the text."""
        dues = [self._disk_full_until_s]
        if self._look_at_s is not None:
            dues.append(self._look_at_s)
        if self._no_worker_since_s is not None:
            dues.append(self._no_worker_since_s + _NO_WORKER_S + 0.001)
        return earliest(*(due_s for due_s in dues if due_s > now_s))


def kept_text(slots: SlotBook) -> str:
    """Persistent groups do not end by themselves: where they keep every slot, nothing can run."""
    kept = slots.kept()
    if not kept or sum(kept.values()) < slots.n_slots:
        return ""
    names = ", ".join(kept)
    return (
        f"every slot is kept by `%%distribute run` ({names}); `%runs stop {next(iter(kept))}` ends "
        f"that group, `%cluster scale N` adds slots"
    )
