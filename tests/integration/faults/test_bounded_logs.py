"""A flood of prints: all of it is on disk, up to the budget of a run; beyond, its ends are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_ddl.client.clusters import Cluster, start_cluster
from tests.leaks import Home
from tests.run_tools import assert_clean, start_map
from tests.until import until

pytestmark = pytest.mark.integration

MIB = 1 << 20
BUDGET = 32 * MIB
N_LINES = 50_000

FLOOD = f"""
from jupyter_ddl import report
for n in range({N_LINES}):
    print(f"{{item}} {{n:08d}} " + "x" * 108)
    if n % 10_000 == 0:
        report(step=n, printed=n)
"""

TOO_MUCH = f"""
import os, time
from jupyter_ddl import report
logs = os.path.dirname(os.readlink("/proc/self/fd/1"))
def held():
    return sum(log.stat().st_blocks * 512 for log in os.scandir(logs))
line = b"y" * 127 + b"\\n"
print("the beginning", flush=True)
for _ in range(64):
    os.write(1, line * 8192)
step = 0
while held() > {BUDGET}:
    time.sleep(0.05)
    report(step=step, held=held())
    step += 1
print("the end")
"""


@pytest.fixture
def cluster(home: Home, holes: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("JUPYTER_DDL_LOG_BYTES", str(BUDGET))
    cluster = start_cluster(n_workers=4, name="test")
    yield cluster
    cluster.stop()


def test_a_flood_is_whole_within_the_budget_and_cut_beyond_it(cluster: Cluster) -> None:
    run = start_map(FLOOD, range(4))
    answers: list[str] = []

    def is_over() -> bool:
        answers.append(cluster.status().state)
        return run.state in ("complete", "failed")

    until(is_over, 120, "the end of the flood")
    assert set(answers) == {"ready"}
    assert_clean(run, 4)
    for item in range(4):
        lines = run.logs(item).splitlines()
        assert [line[:10] for line in lines] == [f"{item} {n:08d}" for n in range(N_LINES)]
    assert not any("printed more" in notice for notice in run.snapshot().notices)

    run = start_map(TOO_MUCH, [0])
    run.wait(300)
    assert_clean(run, 1)
    logs = run.directory / "logs"
    until(lambda: sum(p.stat().st_blocks * 512 for p in logs.iterdir()) <= BUDGET, 30)
    text = run.logs(0)
    assert text.startswith("the beginning\n")
    assert text.endswith("the end\n")
    assert text.count("MiB of output were not kept here: the logs of a run may take 32 MiB") == 1
    told = [each for each in run.snapshot().notices if "ranks have printed more than" in each]
    assert len(told) == 1, told
