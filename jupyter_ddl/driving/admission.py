"""Whether a rank group fits on the cluster, what it waits for, and for how long.  Pure."""

from __future__ import annotations

import msgspec

from jupyter_ddl.errors import PlacementError
from jupyter_ddl.formats import format_counted
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.assignment import TrialAssignment
from jupyter_ddl.protocol.events import Event, Notice
from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.protocol.run import RunSpec

__all__ = [
    "AdmissionTimeout",
    "admitted",
    "check_gpus_fit",
    "check_group_fits",
    "round_notices",
    "waiting_text",
    "wants_gpus",
]

_STUCK_S = 600.0
"""Slots that are missing, or kept by persistent groups, do not become free by themselves: a lost
worker is replaced within seconds, and a person who would end a group has come by then."""


def wants_gpus(spec: RunSpec) -> bool:
    """Whether the answer depends on what GPUs the workers have."""
    ranks = spec.verb.ranks
    return ranks.gpus_undecided or ranks.gpus_per_rank > 0


def admitted(spec: RunSpec, slots: SlotBook, n_slots: int) -> RunSpec:
    """The run with what is fixed once, when a cluster takes it.

    Parameters
    ----------
    n_slots : int
        Those that there are, or are wanted.
    """
    ranks = spec.verb.ranks
    has_all = slots.gpus.suits_torch and slots.n_placeable(1) >= ranks.n_ranks
    n_gpus = int(ranks.backend == "nccl" or (ranks.backend == "auto" and has_all))
    verb = spec.verb.admitted(n_slots=max(1, n_slots), gpus_per_rank=n_gpus)
    return msgspec.structs.replace(spec, verb=verb)


def check_group_fits(spec: RunSpec, slots: SlotBook, n_possible: int) -> None:
    """Refuse what the cluster can never have slots, or GPUs, for.

    Parameters
    ----------
    n_possible
        The most workers that the cluster can have.

    Raises
    ------
    PlacementError
        Says how many are missing, who holds those that there are, and what to do.
    """
    check_gpus_fit(spec, slots)
    ranks = spec.verb.ranks
    n_ranks, n_slots = ranks.n_fewest, max(n_possible, slots.n_slots)
    if not ranks.is_group or n_ranks <= n_slots:
        return
    raise PlacementError(
        f"{format_counted(n_ranks, 'rank')} need as many slots, the cluster has {n_slots}"
        f"{_usage(slots)}; `%cluster scale {n_ranks}`, or pass {ranks.ranks_option} "
        f"{max(1, n_slots)}",
        n_ranks=n_ranks,
        n_slots=n_slots,
        n_free=slots.n_free,
        holders=slots.holders(),
    )


def check_gpus_fit(spec: RunSpec, slots: SlotBook) -> None:
    """Refuse GPUs that the workers do not have, with what they say of theirs.

    Raises
    ------
    PlacementError
        Names the option, what there is, and what to pass instead.
    """
    ranks = spec.verb.ranks
    n_gpus, n_ranks, option = ranks.gpus_per_rank, ranks.n_fewest, ranks.gpus_option
    if not n_gpus:
        return
    n_workers, gpus = len(list(slots.addresses())), slots.gpus
    workers = "the worker" if n_workers == 1 else f"the {n_workers} workers"
    if not gpus.n_gpus:
        state = f" ({gpus.why_none()})" if gpus.why_none() else ""
        raise PlacementError(
            f"{option}: {workers} of this cluster {'has' if n_workers == 1 else 'have'} no GPU"
            f"{state}; leave the option out to run on CPUs, or use workers that have GPUs",
            n_gpus=n_gpus,
        )
    n_fitting = slots.n_placeable(n_gpus)
    if n_fitting >= min(n_ranks, slots.n_slots):
        return  # more workers than there are now bring theirs
    raise PlacementError(
        f"{option}: {format_counted(n_ranks, 'rank')} need "
        f"{format_counted(n_gpus * n_ranks, 'GPU')}, {workers} of this cluster "
        f"{'has' if n_workers == 1 else 'have'} {gpus.n_gpus}, enough for "
        f"{format_counted(n_fitting, 'rank')}; ask for fewer GPUs or ranks",
        n_gpus=n_gpus,
    )


