"""What it costs a training that its steps are timed: the same one in turns with and without."""

from __future__ import annotations

import statistics
import time
from typing import Any

from bench.harness import Goal, Line, Probe, Row, is_quick, tell

_PROBE = Probe("bench.rows.step_times")
_STEP_US = 5000.0
_N_CALLS = 10_000

ROW = Row(
    name="step_times",
    title="Timing the steps of a training: data, exchange, compute",
    better="lower",
    repeats=3,
    warmups=0,
    note=(
        "CPU time of one thread, in turns with and without, medians. First what hangs on the "
        "optimizer, on the loader and on DDP by itself, 10,000 times at once, out of a step of 5 "
        "ms; then a training of 0.4 million parameters under DDP (one rank over gloo, one thread), "
        "in blocks of 30 steps."
    ),
    lines=(
        Line("added to a step of 5 ms", _PROBE, "added_percent", "%", Goal(0.5, "lower")),
        Line("… in CPU time", _PROBE, "added_us", "µs"),
        Line("a step, timed", _PROBE, "on_ms", "ms"),
        Line("a step, not timed", _PROBE, "off_ms", "ms"),
    ),
)


class _Training:
    """A rank's own parts around a real model; ``switch`` takes them away and puts them back."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset, dataloader

        from jupyter_ddl.ranks.heartbeat import LoaderWatch
        from jupyter_ddl.ranks.step_times import StepTimes, watch_exchanges

        torch.set_num_threads(1)
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        loader = LoaderWatch(lambda _: None)
        loader.hook()
        self._steps = StepTimes(0, 1, 0, loader, lambda _: None)
        watch_exchanges()
        network = nn.Sequential(
            nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )
        self._model = nn.parallel.DistributedDataParallel(network)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01)
        self._iterator: Any = dataloader._BaseDataLoaderIter
        self._timed = self._iterator.__next__
        self._hook: Any = None
        n_samples = 128 * 30
        data = TensorDataset(torch.randn(n_samples, 256), torch.randint(0, 10, (n_samples,)))
        self._batches = DataLoader(data, batch_size=128)
        self._calls: Any = DataLoader([torch.zeros(1)] * _N_CALLS, batch_size=None)  # type: ignore[arg-type]

    def switch(self, is_on: bool) -> None:
        self._iterator.__next__ = self._timed if is_on else self._timed.__wrapped__
        self._model._set_ddp_runtime_logging_sample_rate(10 if is_on else 100)
        if is_on and self._hook is None:
            self._hook = self._optimizer.register_step_post_hook(lambda o, *_: self._steps.step(o))
        elif not is_on and self._hook is not None:
            self._hook.remove()
            self._hook = None

    def block_ms(self) -> float:
        """CPU time of a step, one of thirty."""
        from torch.nn.functional import cross_entropy

        began_s = time.thread_time()
        for images, labels in self._batches:
            self._optimizer.zero_grad()
            cross_entropy(self._model(images), labels).backward()
            self._optimizer.step()
        return 1e3 * (time.thread_time() - began_s) / 30

    def calls_us(self, is_on: bool) -> float:
        """CPU time of a turn through a loop that does nothing else."""
        began_s = time.thread_time()
        for _ in self._calls:
            if is_on:
                self._steps.step(self._optimizer)
        return 1e6 * (time.thread_time() - began_s) / _N_CALLS


def measure() -> None:
    training = _Training()
    blocks: dict[bool, list[float]] = {True: [], False: []}
    calls: dict[bool, list[float]] = {True: [], False: []}
    for number in range(12 if is_quick() else 40):
        # on off off on …: a machine that slows down hits both alike.
        is_on = number % 4 in (0, 3)
        training.switch(is_on)
        found = training.block_ms()
        if number >= 4:  # the first ones are not steady
            blocks[is_on].append(found)
            calls[is_on].append(training.calls_us(is_on))
    added_us = statistics.median(calls[True]) - statistics.median(calls[False])
    tell(
        {
            "added_us": added_us,
            "added_percent": 100 * added_us / _STEP_US,
            "on_ms": statistics.median(blocks[True]),
            "off_ms": statistics.median(blocks[False]),
        }
    )


if __name__ == "__main__":
    measure()
