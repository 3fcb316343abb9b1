"""What watching a training costs it: telemetry, reports and captured output, on and off."""

from __future__ import annotations

import os

from bench.harness import Goal, Line, Probe, Row, is_quick, tell
from bench.torchrun import as_cell, figures

_PROBE = Probe("bench.rows.telemetry")
_SCRIPT = "train_reporting.py"

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
        "on both sides. A rank's CPU time hardly depends on who else uses the machine; its "
        "throughput does."
    ),
    lines=(
        Line("throughput lost, of each pair", _PROBE, "lost_percent", "%", Goal(1.0, "lower")),
        Line("CPU time of a step added", _PROBE, "cpu_percent", "%", Goal(1.0, "lower")),
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
    try:
        for name in ("on", "off"):
            attach_cluster(name)
            as_cell(_SCRIPT)
        for number in range(2 if is_quick() else 6):
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
    cpu = [(_least(a, "CPU_MS_PER_STEP"), _least(b, "CPU_MS_PER_STEP")) for a, b in pairs]
    tell(
        {
            "on_per_s": [on for on, _ in speeds],
            "off_per_s": [off for _, off in speeds],
            "lost_percent": [100 * (1 - on / off) for on, off in speeds],
            "cpu_percent": [100 * (on / off - 1) for on, off in cpu],
            "reports_per_s": [_least(on, "REPORTS_PER_S") for on, _ in pairs],
        }
    )


def _least(text: str, word: str) -> float:
    return min(figures(text, word))


if __name__ == "__main__":
    measure()
