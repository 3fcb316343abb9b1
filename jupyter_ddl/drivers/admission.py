"""Whether a rank group fits on the cluster, and what it waits for.  Pure."""

from __future__ import annotations

from jupyter_ddl.errors import PlacementError
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.spec.run import DdpSpec, RunSpec, SearchSpec

__all__ = ["check_group_fits", "n_fewest", "waiting_text"]


def n_fewest(spec: RunSpec) -> int:
    """The smallest number of ranks that a group of this run can begin with."""
    verb = spec.verb
    if isinstance(verb, DdpSpec) and verb.min_ranks is not None:
        return verb.min_ranks
    return spec.n_ranks


def check_group_fits(spec: RunSpec, slots: SlotBook, n_possible: int) -> None:
    """Refuse a group that the cluster can never have slots for.

    Parameters
    ----------
    n_possible
        The most workers that the cluster can have.

    Raises
    ------
    PlacementError
        Says how many are missing, who holds those that there are, and what to do.
    """
    if not spec.is_grouped:
        return
    _check_gpus(spec)
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


def _check_gpus(spec: RunSpec) -> None:
    verb = spec.verb
    match verb:
        case DdpSpec(gpus_per_rank=n_gpus):
            option = "--gpus-per-rank"
        case SearchSpec(gpus_per_trial=n_gpus):
            option = "--gpus-per-trial"
        case _:
            return
    if n_gpus:
        raise PlacementError(
            f"{option} {n_gpus}: the workers of this cluster have no GPUs; leave the option out to "
            f"train on CPUs, or connect a cluster whose workers have them",
            n_gpus=n_gpus,
        )


def waiting_text(run_id: str, n_ranks: int, slots: SlotBook) -> str:
    """Why a group of ``n_ranks`` does not begin, in one sentence with what helps."""
    n_slots = slots.n_slots
    if n_slots < n_ranks:
        return (
            f"{_count(n_ranks, 'rank')} wait: the cluster has {_count(n_slots, 'slot')} at present"
            f"{_usage(slots)}; lost workers are replaced, `%cluster scale {n_ranks}` adds others"
        )
    others = {run: n for run, n in slots.holders().items() if run != run_id}
    stop = f"`%runs stop {max(others, key=lambda run: others[run])}`, " if others else ""
    return (
        f"{_count(n_ranks, 'rank')} wait: the cluster has {_count(n_slots, 'slot')}"
        f"{_usage(slots)}; {stop}`%cluster scale N`, or wait"
    )


def _usage(slots: SlotBook) -> str:
    holders = slots.holders()
    held = ", ".join(f"{n} held by run {run}" for run, n in holders.items())
    return f", {slots.n_free} free" + (f" ({held})" if held else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
