"""What a framework that owns the training loop tells the attempt in progress.

The modules beside this one register a callback with their framework; the callback speaks to
:class:`Loop`.  Nothing of it may end a training that would go on without it: whatever fails here is
one notice.  Only a stop that the run asks for passes through.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from jupyter_ddl.ranks.metrics import as_number

__all__ = ["Loop", "LoopAttempt", "current_loop", "set_loop", "telling"]

_KIND = "framework"
_MAX_TENSORS = 16
_MAX_ELEMENTS = 256
_CLOSE = 1e-3
"""Ranks on hosts of different kinds differ in the last bits of a step."""
MAX_BYTES = 4 * 2**30
"""A checkpoint that is larger stays where the framework has written it."""


class LoopAttempt(Protocol):
    """What a loop needs of its attempt."""

    rank: int
    world_size: int

    @property
    def objective(self) -> str | None: ...
    @property
    def speaks_for_itself(self) -> bool: ...
    @property
    def side_folder(self) -> str: ...
    def record(self, step: int, metrics: Mapping[str, float]) -> None: ...
    def checkpoint(self, step: int | None, state: Mapping[str, Any]) -> None: ...
    def resume(self) -> dict[str, Any] | None: ...


class Loop:
    """The training loops of one attempt, whichever framework owns them.

    Parameters
    ----------
    notice : callable
        Takes a sentence for the user.
    store : torch.distributed.Store, optional
        The group's own; without it, nobody compares parameters.
    own_calls : collection of str
        Which of ``report``, ``checkpoint`` and ``resume`` the cell calls: there it speaks for
        itself.
    """

    def __init__(
        self,
        attempt: LoopAttempt,
        notice: Callable[[str], None],
        store: Any = None,
        own_calls: Sequence[str] = (),
    ) -> None:
        self.attempt = attempt
        self._notice = notice
        self._store = store
        self.reports = "report" not in own_calls
        self.saves = not {"checkpoint", "resume"} & {*own_calls}
        self._told: set[str] = set()
        self._shift = 0
        self._last = -1
        self._values: dict[str, float] = {}
        self._resumed: dict[str, Any] | None = None
        self._asked = False
        self._compared = False
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is the process and the thread that the attempt belongs to."""
        mine = os.getpid() == self._pid
        return mine and threading.current_thread() is threading.main_thread()

    def report(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Record what a framework logs; what is not a number is left out.

        Frameworks log a step in several parts, and a second training of a cell counts from 0
        again: its steps follow those of the first.
        """
        if not self.reports or self.attempt.speaks_for_itself:
            return
        numbers = {
            name: number
            for name, value in values.items()
            if (number := as_number(value)) is not None
        }
        if not numbers:
            return
        at = self._last + 1 if step is None else int(step) + self._shift
        if at == self._last:
            more = {name: each for name, each in numbers.items() if not self._is_known(name, each)}
            if self._values.keys().isdisjoint(more):
                self._values |= more
                if more:
                    self.attempt.record(at, more)
                return
        if at <= self._last and step is not None:
            at = self._last + 1
            self._shift = at - int(step)
        self._last, self._values = at, numbers
        self.attempt.record(at, numbers)

    def _is_known(self, name: str, value: float) -> bool:
        known = self._values.get(name)
        return known is not None and (known == value or (math.isnan(known) and math.isnan(value)))

    def save(self, framework: str, step: int, state: Mapping[str, Any]) -> None:
        """Save what a framework has saved; on rank 0 of a group."""
        if self.saves and self.attempt.rank == 0:
            self.attempt.checkpoint(int(step) + self._shift, {_KIND: framework, **state})

    def resumed(self, framework: str) -> dict[str, Any] | None:
        """What an earlier attempt saved, for the first loop of this framework that asks."""
        if not self.saves:
            return None
        if not self._asked:
            self._asked = True
            self._resumed = self.attempt.resume()
        state = self._resumed
        if state is None or state.get(_KIND) != framework:
            return None
        self._resumed = None
        return state

    def tell(self, text: str) -> None:
        """A sentence for the user, once per attempt."""
        if text not in self._told:
            self._told.add(text)
            self._notice(text)

    def spans(self, framework: str, n_ranks: int, way_out: str) -> None:
        """Say so if the framework takes fewer ranks for its training than there are.

        Parameters
        ----------
        n_ranks : int
            How many the framework believes to be.
        way_out : str
            What it needs; ``{n}`` is the number of ranks.
        """
        n = self.attempt.world_size
        if n > 1 and n_ranks < n and self.attempt.rank == 0:
            self.tell(f"{n} ranks train separately: {framework} {way_out.format(n=n)}")

    def compare(self, framework: str, model: Any) -> None:
        """Compare the ranks' parameters, once; no rank waits for another one.

        Whoever comes last has the numbers of all, and tells.
        """
        if self._compared or self._store is None or self.attempt.world_size == 1:
            return
        self._compared = True
        mine = digest(model)
        if not mine:
            return
        n, store, prefix = self.attempt.world_size, self._store, "jupyter_ddl/parameters"
        store.set(f"{prefix}/{self.attempt.rank}", json.dumps(mine))
        if store.add(f"{prefix}/n", 1) < n:
            return
        all_of_them = [json.loads(each) for each in store.multi_get(
            [f"{prefix}/{rank}" for rank in range(n)]
        )]  # fmt: skip
        if any(not _alike(each, all_of_them[0]) for each in all_of_them[1:]):
            self.tell(
                f"{n} ranks trained separately: after the first epoch of {framework} their "
                f"parameters differ; is the model wrapped (prepare(model), "
                f"DistributedDataParallel)?"
            )


def digest(model: Any) -> list[float]:
    """A few numbers of a torch model's parameters; none if they are spread over ranks."""
    tensors = [each for each in model.parameters() if each.requires_grad]
    if not tensors or any(hasattr(each, "device_mesh") for each in tensors):
        return []
    if any("FullyShardedDataParallel" in type(each).__name__ for each in model.modules()):
        return []
    stride = -(-len(tensors) // _MAX_TENSORS)
    chosen = tensors[::stride]
    return [float(each.detach().reshape(-1)[:_MAX_ELEMENTS].double().sum()) for each in chosen]


def _alike(ours: list[float], theirs: list[float]) -> bool:
    return len(ours) == len(theirs) and all(
        math.isclose(a, b, rel_tol=_CLOSE, abs_tol=_CLOSE * 0.1)
        or (math.isnan(a) and math.isnan(b))
        for a, b in zip(ours, theirs, strict=True)
    )


_loop: Loop | None = None


def set_loop(loop: Loop | None) -> None:
    """Name what the callbacks of this process speak to; None: nobody listens."""
    global _loop
    _loop = loop


def current_loop() -> Loop | None:
    """The loop of the attempt in progress, seen from its own process and thread."""
    return _loop if _loop is not None and _loop.is_here else None


def telling(framework: str, step: Callable[[Loop], Any]) -> Any:
    """Do something for the run beside a training, which goes on whatever comes of it."""
    loop = current_loop()
    if loop is None:
        return None
    try:
        return step(loop)
    except Exception as error:  # noqa: BLE001 - any version of a framework, and any model
        loop.tell(
            f"{framework}: reporting by itself failed: {type(error).__name__}: {error}; the "
            f"training goes on"
        )
        return None
