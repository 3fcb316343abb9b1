"""Files by relative names on workers that do not see the notebook's folder."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_ddl.client.api import map_cell, search, train
from jupyter_ddl.client.clusters import connect_cluster
from jupyter_ddl.client.group import open_group
from jupyter_ddl.errors import CaptureError, RunFailedError, RunNotFoundError, TrialError
from tests.integration.backends.foreign import Foreign, foreign_cluster
from tests.leaks import Home
from tests.live_kernel import LiveKernel
from tests.until import until

pytestmark = pytest.mark.integration

WRITE = """
import os
open("model.bin", "wb").write(bytes(1000) + bytes([rank()]))
os.makedirs("below", exist_ok=True)
open(f"below/rank-{rank()}.txt", "w").write("x" * 10)
"""

SNAPSHOT = """
import itertools, os, time
begin = int(open("snapshot.txt").read()) if os.path.exists("snapshot.txt") else 0
print("begins at", begin)
with open("snapshot.txt", "w") as file:
    file.write(str(begin + 1))
for step in itertools.count() if begin == 0 else ():
    report(step=step)
    time.sleep(0.05)
"""


_FIT = """
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
class Writes(LogisticRegression):
    def fit(self, X, y):
        open("d.txt", "w").write("fit")
        return super().fit(X, y)
search = GridSearchCV(Writes(), {"C": [0.1, 1.0]}, cv=2, refit=False, n_jobs=-1)
search.fit([[float(n)] for n in range(20)], [0, 1] * 10)
"""


@pytest.fixture
def notebook(home: Home, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that this process works in, as a notebook would."""
    monkeypatch.chdir(home.work)
    return home.work


@pytest.fixture
def elsewhere(home: Home) -> Iterator[Foreign]:
    """Two workers with a tree of files each."""
    with foreign_cluster(home, 2, nanny=False, tls=False) as found:
        cluster = connect_cluster(found.address)
        yield found
        cluster.stop()


def test_named_data_travels_and_what_is_written_comes_home(
    elsewhere: Foreign, notebook: Path
) -> None:
    (notebook / "data.txt").write_text("21")
    (notebook / "other.txt").write_text("2")
    names = {"OTHER": Path("other.txt")}
    cell = "int(open('data.txt').read()) * int(OTHER.read_text()) + item\n"
    run = map_cell(cell, [0, 1], namespace=names)
    assert run.values == [42, 43]
    assert [file.path for file in run.spec.program.data] == ["data.txt", "other.txt"]
    assert len(run.files) == 0, "what came is not what was written"
    (notebook / "data.txt").write_text("10")
    assert map_cell(cell, [0, 1], namespace=names).values == [20, 21]

    trained = train(WRITE, 2, bring_files="*.bin")
    listed = [(each.path, each.size_bytes) for each in trained.files]
    assert listed == [
        ("below/rank-0.txt", 10),
        ("below/rank-1.txt", 10),
        ("model.bin", 1001),
        ("model.bin", 1001),
    ]
    assert len(list((trained.directory / "files").rglob("model.bin"))) == 2, "brought at the end"
    assert not list((trained.directory / "files").rglob("*.txt")), "and nothing else"
    assert not list(notebook.glob("*.bin"))
    assert not (notebook / "below").exists()

    (brought,) = trained.files.fetch("*.bin")
    assert brought == notebook / "model.bin"
    assert brought.read_bytes()[-1] == 0, "rank 0's"
    (fetched,) = trained.files.fetch("below/rank-0*", to=notebook / "there")
    assert fetched == notebook / "there" / "below" / "rank-0.txt"
    assert fetched.read_text() == "x" * 10
    assert "model.bin  1" in repr(trained.files)
    with pytest.raises(TrialError, match=r"no file '\*.pt'; there are below/rank-0.txt"):
        trained.files.fetch("*.pt")

    wanted = trained.files
    for process in elsewhere.processes[1:]:
        process.kill()
        process.wait()
    with pytest.raises(RunNotFoundError, match="--bring-files brings files while"):
        wanted.fetch("below/rank-1.txt", to=notebook / "late")
    assert [each.path for each in trained.files] == ["below/rank-0.txt", "model.bin", "model.bin"]


def test_what_cannot_travel_is_one_line(elsewhere: Foreign, notebook: Path) -> None:
    with (notebook / "big.bin").open("wb") as file:
        file.truncate(2 << 30)  # it takes no room
    with pytest.raises(CaptureError) as refused:
        train("open('big.bin')\n", 1)
    assert "'big.bin', which the cell names, is 2 GiB; these workers do not" in str(refused.value)
    assert "at most 256 MiB travel" in str(refused.value)

    with pytest.raises(RunFailedError, match=r"looked for in \S+/files on host \S+, which does"):
        train("open('no.json')\n", 1, max_restarts=0)


