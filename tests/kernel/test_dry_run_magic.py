"""``--dry-run`` and ``--help`` start and write nothing, but the first steps of some trainings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kernel.cells import QUICK, TRAIN
from tests.leaks import processes_of
from tests.live_kernel import LiveKernel

pytestmark = pytest.mark.kernel


def _tree(kernel: LiveKernel) -> dict[str, tuple[int, bytes]]:
    """Every file and folder that the package could write to, with its time and contents."""
    home = kernel.home
    found: dict[str, tuple[int, bytes]] = {}
    for top in (home.data, home.memory, home.work, home.runtime / "jupyter_ddl"):
        for path in (top, *sorted(top.rglob("*"))):
            if path.exists():
                found[str(path)] = (path.stat().st_mtime_ns, _contents(path))
    return found


def _contents(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def test_a_dry_run_shows_everything_and_changes_nothing(kernel: LiveKernel) -> None:
    kernel.run("import numpy as np\ntable = np.zeros(1000)").check()
    before = _tree(kernel)
    processes = {process.pid for process in processes_of(kernel.home)}

    cell = QUICK + "print(table.sum())\n"
    out = kernel.run("%%distribute search --metric val_acc --trials 9 --dry-run -o r\n" + cell)

    assert "nothing was started or sent" in out.check().text
    assert "Search: 9 trials, val_acc (max)" in out.text
    assert "table: numpy.ndarray" in out.text
    assert _tree(kernel) == before
    assert {process.pid for process in processes_of(kernel.home)} == processes
    assert kernel.value("'r' in dir() or '_run' in dir()") == "False"


def test_a_dry_run_tells_ranks_and_places_and_starts_nothing(kernel: LiveKernel) -> None:
    cell = "%%distribute ddp -n 2 --dry-run --bring model\n" + TRAIN
    without = kernel.run(cell).check().text
    assert "Ranks: 2; GPUs per rank: 1 if the workers have as many" in without
    assert "no cluster is running; a local one would be started" in without
    assert "Brought back: model" in without

    kernel.run("%cluster start -n 2").check()

    assert re.search(r"Places now, on cluster local: rank 0 → \S+ \(.*\), rank 1 → ",
                     kernel.run(cell).check().text)  # fmt: skip
    wide = kernel.run("%%distribute ddp -n 3 --dry-run\n" + TRAIN).check().text
    assert "2 of 2 slots free; the ranks would wait for 3" in wide
    assert kernel.run("%runs").check().everything == "No runs yet."


ENDLESS = """import torch
from jupyter_ddl import prepare, prepare_step

model = torch.nn.Linear(8, 4)
step = prepare_step(
    model, torch.nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.01)
)
data = torch.utils.data.TensorDataset(torch.ones(64, 8), torch.ones(64, 4))
loader = prepare(torch.utils.data.DataLoader(data, batch_size=16))
while True:
    for x, y in loader:
        step(x, y)
"""

_LIST = "from jupyter_ddl import runs\nprint([each.run_id for each in runs()])"
"""Others of its cluster's home are there already."""


def test_a_dry_run_guesses_the_scaling_of_a_cell_by_its_first_steps(
    attached_kernel: LiveKernel,
) -> None:
    before = attached_kernel.run(_LIST).check().text
    cell = "%%distribute ddp -n 2 --strategy pipeline --dry-run --bring model\n"
    text = attached_kernel.run(cell + ENDLESS).check().text
    assert "its first steps were made on one rank, then stopped; nothing else was started" in text
    assert re.search(
        r"a first guess for ddp: efficiency at 2 ranks \d+ % \(\d+ % to \d+ %\), 4", text
    )
    assert re.search(r"measured: [\d,]+ plain steps on one rank of 16 samples, .*; 144 B of", text)
    assert "assumed: 50 µs a message and 953.7 MiB/s between ranks" in text
    assert "unsure: in brackets, if the exchange is 4 times as dear or as cheap" in text
    failing = cell + ENDLESS.replace("while True:", "raise OSError('on purpose')")
    failing = failing.rsplit("    for x", 1)[0]
    text = attached_kernel.run(failing).check().text
    assert "first steps on one rank tell nothing: " in text
    assert "OSError: rank 0: on purpose" in text
    assert attached_kernel.run(_LIST).check().text == before, "their runs are not removed"


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("%distribute --help", "Search hyper-parameters"),
        ("%distribute search --help", "--pruner"),
        ("%cluster --help", "adapt"),
        ("%cluster start --help", "--idle-timeout"),
        ("%runs --help", "compare"),
        ("%runs stop --help", "--after-report"),
        ("%%distribute search --help\n1/0", "--trials"),
    ],
)
def test_help_is_printed_and_nothing_runs(idle_kernel: LiveKernel, line: str, part: str) -> None:
    before = _tree(idle_kernel)
    out = idle_kernel.run(line).check()
    assert part in out.text
    assert out.displays == []
    assert _tree(idle_kernel) == before
