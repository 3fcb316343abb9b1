"""Which workers go when a cluster shrinks.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["worker_name", "worker_names_to_stop"]

Json = dict[str, Any]


def worker_names_to_stop(
    pods: Sequence[Json], connected: Mapping[str, str], keep: Sequence[str], n_workers: int
) -> tuple[str, ...]:
    """Names of the workers to stop so that ``n_workers`` are left.

    Those that have not connected go first, those whose addresses are in ``keep`` last.

    Parameters
    ----------
    connected : mapping of str to str
        Name to address of the workers that the scheduler knows.
    """
    kept = frozenset(keep)

    def worth(name: str) -> tuple[bool, bool, str]:
        address = connected.get(name)
        return (address is not None, address in kept, name)

    alive = {
        name
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"] and (name := worker_name(pod)) is not None
    }
    ordered = sorted(alive, key=worth)
    return tuple(ordered[: max(0, len(ordered) - n_workers)])


def worker_name(pod: Json) -> str | None:
    """The Dask worker in a pod: the operator names it in its environment."""
    for container in pod["spec"]["containers"]:
        for variable in container.get("env", []):
            if variable["name"] == "DASK_WORKER_NAME":
                return str(variable["value"])
    return None