def waiting_text(run_id: str, n_ranks: int, slots: SlotBook, gpus_per_rank: int = 0) -> str:
    """Why a group of ``n_ranks`` does not begin, in one sentence with what helps."""
    n_slots = slots.n_slots
    if n_slots < n_ranks:
        return (
            f"{_waiting(n_ranks)}: the cluster has {format_counted(n_slots, 'slot')} at present"
            f"{_usage(slots)}; lost workers are replaced, `%cluster scale {n_ranks}` adds others"
        )
    if gpus_per_rank and slots.n_free >= n_ranks:
        gpus = slots.gpus
        held = _held(gpus.holders())
        return (
            f"{_waiting(n_ranks)} for {format_counted(n_ranks * gpus_per_rank, 'GPU')}: "
            f"{gpus.n_free} of {gpus.n_gpus} free{held}; {_stop(run_id, gpus.holders())}or wait"
        )
    return (
        f"{_waiting(n_ranks)}: the cluster has {format_counted(n_slots, 'slot')}"
        f"{_usage(slots)}; {_stop(run_id, slots.holders())}`%cluster scale N`, or wait"
    )


def _waiting(n_ranks: int) -> str:
    return "1 rank waits" if n_ranks == 1 else f"{n_ranks} ranks wait"


def _stop(run_id: str, holders: dict[str, int]) -> str:
    others = {run: n for run, n in holders.items() if run != run_id}
    return f"`%runs stop {max(others, key=lambda run: others[run])}`, " if others else ""


def _usage(slots: SlotBook) -> str:
    return f", {slots.n_free} free{_held(slots.holders())}"


def _held(holders: dict[str, int]) -> str:
    held = ", ".join(f"{n} held by run {run}" for run, n in holders.items())
    return f" ({held})" if held else ""


def round_notices(
    spec: RunSpec, state: RunState, trial: TrialAssignment, place: RankPlace, now_s: float
) -> list[Event]:
    """What the user is told when a ddp run begins another round, or a smaller one."""
    if not spec.verb.can.has_ranks:
        return []
    n_ranks = place.world_size - len(place.absent)
    size = "" if n_ranks == spec.n_ranks else f" with {n_ranks} of {spec.n_ranks} ranks"
    later = "; the others join when some are" if place.absent else ""
    if trial.attempt == 1:
        return [Notice(now_s, f"started{size}: no more slots are free{later}")] if size else []
    saved = state.trials[trial.trial].checkpoint
    if saved is None:
        text = f"restarted{size} from the beginning: the cell saved no checkpoint"
        return [Notice(now_s, text)]
    return [Notice(now_s, f"restarted{size} from the checkpoint at step {saved.step}")]


class AdmissionTimeout:
    """How long a rank group waits for its slots.  All times are monotonic seconds.

    Parameters
    ----------
    timeout_s : float, optional
        For slots, whatever keeps them from being free.  None: as long as other runs use them, and
        ten minutes for what does not change by itself.
    """

    def __init__(
        self,
        run_id: str,
        n_fewest: int,
        slots: SlotBook,
        timeout_s: float | None,
        gpus_per_rank: int = 0,
    ) -> None:
        self._run_id = run_id
        self._n_fewest = n_fewest
        self._slots = slots
        self._timeout_s = timeout_s
        self._gpus_per_rank = gpus_per_rank
        self._waiting_since_s: float | None = None
        self._stuck_since_s: float | None = None

    def check(self, now_s: float, *, is_waiting: bool) -> None:
        """Follow the wait; ``is_waiting``: a group could begin if it had slots.

        Raises
        ------
        PlacementError
            It has waited for too long; names who holds the slots.
        """
        if not is_waiting:
            self._waiting_since_s = self._stuck_since_s = None
            return
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        if not self._is_stuck:
            self._stuck_since_s = None
        elif self._stuck_since_s is None:
            self._stuck_since_s = now_s
        due_s = self.due_s
        if due_s is None or now_s < due_s:
            return
        if self._timeout_s is not None:
            raise self._error(now_s - self._waiting_since_s, "--admission-timeout")
        since_s = now_s if self._stuck_since_s is None else self._stuck_since_s
        raise self._error(now_s - since_s, "slots that do not become free")

    @property
    def due_s(self) -> float | None:
        """When it has waited for too long, unless something changes."""
        if self._waiting_since_s is None:
            return None
        if self._timeout_s is not None:
            return self._waiting_since_s + self._timeout_s
        return None if self._stuck_since_s is None else self._stuck_since_s + _STUCK_S

    @property
    def _is_stuck(self) -> bool:
        slots = self._slots
        n_kept = sum(slots.kept().values())
        return min(slots.n_slots - n_kept, slots.n_placeable(self._gpus_per_rank)) < self._n_fewest

    def _error(self, waited_s: float, why: str) -> PlacementError:
        text = waiting_text(self._run_id, self._n_fewest, self._slots, self._gpus_per_rank)
        return PlacementError(
            f"given up after waiting {waited_s:.0f} s for slots ({why}): {text}",
            waited_s=waited_s,
            holders=self._slots.holders(),
        )
