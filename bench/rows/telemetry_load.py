"""What the telemetry of a thousand workers costs their controller."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from typing import Any

from bench.harness import Goal, Line, Probe, Row, is_quick, tell

_PROBE = Probe("bench.rows.telemetry_load")
_N_WORKERS = 1000
_N_SENDERS = 50
"""Connections that speak for them: so few that a busy host can hold them, and so many that
hardly two messages go together."""
_TOPIC = "telemetry"
_STEADY_S = 60

ROW = Row(
    name="telemetry_load",
    title="Controller, telemetry of 1,000 workers at 1 Hz",
    better="lower",
    repeats=3,
    warmups=0,
    note=(
        "The samples (two GPUs and two ranks each) come over 50 encrypted connections of Dask "
        "workers, 20 a second and evenly on each. The controller keeps them and makes a picture a "
        "second for somebody who watches. CPU time of its process, less that of 10 s without them."
    ),
    lines=(
        Line("share of a core", _PROBE, "cores", "CPUs", Goal(1.0, "lower")),
        Line("… of that, keeping and judging", _PROBE, "store_cores", "CPUs"),
        Line("memory of samples and histories", _PROBE, "memory_mb", "MB"),
        Line("a picture, as JSON", _PROBE, "view_kb", "kB", Goal(128, "lower")),
        Line("samples that came in that time", _PROBE, "samples_per_s", "1/s"),
        Line(
            "of all that were sent, arrived", _PROBE, "arrived_percent", "%", Goal(99.0, "higher")
        ),
    ),
)


async def send(n_senders: int, first: int, n_workers: int, seconds: float, dask_worker: Any) -> int:
    """On a worker: speak for ``n_workers`` workers over ``n_senders`` connections, at 1 Hz."""
    import msgspec
    from distributed import Worker

    senders = await asyncio.gather(
        *(
            Worker(
                dask_worker.scheduler.address,
                security=dask_worker.security,
                host="127.0.0.1",
                nthreads=1,
                memory_limit=0,
                dashboard_address="127.0.0.1:0",
            )
            for _ in range(n_senders)
        )
    )
    loop = asyncio.get_running_loop()
    began_s, n_sent = loop.time(), 0
    while (passed_s := loop.time() - began_s) < seconds:
        while n_sent < passed_s * n_workers:
            number = n_sent % n_workers
            sample = _sample(f"w{first + number}", time.time())
            senders[number % n_senders].log_event(_TOPIC, msgspec.msgpack.encode(sample))
            n_sent += 1
        await asyncio.sleep(1 / n_workers)
    await asyncio.gather(*(sender.close(nanny=False) for sender in senders))
    return n_sent


def _sample(worker: str, at_s: float) -> Any:
    from jupyter_ddl.protocol.telemetry import GpuProcess, GpuSample, RankSample, WorkerSample

    gpus = tuple(
        GpuSample(
            f"GPU-{worker}-{index}",
            index,
            "NVIDIA H100",
            0.9,
            60 << 30,
            80 << 30,
            650.0,
            61.0,
            1755.0,
            (GpuProcess(4711 + index, 60 << 30),),
        )
        for index in range(2)
    )
    ranks = tuple(
        RankSample("run-1", 0, rank, 4711 + rank, 1.0, 9 << 30, 1e6, 1e6, 0.02, (gpus[rank].uuid,))
        for rank in range(2)
    )
    return WorkerSample(
        worker, "host", at_s, 2.0, 8.0, 20 << 30, 64 << 30, 1e6, 1e6, 1e6, 1e6, "", gpus, ranks
    )


async def _measure(seconds: float) -> dict[str, float]:
    import msgspec
    import psutil

    from jupyter_ddl.backends.local import LocalBackend
    from jupyter_ddl.controller.telemetry import Telemetry
    from jupyter_ddl.placement.slots import SlotBook
    from jupyter_ddl.protocol.cluster import ClusterSpec

    backend = LocalBackend(ClusterSpec(n_workers=2))
    await backend.start(lambda _: None)
    client = backend.client
    heard: Counter[str] = Counter()
    telemetry = Telemetry(
        client, _TOPIC, SlotBook(), 1, on_heard=lambda worker: heard.update((worker,))
    )
    telemetry.keep([f"w{number}" for number in range(_N_WORKERS)])
    telemetry.start()
    process = psutil.Process(os.getpid())
    try:
        idle_s = await _cpu_s(asyncio.sleep(seconds))
        before_bytes, before = process.memory_info().rss, heard.total()
        half = _N_WORKERS // 2
        addresses = list((await client.scheduler.identity(n_workers=-1))["workers"])
        sending = asyncio.gather(
            *(
                client.run(send, _N_SENDERS // 2, i * half, half, 3 * seconds, workers=[address])
                for i, address in enumerate(addresses)
            )
        )
        for _ in range(10 * _STEADY_S):
            if heard.total() >= before + 3 * _N_WORKERS:  # all connections are there, and steady
                break
            await asyncio.sleep(0.1)
        n_before, began_s = heard.total(), time.monotonic()
        busy_s = await _cpu_s(_watch(telemetry, seconds))
        lasted_s, n_counted = time.monotonic() - began_s, heard.total() - n_before
        view = msgspec.json.encode(telemetry.view())
        grown_bytes = process.memory_info().rss - before_bytes
        n_sent = sum(n for answer in await sending for n in answer.values())
        await asyncio.sleep(1.0)  # the last ones are on their way
        n_arrived = heard.total() - before
        store_s = _store_s(telemetry)
    finally:
        await telemetry.close()
        await backend.close()
    return {
        "cores": (busy_s - idle_s) / lasted_s,
        "store_cores": store_s,
        "memory_mb": grown_bytes / 1e6,
        "view_kb": len(view) / 1e3,
        "samples_per_s": n_counted / lasted_s,
        "arrived_percent": 100 * n_arrived / n_sent,
    }


async def _cpu_s(work: Any) -> float:
    began_s = time.process_time()
    await work
    return time.process_time() - began_s


async def _watch(telemetry: Any, seconds: float) -> None:
    import msgspec

    for _ in range(round(seconds)):
        msgspec.msgpack.encode(telemetry.view())
        await asyncio.sleep(1.0)


def _store_s(telemetry: Any) -> float:
    """CPU seconds that the samples of one second and the picture of them take."""
    import msgspec

    now_s = time.time() + 60.0
    payloads = [msgspec.msgpack.encode(_sample(f"w{n}", now_s)) for n in range(_N_WORKERS)]
    began_s = time.process_time()
    for payload in payloads:
        telemetry._on_message(payload)
    telemetry.view()
    return time.process_time() - began_s


def measure() -> None:
    tell(asyncio.run(_measure(4.0 if is_quick() else 10.0)))


if __name__ == "__main__":
    measure()
