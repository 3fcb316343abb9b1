"""Steps per second of one plain torch script, under torchrun and as a cell."""

from __future__ import annotations

from bench.harness import Goal, Line, Probe, Row, is_quick, tell
from bench.torchrun import as_cell, under_torchrun

_PROBE = Probe("bench.rows.ddp_speed")

ROW = Row(
    name="ddp_speed",
    title="Steady throughput of one script, 2 ranks",
    better="higher",
    repeats=3,
    warmups=0,
    note=(
        "250 steps of a network of 0.4 million parameters under DistributedDataParallel over gloo, "
        "one thread per rank, after 20 steps that are not counted; five pairs in each of the "
        "repeats, taken in turns. The idle cluster stays up while torchrun runs."
    ),
    lines=(
        Line("jupyter_ddl", _PROBE, "ours_per_s", "steps/s"),
        Line("torchrun", _PROBE, "torchrun_per_s", "steps/s", compare=True),
        Line("jupyter_ddl / torchrun, of each pair", _PROBE, "ratio", "×", Goal(0.98, "higher")),
    ),
)


def measure() -> None:
    import torch  # noqa: F401 - as in the user's kernel

    from jupyter_ddl.client.clusters import start_cluster

    cluster = start_cluster(n_workers=2)
    ours, theirs = [], []
    try:
        as_cell("train_steps.py", "STEPS_PER_S")
        for number in range(2 if is_quick() else 5):
            # Each goes first every other time: a machine that slows down hits both alike.
            for run, found in [(as_cell, ours), (under_torchrun, theirs)][:: 1 - 2 * (number % 2)]:
                found.append(min(run("train_steps.py", "STEPS_PER_S")[1]))
    finally:
        cluster.stop()
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    tell({"ours_per_s": ours, "torchrun_per_s": theirs, "ratio": ratios})


if __name__ == "__main__":
    measure()
