"""Who may use which GPU: whole ones, by UUID, never two ranks at a time.

Pure bookkeeping beside that of slots.  Workers of one host see the same GPUs, so what counts is the
UUID, and not which worker told of it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from jupyter_ddl.protocol.group import SeenGpus

__all__ = ["GpuBook", "Grant", "device_text"]

_COOLING_S = 3.0
"""Of a GPU whose worker was lost: its ranks are being killed, and their memory goes with them."""


class Grant(NamedTuple):
    """Places that a run holds: a worker per rank, and the GPUs of each rank."""

    workers: tuple[str, ...]
    gpus: tuple[tuple[str, ...], ...] = ()


class GpuBook:
    """GPUs of the connected workers, and the runs that hold them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, SeenGpus] = {}
        self._holder: dict[str, tuple[str, str]] = {}  # UUID -> run, worker
        self._cooling: dict[str, float] = {}  # UUID -> until when

    def set_workers(self, seen: Mapping[str, SeenGpus]) -> None:
        """Replace what is known; what ranks of lost workers held is free a little later."""
        self._seen = dict(seen)
        for uuid, (_, worker) in tuple(self._holder.items()):
            if worker not in self._seen:
                self._release(uuid)

    @property
    def n_gpus(self) -> int:
        return len(self._names)

    @property
    def n_free(self) -> int:
        return sum(map(self._is_free, self._names))

    @property
    def suits_torch(self) -> bool:
        """Whether every worker that sees GPUs has a torch that can use them."""
        having = [seen for seen in self._seen.values() if seen.names]
        return bool(having) and all(seen.used_by_torch for seen in having)

    def why_none(self) -> str:
        """Why there are no GPUs, as most workers say; empty where there are some."""
        states = Counter(seen.state for seen in self._seen.values() if seen.state)
        return "" if self._names or not states else states.most_common(1)[0][0]

    def holders(self) -> dict[str, int]:
        """GPUs held, by run."""
        return dict(Counter(run_id for run_id, _ in self._holder.values()))

    def kinds_held(self) -> dict[str, Counter[str]]:
        """GPUs held, by run and by name."""
        names = self._names
        held: dict[str, Counter[str]] = {}
        for uuid, (run_id, _) in self._holder.items():
            held.setdefault(run_id, Counter())[names.get(uuid, "")] += 1
        return held

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the GPUs that there are, each once."""
        return tuple(sorted(set(self._names.values())))

    def texts(self, gpus: Sequence[Sequence[str]]) -> tuple[str, ...]:
        """What to call the device of each rank."""
        names = self._names
        return tuple(device_text(each, names) for each in gpus)

    def n_placeable(self, slots: Sequence[str], per_rank: int, *, if_all_free: bool) -> int:
        """How many ranks with ``per_rank`` GPUs find room on these slots."""
        return len(self._choose(slots, len(slots), per_rank, if_all_free=if_all_free))

    def choose(self, slots: Sequence[str], n_ranks: int, per_rank: int) -> Grant | None:
        """A slot with ``per_rank`` free GPUs for each rank, all or none; nothing is held yet."""
        chosen = self._choose(slots, n_ranks, per_rank, if_all_free=False)
        if len(chosen) < n_ranks:
            return None
        return Grant(tuple(worker for worker, _ in chosen), tuple(gpus for _, gpus in chosen))

    def _choose(
        self, slots: Sequence[str], n_ranks: int, per_rank: int, *, if_all_free: bool
    ) -> list[tuple[str, tuple[str, ...]]]:
        # GPUs of two workers are the same ones or none of them is, so the first that fits is right.
        chosen: list[tuple[str, tuple[str, ...]]] = []
        taken: set[str] = set()
        for worker in slots:
            seen = self._seen.get(worker, SeenGpus())
            free = [u for u in seen.names if u not in taken and (if_all_free or self._is_free(u))]
            if len(chosen) == n_ranks or len(free) < per_rank:
                continue
            chosen.append((worker, tuple(free[:per_rank])))
            taken.update(free[:per_rank])
        return chosen

    def hold(self, run_id: str, grant: Grant) -> None:
        for worker, gpus in zip(grant.workers, grant.gpus, strict=True):
            for uuid in gpus:
                self._holder[uuid] = (run_id, worker)

    def give(self, run_id: str, gpus: Sequence[str]) -> None:
        """Return GPUs; harmless for those that this run no longer holds."""
        for uuid in gpus:
            if self._holder.get(uuid, ("", ""))[0] == run_id:
                self._release(uuid)

    def leave(self, run_id: str) -> None:
        """A run holds nothing any more."""
        self.give(run_id, [u for u, (holder, _) in self._holder.items() if holder == run_id])

    def _release(self, uuid: str) -> None:
        _, worker = self._holder.pop(uuid)
        if worker not in self._seen:
            self._cooling[uuid] = self._clock() + _COOLING_S

    def _is_free(self, uuid: str) -> bool:
        return uuid not in self._holder and self._cooling.get(uuid, 0.0) <= self._clock()

    @property
    def _names(self) -> dict[str, str]:
        return {uuid: name for seen in self._seen.values() for uuid, name in seen.names.items()}


def device_text(gpus: Sequence[str], names: Mapping[str, str]) -> str:
    """``cuda GPU-ab12cd34 NVIDIA H100``, with the UUID's first part; ``cpu`` without GPUs."""
    if not gpus:
        return "cpu"
    which = ", ".join("-".join(uuid.split("-")[:2]) for uuid in gpus)
    kinds = dict.fromkeys(names[uuid] for uuid in gpus if names.get(uuid))
    return " ".join(["cuda", which, *kinds])
