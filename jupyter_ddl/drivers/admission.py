"""Whether a rank group fits on the cluster, and what it waits for.  Pure."""

from __future__ import annotations

import msgspec

from jupyter_ddl.errors import PlacementError
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.run import RunSpec

__all__ = [
    "admitted",
    "check_gpus_fit",
    "check_group_fits",
    "waiting_text",
    "wants_gpus",
]


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
        f"{_count(n_ranks, 'rank')} need as many slots, the cluster has {n_slots}"
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
        f"{option}: {_count(n_ranks, 'rank')} need {_count(n_gpus * n_ranks, 'GPU')}, {workers} of "
        f"this cluster {'has' if n_workers == 1 else 'have'} {gpus.n_gpus}, enough for "
        f"{_count(n_fitting, 'rank')}; ask for fewer GPUs or ranks",
        n_gpus=n_gpus,
    )


def waiting_text(run_id: str, n_ranks: int, slots: SlotBook, gpus_per_rank: int = 0) -> str:
    """Why a group of ``n_ranks`` does not begin, in one sentence with what helps."""
    n_slots = slots.n_slots
    if n_slots < n_ranks:
        return (
            f"{_waiting(n_ranks)}: the cluster has {_count(n_slots, 'slot')} at present"
            f"{_usage(slots)}; lost workers are replaced, `%cluster scale {n_ranks}` adds others"
        )
    if gpus_per_rank and slots.n_free >= n_ranks:
        gpus = slots.gpus
        held = _held(gpus.holders())
        return (
            f"{_waiting(n_ranks)} for {_count(n_ranks * gpus_per_rank, 'GPU')}: "
            f"{gpus.n_free} of {gpus.n_gpus} free{held}; {_stop(run_id, gpus.holders())}or wait"
        )
    return (
        f"{_waiting(n_ranks)}: the cluster has {_count(n_slots, 'slot')}"
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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