def test_a_persistent_group_gets_data_with_each_cell(elsewhere: Foreign, notebook: Path) -> None:
    with open_group(2, initialize=False) as group:
        (notebook / "data.txt").write_text("1")
        assert group.execute("open('data.txt').read()").values == ["1", "1"]
        (notebook / "data.txt").write_text("2")
        assert group.execute("open('data.txt').read()").values == ["2", "2"]
        group.execute("n = open('data.txt', 'w').write('mine')")
        assert group.execute("open('data.txt').read()").values == ["mine", "mine"]
        (path,) = group.files.fetch("data.txt", to=notebook / "home")
        assert path.read_text() == "mine"


def test_a_script_goes_on_from_the_snapshot_that_came_home(
    elsewhere: Foreign, notebook: Path
) -> None:
    run = train(SNAPSHOT, 1, bring_files="snapshot.txt", wait=False)
    until(lambda: len(run.metrics) > 0, 60, "a report")
    run.cancel("next_report")
    run.wait()
    assert [path.read_text() for path in (run.directory / "files").rglob("snapshot.txt")] == ["1"]
    # The worker is lost, and its files with it: the run goes on at the other one.
    (written,) = run.files
    with elsewhere.client() as client:
        pids = client.run(os.getpid)
        names = {each["name"]: at for at, each in client.scheduler_info()["workers"].items()}
    os.kill(pids[names[written.worker]], signal.SIGKILL)
    resumed = train(SNAPSHOT, 1, resume=run.id)
    assert "begins at 1" in resumed.logs(0)
    assert resumed.files.fetch("snapshot.txt")[0].read_text() == "2"


def test_the_best_trials_file_is_the_one_that_is_meant(elsewhere: Foreign, notebook: Path) -> None:
    cell = (
        "import time\nx = choice(1, 2)\nopen('best.txt', 'w').write(str(x))\n"
        "time.sleep(0.5)\nreport(step=0, score=x)\n"
    )
    run = search(cell, metric="score", trials=2, sampler="grid", bring_files="best.txt")
    assert len(run.files) == 2, "both workers had a trial"
    (path,) = run.files.fetch("best.txt")
    assert path.read_text() == "2"


def test_a_cell_tells_what_travels_and_what_came_home(home: Home) -> None:
    with foreign_cluster(home, 1, nanny=False, tls=False) as found:
        (home.work / "data.txt").write_text("5")
        kernel = LiveKernel(home)
        try:
            kernel.run(f"%load_ext jupyter_ddl\n%cluster connect {found.address}", 60).check()
            cell = "value = open('data.txt').read()\nopen('a.txt', 'w').write(value)\n"
            cell += "n = open('b.txt', 'w').write(value)\n"
            dry = kernel.run("%%distribute ddp -n 1 --dry-run\n" + cell).check().everything
            assert "Data: 1 file beside the notebook, 1 B\n  data.txt: 1 B" in dry
            line = "%%distribute ddp -n 1 --no-init --bring-files a.txt,*.pt\n"
            out = kernel.run(line + cell, 60).check().everything
            assert f"a.txt ← {home.work} (1 B)" in out
            assert "--bring-files *.pt: the ranks have written no such file." in out
            assert "1 file of the ranks stay on the workers (1 B): see `_run.files`." in out
            assert (home.work / "a.txt").read_text() == "5"
            kernel.run("_run.files.fetch('b.txt')", 60).check()
            assert (home.work / "b.txt").read_text() == "5"

            line = "%%distribute run -n 1 --no-init --bring-files c.txt,*.pt\n"
            out = kernel.run(f"{line}n = open('c.txt', 'w').write('cell')", 60).check().everything
            assert f"c.txt ← {home.work} (4 B)" in out
            assert "--bring-files *.pt: the ranks have written no such file." in out
            assert (home.work / "c.txt").read_text() == "cell"
            kernel.run("import jupyter_ddl\njupyter_ddl.open_group().close()", 60).check()

            out = kernel.run(f"%%distribute fit --bring-files d.txt -o fitted\n{_FIT}", 60).check()
            assert f"d.txt ← {home.work} (3 B)" in out.everything
            assert (home.work / "d.txt").read_text() == "fit"
            assert kernel.value("[each.path for each in fitted.files]") == "['d.txt']"
        finally:
            kernel.close()
