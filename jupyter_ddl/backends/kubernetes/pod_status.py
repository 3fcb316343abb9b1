"""The state of a cluster's pods while it starts, and room that ending pods will free.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

__all__ = [
    "ComingRoom",
    "View",
    "claims_of",
    "has_ended",
    "image_digest",
    "is_connecting",
    "is_ending",
    "is_ready",
    "is_scheduler",
    "progress",
    "statuses",
    "telling",
]


# What is seen of a cluster that starts, and how far its pods have come.  Pure.

Json = dict[str, Any]


class View(msgspec.Struct, frozen=True):
    """What was seen of a cluster that is starting."""

    name: str
    cluster: Json
    pods: Sequence[Json]
    events: Sequence[Json] = ()
    logs: Mapping[str, str] = {}
    """The last lines of pods that crashed, or run without having connected."""
    n_workers: int = 0
    n_connected: int = 0
    n_ending: int = 0
    """Pods of this namespace that have been deleted and still hold their room."""


def progress(view: View) -> str:
    """One line: how many pods are at which step."""
    steps = {"scheduled": 0, "pulling": 0, "starting": 0}
    for pod in view.pods:
        step = _step(pod, view.events)
        if step in steps:
            steps[step] += 1
    n_asked = max(1 + view.n_workers - len(view.pods), 0)
    n_waiting = sum(_step(pod, ()) == "waiting" for pod in view.pods)
    lacking = [
        f"{n} {what}"
        for n, what in ((n_asked, "asked for"), (n_waiting, "waiting for a node"))
        if n
    ]
    if lacking and view.n_ending:
        lacking[-1] += f" (ending pods that still hold room: {view.n_ending})"
    counts = lacking + [f"{n} {step}" for step, n in steps.items() if n]
    connected = f"{view.n_connected} of {view.n_workers} workers connected"
    return f"pods: {', '.join([*counts, connected])}"


def image_digest(pods: Iterable[Json], reference: str) -> str:
    """What the workers' image was resolved to; empty while no node has told.

    A node that has it from no registry knows its digest alone.
    """
    for pod in pods:
        if pod["metadata"]["labels"].get("dask.org/component") == "worker":
            for status in statuses(pod):
                if status.get("name") == "worker" and status.get("imageID"):
                    found = str(status["imageID"]).rpartition("://")[2]
                    return found if "@" in found else f"{reference}@{found}"
    return ""


def is_connecting(pod: Json) -> bool:
    """Whether its container runs."""
    return any("running" in each.get("state", {}) for each in statuses(pod))


def is_ending(pod: Json) -> bool:
    """Whether it has been deleted, and its node has not told of its end."""
    return "deletionTimestamp" in pod["metadata"]


def has_ended(pod: Json) -> bool:
    """Whether it has been deleted, and its node has told that no container of it runs."""
    return is_ending(pod) and bool(statuses(pod)) and not is_connecting(pod)


def is_ready(pod: Json) -> bool:
    """Whether Kubernetes takes it to serve."""
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def is_scheduler(pod: Json) -> bool:
    """The cluster's only other pods are workers."""
    return bool(pod["metadata"]["labels"].get("dask.org/component") == "scheduler")


def _step(pod: Json, events: Iterable[Json]) -> str:
    if not pod.get("spec", {}).get("nodeName"):
        return "waiting"
    if is_connecting(pod):
        return "starting"
    name = pod["metadata"]["name"]
    seen = {e["reason"] for e in events if e.get("involvedObject", {}).get("name") == name}
    return "pulling" if "Pulling" in seen and "Pulled" not in seen else "scheduled"


def claims_of(pod: Json) -> list[str]:
    """The names of the claims that it mounts."""
    volumes: list[Json] = pod.get("spec", {}).get("volumes", [])
    found = (each.get("persistentVolumeClaim", {}).get("claimName") for each in volumes)
    return [str(name) for name in found if name]


def statuses(pod: Json) -> list[Json]:
    """Of its containers, as far as a node has told."""
    found: list[Json] = pod.get("status", {}).get("containerStatuses", [])
    return found


def telling(found: Sequence[Json], *, is_silent: bool) -> tuple[str, bool] | None:
    """The container whose log is worth reading, and whether it is the log of its life before.

    Parameters
    ----------
    is_silent : bool
        The pod runs, and has not got to its work for some time.
    """
    for each in found:
        if "terminated" in each.get("state", {}):
            return str(each["name"]), False  # nodes keep the log of the newest end only
        if "terminated" in each.get("lastState", {}):
            return str(each["name"]), True
    return (str(found[0]["name"]), False) if is_silent and found else None


_ENDING_S = 90.0
"""Pods that have not ended by then are on a node that is lost: their room does not come free."""


class ComingRoom:
    """What lack of room may be held against a cluster, as other pods end.

    Parameters
    ----------
    clock : callable
        Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since_s: float | None = None
        self.none_before_s = float("-inf")
        """When lack of room may be believed at the earliest.

        Kubernetes tries a pod that a quota has refused again after as long as it has waited.
        """

    def n_ending(self, pods: Iterable[Json]) -> int:
        """How many of these pods are about to set room free."""
        n_ending = sum(map(is_ending, pods))
        if not n_ending:
            self._since_s = None
            return 0
        now_s = self._clock()
        if self._since_s is None:
            self._since_s = now_s
        waited_s = now_s - self._since_s
        if waited_s > _ENDING_S:
            return 0
        self.none_before_s = now_s + waited_s
        return n_ending
