"""Steps per second of one plain torch script, under torchrun and as a cell."""

from __future__ import annotations

from collections.abc import Callable

from bench.harness import Goal, Line, Probe, Row, is_quick, tell
from bench.torchrun import as_cell, cluster_of_two, figures, under_torchrun

_PROBE = Probe("bench.rows.ddp_speed")

ROW = Row(
    name="ddp_speed",
    title="Steady throughput of one script, 2 ranks",
    better="higher",
    repeats=3,
    warmups=0,
    note=(
        "250 steps of a network of 0.4 million parameters under DistributedDataParallel over gloo, "
        "one thread per rank, after 20 steps that are not counted; seven pairs in each of the "
        "repeats, taken in turns. The idle cluster stays up while torchrun runs. A rank's CPU time "
        "counts all its threads, and hardly depends on who else uses the machine."
    ),
    lines=(
        Line("jupyter_ddl", _PROBE, "ours_per_s", "steps/s"),
        Line("torchrun", _PROBE, "torchrun_per_s", "steps/s", compare=True),
        Line("jupyter_ddl / torchrun, of each pair", _PROBE, "ratio", "×", Goal(0.98, "higher")),
        Line("… by the CPU time of a rank's step", _PROBE, "cpu_ratio", "×"),
    ),
)


def measure() -> None:
    pairs = []
    with cluster_of_two():
        as_cell("train_steps.py")
        for number in range(2 if is_quick() else 7):
            # Each goes first every other time: a machine that slows down hits both alike.
            if number % 2:
                theirs, ours = _steps(under_torchrun), _steps(as_cell)
            else:
                ours, theirs = _steps(as_cell), _steps(under_torchrun)
            pairs.append((ours, theirs))
    tell(
        {
            "ours_per_s": [ours[0] for ours, _ in pairs],
            "torchrun_per_s": [theirs[0] for _, theirs in pairs],
            "ratio": [ours[0] / theirs[0] for ours, theirs in pairs],
            "cpu_ratio": [theirs[1] / ours[1] for ours, theirs in pairs],
        }
    )


def _steps(run: Callable[[str], tuple[float, str]]) -> tuple[float, float]:
    """Steps per second, and CPU milliseconds that a rank's process spends on one."""
    _, text = run("train_steps.py")
    return min(figures(text, "STEPS_PER_S")), max(figures(text, "CPU_MS_PER_STEP"))


if __name__ == "__main__":
    measure()
