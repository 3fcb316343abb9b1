"""What watching a training costs it: telemetry, reports and captured output, on and off."""

from __future__ import annotations

import os

from bench.harness import Goal, Line, Probe, Row, is_quick, tell
from bench.torchrun import as_cell, figures

_PROBE = Probe("bench.rows.telemetry")
_SCRIPT = "train_reporting.py"
_GOAL = Goal(1.0, "lower")
_PARTS = ("SAYING", "THREADS", "WORKERS", "CONTROLLER")
_N_RANKS = 2

ROW = Row(
    name="telemetry",
    title="Telemetry, beats and log capture at 50 reports/s per rank, 2 ranks",
    better="lower",
    repeats=3,
    warmups=0,
    note=(
        "800 steps of the network of the row before, with a quarter of its batch so that a slow "
        "machine makes more than 50 a second too, in pairs taken in turns on two clusters: one "
        "with telemetry at 1 Hz, where each rank reports and prints 50 times a second, and one "
        "without telemetry, where it prints as often, to nowhere. Throughput depends on who else "
        "uses the machine. CPU time hardly does, and is counted where it is spent, by the "
        "kernel's own clock: two ranks that fill the cores lose what others take of them. Added is "
        "the difference within a pair, but for our threads in the ranks (beats, control), which "
        "run on both sides and count in full."
    ),
    lines=(
        Line("throughput lost, of each pair", _PROBE, "lost_percent", "%", _GOAL),
        Line("CPU time added, of the ranks' cores", _PROBE, "cpu_percent", "%", _GOAL),
        Line("… in the ranks, by `report` and `print`", _PROBE, "saying_ms", "ms/s"),
        Line("… in the ranks, by our threads", _PROBE, "threads_ms", "ms/s"),
        Line("… in the workers", _PROBE, "workers_ms", "ms/s"),
        Line("… in the controller", _PROBE, "controller_ms", "ms/s"),
        Line("with it", _PROBE, "on_per_s", "steps/s", better="higher"),
        Line("without", _PROBE, "off_per_s", "steps/s", better="higher"),
        Line("reports of a rank", _PROBE, "reports_per_s", "1/s", better="higher"),
    ),
)


def measure() -> None:
    import torch  # noqa: F401 - as in the user's kernel

    from jupyter_ddl.client.clusters import attach_cluster, start_cluster

    os.environ.pop("JUPYTER_DDL_TELEMETRY_INTERVAL", None)
    on = start_cluster(n_workers=_N_RANKS, name="on")
    os.environ["JUPYTER_DDL_TELEMETRY_INTERVAL"] = "0"
    off = start_cluster(n_workers=_N_RANKS, name="off")
    pairs = []
    try:
        for number in range(2 if is_quick() else 5):
            # Each goes first every other time: a machine that slows down hits both alike.
            found = {}
            for name in ("on", "off") if number % 2 else ("off", "on"):
                attach_cluster(name)
                found[name] = as_cell(_SCRIPT)[1]
            pairs.append((found["on"], found["off"]))
    finally:
        on.stop()
        off.stop()
    speeds = [(_least(a, "STEPS_PER_S"), _least(b, "STEPS_PER_S")) for a, b in pairs]
    added = {part: [_added_ms(part, on, off) for on, off in pairs] for part in _PARTS}
    sums = [sum(values) for values in zip(*added.values(), strict=True)]
    tell(
        {
            "on_per_s": [on for on, _ in speeds],
            "off_per_s": [off for _, off in speeds],
            "lost_percent": [100 * (1 - on / off) for on, off in speeds],
            "cpu_percent": [100 * ms / (1e3 * _N_RANKS) for ms in sums],
            **{f"{part.lower()}_ms": added[part] for part in _PARTS},
            "reports_per_s": [_least(on, "REPORTS_PER_S") for on, _ in pairs],
        }
    )


def _added_ms(part: str, on: str, off: str) -> float:
    """CPU milliseconds a second that one side of a pair spends more than the other."""
    here, there = (sum(figures(text, f"{part}_MS_PER_S")) for text in (on, off))
    return here if part == "THREADS" else here - there


def _least(text: str, word: str) -> float:
    return min(figures(text, word))


if __name__ == "__main__":
    measure()
