"""For information: forks from a zygote, and imports."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time

from bench.harness import Goal, Line, Probe, Row, is_quick, tell

_BARE = Probe("bench.rows.warm", ("fork",))
_TORCH = Probe("bench.rows.warm", ("fork", "torch"))

ROW = Row(
    name="warm",
    title="Warm forks and imports",
    better="lower",
    repeats=3,
    note="A fork: from the worker's request to the zygote's answer with the pid; 20 per repeat.",
    lines=(
        Line("fork, zygote without torch", _BARE, "fork_ms", "ms"),
        Line("fork, zygote with torch", _TORCH, "fork_ms", "ms"),
        Line("fork to the rank's end, with torch", _TORCH, "life_ms", "ms"),
        Line("zygote start to ready", _BARE, "zygote_ms", "ms"),
        Line(
            "`import jupyter_ddl`",
            Probe("bench.rows.warm", ("jupyter_ddl",)),
            "import_jupyter_ddl_s",
            "s",
            Goal(0.1, "lower"),
        ),
        Line("`import torch`", Probe("bench.rows.warm", ("torch",)), "import_torch_s", "s"),
        Line(
            "`import distributed`",
            Probe("bench.rows.warm", ("distributed",)),
            "import_distributed_s",
            "s",
        ),
    ),
)


async def _forks(packages: tuple[str, ...], n_forks: int) -> dict[str, float | list[float]]:
    from jupyter_ddl.worker.zygote_process import WorkerSettings, Zygote

    ended, imported = asyncio.Event(), asyncio.Event()
    started = time.perf_counter()
    zygote = Zygote(
        WorkerSettings(owner_token="bench", prewarm=packages),
        on_rank_exited=lambda _: ended.set(),
        on_imported=lambda _: imported.set(),
        on_lost=lambda: None,
    )
    await zygote.start()
    ready_s = time.perf_counter() - started
    forks, lives = [], []
    async with asyncio.timeout(60):
        if packages:
            await imported.wait()
        for number in range(n_forks + 1):
            ours, theirs = socket.socketpair()
            ended.clear()
            with ours:
                asked = time.perf_counter()
                with theirs:
                    await zygote.fork(f"bench:{number}", theirs)
                forks.append((time.perf_counter() - asked) * 1e3)
            await ended.wait()  # its socket is closed: it leaves
            lives.append((time.perf_counter() - asked) * 1e3)
    await zygote.close()
    return {"fork_ms": forks[1:], "life_ms": lives[1:], "zygote_ms": ready_s * 1e3}


def measure(what: str, packages: tuple[str, ...]) -> None:
    if what == "fork":
        tell(asyncio.run(_forks(packages, 5 if is_quick() else 20)))
        return
    # In a process of its own: this one has imported what its rows need.
    timed = f"import time; began = time.perf_counter(); import {what}"
    command = [sys.executable, "-c", f"{timed}; print(time.perf_counter() - began)"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    tell({f"import_{what}_s": float(told)})


if __name__ == "__main__":
    measure(sys.argv[1], tuple(sys.argv[2:]))
