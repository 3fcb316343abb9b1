"""Whether a rank group fits on the cluster, and what it waits for.  Pure."""

from __future__ import annotations

import msgspec

from jupyter_ddl.errors import PlacementError
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.run import DdpSpec, GroupSpec, RunSpec, SearchSpec

__all__ = [
    "check_gpus_fit",
    "check_group_fits",
    "n_fewest",
    "waiting_text",
    "wants_gpus",
    "with_gpus",
]


def n_fewest(spec: RunSpec) -> int:
    """The smallest number of ranks that a group of this run can begin with."""
    verb = spec.verb
    if isinstance(verb, DdpSpec) and verb.min_ranks is not None:
        return verb.min_ranks
    return spec.n_ranks


def wants_gpus(spec: RunSpec) -> bool:
    """Whether the answer depends on what GPUs the workers have."""
    is_open = isinstance(spec.verb, DdpSpec | GroupSpec) and spec.verb.gpus_per_rank is None
    return is_open or spec.gpus_per_rank > 0


def with_gpus(spec: RunSpec, slots: SlotBook) -> RunSpec:
    """Decide how many GPUs each rank gets where the user has left that open."""
    verb = spec.verb
    if not isinstance(verb, DdpSpec | GroupSpec) or verb.gpus_per_rank is not None:
        return spec
    has_all = slots.gpus.suits_torch and slots.n_placeable(1) >= spec.n_ranks
    n_gpus = int(verb.backend == "nccl" or (verb.backend == "auto" and has_all))
    return msgspec.structs.replace(spec, verb=msgspec.structs.replace(verb, gpus_per_rank=n_gpus))


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
    if not spec.is_grouped:
        return
    n_ranks, n_slots = n_fewest(spec), max(n_possible, slots.n_slots)
    if n_ranks <= n_slots:
        return
    option = "--ranks-per-trial" if isinstance(spec.verb, SearchSpec) else "-n"
    raise PlacementError(
        f"{_count(n_ranks, 'rank')} need as many slots, the cluster has {n_slots}"
        f"{_usage(slots)}; `%cluster scale {n_ranks}`, or pass {option} {max(1, n_slots)}",
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
    n_gpus, n_ranks = spec.gpus_per_rank, n_fewest(spec)
    if not n_gpus:
        return
    option = _gpu_option(spec)
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


def _gpu_option(spec: RunSpec) -> str:
    """What on the line asks for GPUs."""
    if isinstance(spec.verb, SearchSpec):
        return f"--gpus-per-trial {spec.gpus_per_rank * spec.n_ranks}"
    if isinstance(spec.verb, DdpSpec | GroupSpec) and spec.verb.backend == "nccl":
        return "--backend nccl" + _each(spec.gpus_per_rank)
    return f"--gpus-per-rank {spec.gpus_per_rank}"


def _each(n_gpus: int) -> str:
    return "" if n_gpus == 1 else f" --gpus-per-rank {n_gpus}"


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
