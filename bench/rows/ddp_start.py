"""From the call of ``submit`` to the first all-reduce of two warm ranks, against torchrun."""

from __future__ import annotations

from collections.abc import Callable

from bench.harness import Goal, Line, Probe, Row, is_quick, tell
from bench.torchrun import as_cell, cluster_of_two, figures, under_torchrun

_PROBE = Probe("bench.rows.ddp_start")
_STORES = Probe("bench.store_start")

ROW = Row(
    name="ddp_start",
    title="Cell submitted to first all-reduce done, 2 ranks",
    better="lower",
    repeats=3,
    warmups=0,  # the probe's own first runs are thrown away
    note=(
        "Eight pairs in each of the repeats, taken in turns; two warm-up runs are not counted. "
        "From the call (of `submit` with compiling the cell; of the `torchrun` command) to the "
        "moment at which the slower rank has its result. Every run forks fresh ranks and makes a "
        "new process group over gloo. The idle cluster stays up while torchrun runs. "
        "Stores: forked processes with torch, over gloo on one host, 20 pairs in turns."
    ),
    lines=(
        Line("jupyter_ddl, warm zygotes", _PROBE, "ours_s", "s"),
        Line("torchrun --standalone", _PROBE, "torchrun_s", "s", compare=True),
        Line("torchrun / jupyter_ddl, of each pair", _PROBE, "ratio", "×", Goal(15, "higher")),
        Line("jupyter_ddl, first run after the start", _PROBE, "cold_s", "s"),
        Line("two processes meet by the store of ranks of several hosts", _STORES, "token_s", "s"),
        Line("the same by torch's TCPStore", _STORES, "plain_s", "s"),
    ),
)


def measure() -> None:
    with cluster_of_two():
        cold, _ = _seconds(as_cell), _seconds(as_cell)
        pairs = [
            (_seconds(as_cell), _seconds(under_torchrun)) for _ in range(3 if is_quick() else 8)
        ]
    tell(
        {
            "ours_s": [ours for ours, _ in pairs],
            "torchrun_s": [theirs for _, theirs in pairs],
            "ratio": [theirs / ours for ours, theirs in pairs],
            "cold_s": cold,
        }
    )


def _seconds(run: Callable[[str], tuple[float, str]]) -> float:
    called_at_s, text = run("all_reduce.py")
    return max(figures(text, "DONE")) - called_at_s


if __name__ == "__main__":
    measure()
