"""What a rank's training steps are made of: data, exchange of gradients, and the rest.

A step lasts from one optimizer's step to the next.  In the cell's thread two clocks are read for
it; nothing is added to a backward pass.  What leaves data and exchange over is called compute.

The exchange under DDP is torch's own measurement, of one iteration in a hundred (here, on CPUs, in
ten): from when a rank has computed its gradients until those of all ranks are averaged.  So it
includes waiting for slower ranks, and not what is hidden behind the backward pass.  What Python
code waits for in collectives is added (``collective_waits.py``): all of FSDP, and a cell's own; not
on GPUs.  There a host queues its work; over many steps its clock is right.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jupyter_ddl.protocol.events import StepsTimed
from jupyter_ddl.ranks.collective_waits import (
    CollectiveWaits,
    collective_waits,
    watch_collectives,
)
from jupyter_ddl.ranks.heartbeat import LoaderWatch
from jupyter_ddl.ranks.peak_memory import peak_memory_bytes
from jupyter_ddl.store.host_limits import host_limits

__all__ = ["StepTimes", "watch_exchanges", "watch_strategy"]

_MIN_GAP_S = 1.0
_N_PER_AGE = 30
"""It is told again when the thirtieth part of the time since the first step has passed."""
_LOOK_EVERY = 10
"""Steps between two looks at what DDP has measured; a look takes some 10 µs."""
_N_WARM_UP = 2
_N_SAMPLES = 64
_N_OPTIMIZERS = 8
"""Whose parameters are counted."""
_NORM_SHARE = 0.001
"""The gradients' norm may cost so much of the time."""

_models: weakref.WeakSet[Any] = weakref.WeakSet()
"""What this process has wrapped in DDP since its attempt began."""


_strategies: list[Any] = []
"""What makes the steps of the attempt at hand, by ``prepare_step``; at most one."""


def watch_strategy(strategy: Any) -> None:
    """Take note of what makes an attempt's steps, and knows what they send; None: nothing does."""
    _strategies[:] = [] if strategy is None else [strategy]


@functools.cache
def _n_cpus() -> int:
    """Asked for when steps are told: it takes 60 files, for which no rank waits to begin."""
    return host_limits().cpus


def _bytes_sent() -> int | None:
    return _strategies[0].bytes_sent if _strategies else None


class StepTimes:
    """Of one attempt; used on the thread that executes the cell.

    Parameters
    ----------
    send : callable
        Gets the sums so far: often at first, later more rarely.
    is_alone : bool
        Of one of many trials, each on one rank: told as seldom as it doubles, and not at all of a
        training that takes less than a second.
    """

    def __init__(
        self,
        trial: int,
        attempt: int,
        rank: int,
        loader: LoaderWatch,
        send: Callable[[StepsTimed], None],
        clock: Callable[[], float] = time.perf_counter,
        waits: CollectiveWaits = collective_waits,
        is_alone: bool = False,
    ) -> None:
        self._n_per_age = 1 if is_alone else _N_PER_AGE
        self._least_s = _MIN_GAP_S if is_alone else 0.0
        self._waits = waits
        waits.misses_some = False
        self._who = (trial, attempt, rank)
        self._loader = loader
        self._send = send
        self._clock = clock
        self._before: tuple[float, float, int, int, float, int] | None = None
        self._began_s = self._due_s = 0.0
        self._n_all = self._n_steps = self._n_told = 0
        self._step_s = self._data_s = 0.0
        self._n_samples = 0
        self._collective_s = 0.0
        self._n_collectives = 0
        self._exchanges = _Exchanges()
        self._norm: float | None = None
        self._norm_due_s = 0.0
        self._sizes = _Sizes()
        _models.clear()
        self._n_sent: int | None = None
        watch_strategy(None)

    def step(self, optimizer: Any) -> None:
        """An optimizer has made a step."""
        loader = self._loader
        now_s = self._clock()
        before = self._before
        waits = self._waits
        self._before = now = (
            now_s,
            loader.waited_s,
            loader.n_samples,
            loader.n_asides,
            waits.waited_s,
            waits.n_waits,
        )
        self._n_all = n_all = self._n_all + 1
        self._sizes.observe(optimizer)
        if before is None:
            self._began_s, self._due_s = now_s, now_s + _MIN_GAP_S
            return
        if now[3] == before[3]:  # else it has validated or saved in between, which is no step
            self._n_steps += 1
            self._step_s += now_s - before[0]
            self._data_s += now[1] - before[1]
            self._n_samples += now[2] - before[2]
            self._collective_s += now[4] - before[4]
            self._n_collectives += now[5] - before[5]
        if n_all <= _LOOK_EVERY or n_all % _LOOK_EVERY == 0:
            self._exchanges.observe(_models)
        if now_s >= self._due_s:
            self._due_s = now_s + max(_MIN_GAP_S, (now_s - self._began_s) / self._n_per_age)
            self._look_at_gradients(optimizer, now_s)
            self._tell()

    def close(self) -> None:
        """Tell the last sums."""
        if self._step_s < self._least_s:
            return
        self._exchanges.observe(_models)
        if self._n_steps > self._n_told or self._n_sent != _bytes_sent():
            self._tell()

    def _tell(self) -> None:
        self._n_told, self._n_sent = self._n_steps, _bytes_sent()
        if not self._n_steps and self._n_sent is None:
            return
        trial, attempt, rank = self._who
        self._send(
            StepsTimed(
                trial=trial,
                attempt=attempt,
                rank=rank,
                at_s=time.time(),
                n_steps=self._n_steps,
                step_s=self._step_s,
                data_s=self._data_s,
                exchange_s=self._exchange_s(),
                n_samples=self._n_samples,
                n_workers=self._loader.n_workers,
                gradient_norm=self._norm,
                gradient_bytes=self._sizes.n_bytes or None,
                n_cpus=_n_cpus(),
                bytes_sent=self._n_sent,
                hidden_share=self._exchanges.hidden_share,
                n_updates=self._n_all,
                peak_memory_bytes=peak_memory_bytes(),
            )
        )

    def _exchange_s(self) -> float | None:
        each_s = self._exchanges.mean_s
        if self._waits.misses_some or (each_s is None and not self._n_collectives):
            return None
        # DDP has measured other steps than these: it can't be more than what they leave.
        left_s = max(0.0, self._step_s - self._data_s)
        return min(left_s, (each_s or 0.0) * self._n_steps + self._collective_s)

    def _look_at_gradients(self, optimizer: Any, now_s: float) -> None:
        if now_s < self._norm_due_s:
            return
        self._norm = _norm_of(optimizer)
        cost_s = self._clock() - now_s
        self._norm_due_s = now_s + cost_s / _NORM_SHARE


