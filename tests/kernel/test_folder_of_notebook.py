"""Ranks work where the notebook works: files beside it are read, and written, by their names."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.live_kernel import LiveKernel

pytestmark = pytest.mark.kernel

SNAPSHOT = """
import os, torch
begin = torch.load("snapshot.pt")["epoch"] + 1 if os.path.exists("snapshot.pt") else 0
print("begins at", begin)
torch.distributed.barrier()
for epoch in range(begin, begin + 2):
    if rank() == 0:
        torch.save({"epoch": epoch}, "snapshot.pt")
"""


@pytest.fixture
def kernel(attached_kernel: LiveKernel) -> LiveKernel:
    return attached_kernel


def test_every_verb_works_in_the_folder_that_the_notebook_is_in(
    kernel: LiveKernel,
) -> None:
    work = kernel.home.work
    (work / "data.txt").write_text("7")
    (work / "below").mkdir()

    line = "%%distribute search --metric score --trials 2 --sampler grid -o s\n"
    read = "x = choice(1, 2)\nreport(step=0, score=x * int(open('data.txt').read()))\n"
    kernel.run(line + read, 60).check()
    assert kernel.value("s.best.value") == "14.0"
    kernel.run("%%distribute ddp -n 2 -o d\nimport os\nos.getcwd()\n", 60).check()
    assert kernel.value("d.values") == repr([str(work)] * 2)
    kernel.run("import os, jupyter_ddl\nnames = ['a', 'b']\n").check()
    kernel.run("%%distribute map --over n in names -o m\nimport os\nos.getcwd() + n\n", 60).check()
    assert kernel.value("m.values") == repr([f"{work}a", f"{work}b"])
    kernel.run("%%distribute run -n 2 -o g\nimport os\nos.getcwd()\n", 60).check()
    assert kernel.value("g.values") == repr([str(work)] * 2)

    kernel.run("%cd below").check()
    below = str(work / "below")
    kernel.run("%%distribute run -o g\nimport os\nos.getcwd()\n", 60).check()
    assert kernel.value("g.values") == repr([below] * 2)
    kernel.run("%%distribute run -o g\nos.chdir('/')\nos.getcwd()\n", 60).check()
    kernel.run("%%distribute run -o g\nos.getcwd()\n", 60).check()
    assert kernel.value("g.values") == repr(["/"] * 2), "ranks stay where a cell has gone"
    kernel.run("%runs stop {g.group_id}").check()  # it holds all slots
    kernel.run("r = jupyter_ddl.train('import os\\nos.getcwd()', 1)\n", 60).check()
    assert kernel.value("r.values") == repr([below])
    fit = """
from sklearn.base import BaseEstimator
class Where(BaseEstimator):
    def __init__(self, x=0): self.x = x
    def fit(self, X, y): return self
    def score(self, X, y):
        import os
        open(f"fit-{self.x}", "w").close()
        return self.x
from sklearn.model_selection import GridSearchCV
GridSearchCV(Where(), {"x": [1, 2]}, cv=2, refit=False).fit([[0]] * 4, [0, 1] * 2)
"""
    kernel.run("%%distribute fit\n" + fit, 60).check()
    assert {path.name for path in Path(below).iterdir()} == {"fit-1", "fit-2"}
    assert sorted(path.name for path in work.iterdir()) == ["below", "data.txt"]


def test_snapshots_of_two_notebooks_are_two_and_a_script_goes_on_from_its_own(
    kernel: LiveKernel,
) -> None:
    work = kernel.home.work
    for name in ("one", "two"):
        (work / name).mkdir()
    line = "%%distribute ddp -n 2\n"

    kernel.run("%cd one").check()
    assert "begins at 0" in kernel.run(line + SNAPSHOT, 60).check().text
    other = LiveKernel(dataclasses.replace(kernel.home, work=work / "two"))
    try:
        other.run("%load_ext jupyter_ddl\n%cluster attach local").check()
        assert "begins at 0" in other.run(line + SNAPSHOT, 60).check().text
    finally:
        other.close(stop_clusters=False)
    assert "begins at 2" in kernel.run(line + SNAPSHOT, 60).check().text

    assert sorted(str(path.relative_to(work)) for path in work.rglob("*.pt")) == [
        "one/snapshot.pt",
        "two/snapshot.pt",
    ]


def test_what_is_wrong_with_files_and_folders_is_one_line(kernel: LiveKernel) -> None:
    work = kernel.home.work
    out = kernel.run("%%distribute ddp -n 1 --max-restarts 0\nopen('no.json')\n", 60)
    assert out.error is not None
    assert f"No such file or directory: 'no.json'; looked for in {work}, where" in out.error[1]

    save = "x = choice(1, 2)\nopen('model.txt', 'w').write(str(x))\nreport(step=0, score=x)\n"
    out = kernel.run("%%distribute search --metric score --trials 4\n" + save, 60).check()
    assert out.everything.count("have both written model.txt in") == 1
    save = "import torch\nx = choice(1, 2)\ntorch.save(x, 'model.pt')\nreport(step=0, score=x)\n"
    out = kernel.run("%%distribute search --metric score --trials 6\n" + save, 60).check()
    shown = " ".join(out.everything.split())
    assert shown.count("which the cell names, has changed during trials") == 1

    (work / "gone").mkdir()
    kernel.run("%cd gone").check()
    stopped = "import time\nreport(step=0)\nopen('begun', 'w').close()\ntime.sleep(600)\n"
    kernel.run("%%distribute ddp -n 1 -a -o left\n" + stopped, 60).check()
    kernel.run(
        "import os, time\nwhile not os.path.exists('begun'): time.sleep(0.05)\nleft.cancel()\n"
        "try: left.wait()\nexcept Exception: pass\n",
        60,
    )
    kernel.run("%cd ..").check()
    (work / "gone" / "begun").unlink()
    (work / "gone").rmdir()
    out = kernel.run("%%distribute ddp -n 1 --resume {left.id}\n" + stopped, 60)
    assert f"the run works in {work}/gone, which is gone or can't be read" in out.everything

    (work / "gone").mkdir()
    kernel.run("%cd gone").check()
    (work / "gone").rmdir()
    out = kernel.run("%%distribute ddp -n 1\n1\n", 60)
    assert "was removed; `%cd` to one that is there" in out.everything
    assert "Traceback" not in out.everything
