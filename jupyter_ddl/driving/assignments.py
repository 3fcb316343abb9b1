"""Builds assignments: what a batch of attempts, or a rank of a group, needs to know.  Pure."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from jupyter_ddl.placement.gpus import Grant
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.assignment import Assignment, TrialAssignment
from jupyter_ddl.protocol.folder import WorkFolder
from jupyter_ddl.protocol.group import RankPlace, n_servers
from jupyter_ddl.protocol.prices import Reading
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.telemetry import Usage

__all__ = [
    "RunContext",
    "by_rank",
    "joining_place",
    "make_assignment",
    "make_group",
    "place_ranks",
]

_COLLECTIVE_TIMEOUT_S = 1800.0
"""Torch's own default."""
_NO_PLACES = Grant(())


@dataclass(frozen=True)
class RunContext:
    """What a run knows of its controller and shares with the controller's other runs."""

    slots: SlotBook
    topic: str
    """Dask topic on which ranks publish their events."""
    run_dir: Path
    blob_dirs: tuple[str, ...]
    program_digest: str
    pid: int
    host_of: Callable[[str], str]
    """Address of a worker's host."""
    n_wanted: Callable[[], int]
    """Workers that the cluster was asked for."""
    make_room: Callable[[int], int] = lambda _: 0
    """Bytes that may be had on disk for copies of captured values, given how many are wanted."""
    usage: Callable[[str], Usage | None] = lambda _: None
    """What a run has held so far, by its id."""
    read_meter: Callable[[], Reading | None] = lambda: None
    """What this run has held and cost so far, and does now."""
    attempt_lease_s: float = 60.0
    """Without a word of an assignment, or its worker's that it executes it, for so long: it is
    repeated elsewhere."""
    new_token: Callable[[], str] = lambda: secrets.token_hex(16)
    """Something that nobody can guess: ranks of a group know each other by it."""


def make_assignment(
    spec: RunSpec,
    context: RunContext,
    trials: Sequence[TrialAssignment],
    assignment_id: str,
    *,
    fresh: bool,
    best_value: float | None,
    place: RankPlace | None = None,
    places: Grant = _NO_PLACES,
) -> Assignment:
    """One assignment of a run; ``best_value`` is the objective that brought values must beat."""
    study, items = spec.verb.study, spec.verb.items
    return Assignment(
        run_id=spec.run_id,
        assignment_id=assignment_id,
        program=context.program_digest,
        trials=tuple(trials),
        run_dir=str(context.run_dir),
        blob_dirs=context.blob_dirs,
        topic=context.topic,
        bring=spec.bring,
        best_value=best_value if spec.bring else None,
        # A process sees the GPUs that it had when it first used one, whatever it is told later.
        fresh_process=fresh or bool(places.gpus),
        place=place,
        gpus=places.gpus[0] if places.gpus else (),
        stop_grace_s=spec.limits.stop_grace_s,
        folder=WorkFolder(spec.folder),
        bring_files=spec.bring_files,
        profile=spec.profile or 0,
        warm=spec.warm,
        metric=study.metric if study else None,
        mode=study.mode if study else "max",
        over=items.over if items else None,
        element=items.element if items else None,
    )


def make_group(
    spec: RunSpec,
    context: RunContext,
    trial: TrialAssignment,
    assignment_id: str,
    places: Grant,
    best_value: float | None,
) -> list[Assignment]:
    """One assignment per rank of a group, each with its place in it.

    With fewer places than ranks a group begins without the others where it can take them in later;
    else it has only so many ranks.
    """
    hosts = [context.host_of(worker) for worker in places.workers]
    ranks = spec.verb.ranks
    base = RankPlace(
        group_id=f"{spec.run_id}-{trial.trial}-{trial.attempt}-{context.new_token()}",
        restart_count=trial.attempt - 1,
        max_restarts=spec.limits.max_own_failures - 1,
        # The hang watch judges first, and says more than a timeout of the collective would.
        timeout_s=_COLLECTIVE_TIMEOUT_S,
        backend=ranks.backend,
        initialize=ranks.initialize,
        strategy=ranks.strategy,
        strategy_options=ranks.strategy_options,
        token=context.new_token(),
    )
    return [
        make_assignment(
            spec,
            context,
            [trial],
            f"{assignment_id}-r{place.rank}",
            fresh=True,
            best_value=best_value,
            place=place,
        )
        for place in place_ranks(
            places.workers,
            hosts,
            base,
            places.gpus,
            n_ranks=ranks.n_ranks if base.goes_on and not places.gpus else None,
        )
    ]


def place_ranks(
    workers: Sequence[str],
    hosts: Sequence[str],
    base: RankPlace,
    gpus: Sequence[tuple[str, ...]] = (),
    n_ranks: int | None = None,
) -> list[RankPlace]:
    """Places of a new round on these workers: ranks of one host are neighbours.

    Parameters
    ----------
    workers, hosts
        One worker per rank, and the address of its host; sorted by host.
    base
        What all ranks have in common.
    gpus
        UUIDs of each rank's GPUs; empty: none has any.
    n_ranks : int, optional
        With more ranks than workers, the last of those that train are absent.
    """
    own = gpus or [()] * len(workers)
    here = list(zip(hosts, own, strict=True))
    order = list(dict.fromkeys(hosts))
    n_ranks = n_ranks or len(workers)
    n_workers = n_ranks - n_servers(base.strategy, base.strategy_options)
    absent = range(n_workers - (n_ranks - len(workers)), n_workers)
    seen: dict[str, int] = {}
    base = msgspec.structs.replace(
        base,
        world_size=n_ranks,
        absent=tuple(absent),
        n_hosts=len(order),
        hosts=tuple(order),
    )
    places = [msgspec.structs.replace(base, rank=rank) for rank in absent]
    present = [rank for rank in range(n_ranks) if rank not in absent]
    for number, (rank, host) in enumerate(zip(present, hosts, strict=True)):
        local_rank = seen[host] = seen.get(host, -1) + 1
        places.append(
            msgspec.structs.replace(
                base,
                rank=rank,
                local_rank=local_rank,
                local_world_size=hosts.count(host),
                group_rank=order.index(host),
                gpus=tuple(uuid for at, each in here if at == host for uuid in each),
                gpus_per_rank=len(own[number]),
            )
        )
    return sorted(places, key=lambda place: place.rank)


def by_rank(workers: Sequence[str], place: RankPlace) -> tuple[str, ...]:
    """The worker of each rank of a group; empty for those that are absent."""
    given = iter(workers)
    return tuple("" if rank in place.absent else next(given) for rank in range(place.world_size))


def joining_place(place: RankPlace, life: int, host: str, taken: Collection[int]) -> RankPlace:
    """The place of a rank that joins its round on a host of that address.

    Parameters
    ----------
    taken
        Local ranks of the others there.
    """
    hosts = place.hosts if host in place.hosts else (*place.hosts, host)
    return msgspec.structs.replace(
        place,
        life=life,
        hosts=hosts,
        group_rank=hosts.index(host),
        local_rank=min(set(range(len(taken) + 1)).difference(taken)),
        local_world_size=len(taken) + 1,
    )