class _Sizes:
    """Bytes of all gradients that a step can have; of sharded parameters the whole ones'."""

    def __init__(self) -> None:
        self._optimizers: set[int] = set()
        self._parameters: set[int] = set()
        self.n_bytes = 0

    def observe(self, optimizer: Any) -> None:
        # One that is made for each step would be looked at each time.
        if id(optimizer) in self._optimizers or len(self._optimizers) == _N_OPTIMIZERS:
            return
        self._optimizers.add(id(optimizer))
        for group in getattr(optimizer, "param_groups", ()):
            for parameter in group["params"]:
                if parameter.requires_grad and id(parameter) not in self._parameters:
                    self._parameters.add(id(parameter))
                    with contextlib.suppress(ValueError):  # a lazy layer that is never called
                        self.n_bytes += parameter.numel() * parameter.element_size()


class _Exchanges:
    """How long the last measured iterations waited for averaged gradients."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._times_s: dict[int, deque[tuple[float, float]]] = {}
        """By model: how long gradients were on their way, and how much of it was hidden."""

    @property
    def mean_s(self) -> float | None:
        """Of one step, all models together; None: not measured."""
        if not self._times_s:
            return None
        return sum(
            sum(lasted_s - hidden_s for lasted_s, hidden_s in times) / len(times)
            for times in self._times_s.values()
        )

    @property
    def hidden_share(self) -> float | None:
        """Of the time in which gradients are on their way, what is behind a backward pass."""
        each = [pair for times in self._times_s.values() for pair in times]
        return sum(hidden_s for _, hidden_s in each) / sum(s for s, _ in each) if each else None

    def observe(self, models: Iterable[Any]) -> None:
        for number, model in enumerate(models):
            try:
                told: Mapping[str, Any] = model._get_ddp_logging_data()
            except (AttributeError, RuntimeError):  # another torch
                continue
            iteration = told.get("iteration", 0)
            lasted, hidden = (
                told.get("backward_comm_time"),
                told.get("backward_compute_comm_overlap_time"),
            )
            is_new = iteration > max(_N_WARM_UP, self._seen.get(number, 0))
            if is_new and lasted and hidden is not None:
                self._seen[number] = iteration
                times = self._times_s.setdefault(number, deque(maxlen=_N_SAMPLES))
                times.append((lasted / 1e9, min(lasted, max(0, hidden)) / 1e9))


def watch_exchanges() -> None:
    """Measure what a cell or a framework communicates from now on."""
    collective_waits.has_own_measure = lambda: bool(_models)
    watch_collectives()
    _watch_data_parallel()


def _watch_data_parallel() -> None:
    """Take note of every model that is wrapped in DDP."""
    module: Any = sys.modules.get("torch.nn.parallel.distributed")
    kind: Any = getattr(module, "DistributedDataParallel", None)
    if kind is None or hasattr(kind.__init__, "_ddl_watched"):
        return
    make = kind.__init__

    @functools.wraps(make)
    def made(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        _models.add(self)
        if getattr(self, "device_type", "") == "cpu" and hasattr(
            self, "_set_ddp_runtime_logging_sample_rate"
        ):
            self._set_ddp_runtime_logging_sample_rate(_LOOK_EVERY)

    made._ddl_watched = True  # type: ignore[attr-defined]
    kind.__init__ = made


def _norm_of(optimizer: Any) -> float | None:
    """Of the gradients that a step has used; None where it would be more than a look."""
    torch: Any = sys.modules["torch"]
    found = [
        parameter.grad
        for group in getattr(optimizer, "param_groups", ())
        for parameter in group["params"]
        if parameter.grad is not None
    ]
    # Of sharded gradients it would be a collective, and ranks do not look at the same step.
    if not found or any(type(each) is not torch.Tensor or each.is_sparse for each in found):
        return None
    try:
        with torch.no_grad():
            norms = torch._foreach_norm(found)
            return float(torch.linalg.vector_norm(torch.stack(norms)))
    except (AttributeError, RuntimeError):  # on several devices, or of several kinds
        return None
