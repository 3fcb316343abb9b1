"""What watching a training costs it: telemetry, reports and captured output, on and off."""

from __future__ import annotations

import os

import psutil

from bench.harness import Goal, Line, Probe, Row, is_quick, tell
from bench.torchrun import as_cell, figures

_PROBE = Probe("bench.rows.telemetry")
_SCRIPT = "train_reporting.py"
_N_STEPS = 520
_GOAL = Goal(1.0, "lower")

ROW = Row(
    name="telemetry",
    title="Telemetry, beats and log capture at 50 reports/s per rank, 2 ranks",
    better="lower",
    repeats=3,
    warmups=0,
    note=(
        "500 steps of the network of the row before, in pairs taken in turns on two clusters: one "
        "with telemetry at 1 Hz, where each rank reports and prints 50 times a second, and one "
        "without telemetry, where it prints as often, to nowhere. Beats, one message a second, are "
        "on both sides. Throughput depends on who else uses the machine, CPU time hardly does: two "
        "ranks that fill the cores lose what workers and controller take."
    ),
    lines=(
        Line("throughput lost, of each pair", _PROBE, "lost_percent", "%", _GOAL),
        Line("CPU time of a step added, all processes", _PROBE, "all_percent", "%", _GOAL),
        Line("… in the ranks", _PROBE, "cpu_percent", "%"),
        Line("… in workers and controller", _PROBE, "house_percent", "%"),
        Line("with it", _PROBE, "on_per_s", "steps/s"),
        Line("without", _PROBE, "off_per_s", "steps/s"),
        Line("reports of a rank", _PROBE, "reports_per_s", "1/s"),
    ),
)


def measure() -> None:
    import torch  # noqa: F401 - as in the user's kernel

    from jupyter_ddl.client.clusters import attach_cluster, start_cluster

    os.environ.pop("JUPYTER_DDL_TELEMETRY_INTERVAL", None)
    on = start_cluster(n_workers=2, name="on")
    os.environ["JUPYTER_DDL_TELEMETRY_INTERVAL"] = "0"
    off = start_cluster(n_workers=2, name="off")
    pairs = []
    house_ms: dict[str, list[float]] = {"on": [], "off": []}
    try:
        for name in ("on", "off"):
            attach_cluster(name)
            as_cell(_SCRIPT)
        for number in range(2 if is_quick() else 6):
            # Each goes first every other time: a machine that slows down hits both alike.
            found = {}
            for name in ("on", "off") if number % 2 else ("off", "on"):
                cluster = attach_cluster(name)
                before_s = _house_s(cluster.status().controller_pid)
                found[name] = as_cell(_SCRIPT)[1]
                used_s = _house_s(cluster.status().controller_pid) - before_s
                house_ms[name].append(1e3 * used_s / _N_STEPS)
            pairs.append((found["on"], found["off"]))
    finally:
        on.stop()
        off.stop()
    speeds = [(_least(a, "STEPS_PER_S"), _least(b, "STEPS_PER_S")) for a, b in pairs]
    cpu = [(_ranks_ms(a), _ranks_ms(b)) for a, b in pairs]
    house = list(zip(house_ms["on"], house_ms["off"], strict=True))
    tell(
        {
            "on_per_s": [on for on, _ in speeds],
            "off_per_s": [off for _, off in speeds],
            "lost_percent": [100 * (1 - on / off) for on, off in speeds],
            "all_percent": [
                100 * (on + more - off - less) / (off + less)
                for (on, off), (more, less) in zip(cpu, house, strict=True)
            ],
            "cpu_percent": [100 * (on / off - 1) for on, off in cpu],
            "house_percent": [
                100 * (more - less) / off for (_, off), (more, less) in zip(cpu, house, strict=True)
            ],
            "reports_per_s": [_least(on, "REPORTS_PER_S") for on, _ in pairs],
        }
    )


def _ranks_ms(text: str) -> float:
    return sum(figures(text, "CPU_MS_PER_STEP"))


def _house_s(controller_pid: int) -> float:
    """CPU seconds that controller and workers have taken so far, without their ranks."""
    controller = psutil.Process(controller_pid)
    times = [process.cpu_times() for process in (controller, *controller.children())]
    return sum(each.user + each.system for each in times)


def _least(text: str, word: str) -> float:
    return min(figures(text, word))


if __name__ == "__main__":
    measure()
