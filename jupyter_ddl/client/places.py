"""Where the ranks of a group would run now: what ``--dry-run`` tells beyond the cell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from jupyter_ddl.client.session import session
from jupyter_ddl.controller.connection import list_connections
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.events.replies import StatusResult
from jupyter_ddl.events.status import ClusterStatus
from jupyter_ddl.spec.requests import GetStatus
from jupyter_ddl.spec.run import DdpSpec, SearchSpec

if TYPE_CHECKING:
    from jupyter_ddl.cell.compile import CompiledCell

__all__ = ["cluster_now", "places_now"]

_TIMEOUT_S = 5.0
_N_SHOWN = 16


def places_now(compiled: CompiledCell) -> list[str]:
    """Lines about the slots that the ranks of a run would take; none for runs without groups."""
    verb = compiled.verb
    n_ranks = 0
    if isinstance(verb, DdpSpec):
        n_ranks = verb.n_ranks
    elif isinstance(verb, SearchSpec) and verb.ranks_per_trial > 1:
        n_ranks = verb.ranks_per_trial
    if not n_ranks:
        return []
    status = _status()
    if status is None:
        return ["Places: no cluster is running; a local one would be started"]
    return list(_places(status, n_ranks))


def cluster_now() -> str | None:
    """Name of the cluster that a run would go to; None where one would be started."""
    current = session().current
    running = [info.name for info in list_connections()]
    if current not in running:
        current = running[0] if len(running) == 1 and current is None else None
    return current


def _status() -> ClusterStatus | None:
    """Of the cluster that a run would go to; None where one would be started."""
    current = cluster_now()
    if current is None:
        return None
    try:
        answer = session().ask(current, GetStatus(), _TIMEOUT_S)
    except ClusterError:
        return None  # it ended in this moment
    return answer.status if isinstance(answer, StatusResult) else None


def _places(status: ClusterStatus, n_ranks: int) -> Iterator[str]:
    free = [
        worker
        for worker in sorted(status.workers, key=lambda each: each.address)
        for _ in range(worker.n_slots - worker.n_busy)
    ]
    if len(free) < n_ranks:
        held = f", {', '.join(status.active_runs)} hold the rest" if status.active_runs else ""
        yield (
            f"Places: cluster {status.name} has {len(free)} of {status.n_slots} slots free{held}; "
            f"the ranks would wait for {n_ranks}"
        )
        return
    shown = [f"rank {at} → {free[at].name} ({free[at].host})" for at in range(n_ranks)][:_N_SHOWN]
    more = f", {n_ranks - _N_SHOWN} more" if n_ranks > _N_SHOWN else ""
    yield f"Places now, on cluster {status.name}: {', '.join(shown)}{more}"
