"""Kernel and workers are compared before a cell goes there: real pip, real workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_ddl.client.api import map_cell
from jupyter_ddl.client.clusters import Cluster, start_cluster
from jupyter_ddl.client.environment import check_before, forget_answers
from jupyter_ddl.client.sync import sync_environment
from jupyter_ddl.errors import WorkerEnvironmentError
from tests.leaks import Home
from tests.tiny_wheels import install, make_wheel
from tests.until import PATIENCE_S

pytestmark = pytest.mark.integration

_CELL = "import ddltiny\nddltiny.__version__\n"


@pytest.fixture
def packages(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on the path of this process, and of the workers if they start now."""
    target = tmp_path / "packages"
    target.mkdir()
    monkeypatch.setenv("PYTHONPATH", f"{target}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(str(target))
    # Modules below the notebook's folder would travel with the cell.
    (tmp_path / "notebook").mkdir()
    monkeypatch.chdir(tmp_path / "notebook")
    forget_answers("test")
    return target


def _versions(mode: str = "off") -> set[object]:
    """What ranks really import."""
    run = map_cell(_CELL, [1, 2, 3, 4], namespace={}, env_check=mode, isolate=True)
    return set(run.values)


def test_a_package_that_was_replaced_while_the_cluster_ran_is_drift_until_ranks_begin_anew(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(make_wheel(tmp_path, "ddltiny", "1.0"), packages)
    monkeypatch.setenv("JUPYTER_DDL_PREWARM", "ddltiny")
    cluster = start_cluster(n_workers=2, name="test")
    said: list[str] = []
    status = check_before("test", ["ddltiny"], tmp_path, None, said.append)
    assert status is not None
    assert (status.word, said) == ("same", [])

    install(make_wheel(tmp_path, "ddltiny", "2.0"), packages)
    for _ in range(2):
        status = check_before("test", ["ddltiny"], tmp_path, None, said.append)
        assert status is not None
        assert status.word == "drift"
    # Said once, true, and with what fixes it.
    assert len(said) == 1
    assert "ddltiny is 2.0 here, all workers have 1.0" in said[0]
    assert "%cluster stop" in said[0]
    assert _versions() == {"1.0"}
    with pytest.raises(WorkerEnvironmentError, match=r"ddltiny is 2\.0 here.*--env-check warn"):
        check_before("test", ["ddltiny"], tmp_path, "strict")
    assert cluster.status().environment is not None
    assert cluster.status().environment.word == "drift"

    synced = sync_environment("test", packages=["ddltiny"])
    assert (synced.requirements, synced.renewed) == ((), ("ddltiny",))
    assert _versions() == {"2.0"}
    status = check_before("test", ["ddltiny"], tmp_path, "strict")
    assert status is not None
    assert status.word == "same"
    cluster.stop()


def test_a_package_that_workers_lack_is_refused_before_anything_starts(
    own_cluster: Cluster, packages: Path, tmp_path: Path
) -> None:
    install(make_wheel(tmp_path, "ddltiny", "1.0"), packages)
    with pytest.raises(WorkerEnvironmentError) as refused:
        _versions(mode="strict")
    assert refused.value.message == (
        "the cell was not sent: ddltiny is 1.0 here, all workers lack it; `%cluster env sync` "
        "fixes it (--env-check warn sends it all the same)"
    )
    assert own_cluster.status().active_runs == ()
    # What the cell does not import does not matter to it.
    run = map_cell("item + 1", [1], namespace={})
    assert run.values == [2]
    recorded = run.spec.provenance.environment
    assert recorded is not None
    assert recorded.word == "same"


def test_files_beside_the_notebook_are_compared_with_the_kernel(
    own_cluster: Cluster, packages: Path, tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text("numpy>=99\n")
    said: list[str] = []
    status = check_before("test", ["numpy"], tmp_path, None, said.append)
    assert status is not None
    assert status.word == "drift"
    assert "requirements.txt, line 1 asks for >=99" in status.text
    (tmp_path / "requirements.txt").write_text("numpy>=\n")
    status = check_before("test", ["numpy"], tmp_path, None, said.append)
    assert status is not None
    assert status.word == "same"
    assert "requirements.txt, line 1: 'numpy>=' is not a requirement" in said[-1]
    # A file that another one includes counts as much, when it changes alone.
    (tmp_path / "more").mkdir()
    (tmp_path / "requirements.txt").write_text("-r more/numbers.txt\n")
    for text, word in [("numpy\n", "same"), ("numpy>=99\n", "drift"), ("numpy>=1\n", "same")]:
        (tmp_path / "more" / "numbers.txt").write_text(text)
        status = check_before("test", ["numpy"], tmp_path, None, said.append)
        assert status is not None
        assert status.word == word
    (tmp_path / "requirements.txt").unlink()
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_ddl.cli", "cluster", "env", "check"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "environment · same" in done.stdout
    assert check_before("test", ["numpy"], tmp_path, "off") is None
