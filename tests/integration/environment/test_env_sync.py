"""``%cluster env sync`` gives workers what the kernel has: real pip on real workers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from jupyter_ddl.client.api import map_cell
from jupyter_ddl.client.clusters import Cluster, start_cluster
from jupyter_ddl.client.environment import check_before, forget_answers
from jupyter_ddl.client.session import session
from jupyter_ddl.client.sync import sync_environment
from jupyter_ddl.errors import WorkerEnvironmentError
from jupyter_ddl.protocol.replies import EnvironmentResult
from jupyter_ddl.protocol.requests import GetEnvironment
from tests.leaks import Home
from tests.run_tools import kill_controller, workers
from tests.tiny_wheels import install, make_wheel
from tests.until import until

pytestmark = pytest.mark.integration

_CELL = "import ddltiny\n(ddltiny.__version__, ddltiny.__file__)\n"
_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "ddltiny"
version = "3.0"
"""


@pytest.fixture
def index(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What pip on the workers finds packages in, instead of an index."""
    directory = tmp_path / "index"
    directory.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("JUPYTER_DDL_OVERLAY", str(tmp_path / "overlay"))
    return directory


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages of this process alone."""
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.syspath_prepend(str(directory))
    # Modules below the notebook's folder would travel with the cell.
    (tmp_path / "notebook").mkdir()
    monkeypatch.chdir(tmp_path / "notebook")
    forget_answers("test")
    return directory


def environment_of(cluster: str) -> EnvironmentResult:
    found = session().ask(cluster, GetEnvironment((), fresh=True), 15.0)
    assert isinstance(found, EnvironmentResult)
    return found


def _values(n: int = 4) -> set[str]:
    run = map_cell(_CELL, list(range(n)), namespace={}, env_check="strict", isolate=True)
    return {version for version, _ in run.values}


def test_packages_are_installed_on_workers_and_on_those_that_take_their_places(
    index: Path, here: Path, own_cluster: Cluster, tmp_path: Path
) -> None:
    install(make_wheel(index, "ddltiny", "1.0"), here)
    with pytest.raises(WorkerEnvironmentError, match="all workers lack it"):
        _values()

    synced = sync_environment("test", packages=["ddltiny"])
    assert synced.requirements == ("ddltiny==1.0",)
    assert _values() == {"1.0"}
    # Once per host: both workers have the same directory.
    assert len([each for each in (tmp_path / "overlay").iterdir() if each.suffix == ""]) == 2

    # The wheel is kept on the host: a worker that comes later needs no index.
    (index / "ddltiny-1.0-py3-none-any.whl").unlink()
    before = {process.pid for process in workers()}
    lost = workers()[0]
    os.kill(lost.pid, signal.SIGKILL)
    until(lambda: len({p.pid for p in workers()} - before) == 1, 30.0, "a worker in its place")
    until(lambda: len(own_cluster.status().workers) == 2, 30.0, "two workers")
    assert _values(8) == {"1.0"}

    # What can't be installed leaves workers, and the list for those to come, as they were: even
    # of two packages the one that could be.
    install(make_wheel(index, "ddltiny", "2.0"), here)
    install(make_wheel(tmp_path, "ddlabsent", "1.0"), here)
    with pytest.raises(WorkerEnvironmentError, match=r"found for ddlabsent==1\.0"):
        sync_environment("test", packages=["ddltiny", "ddlabsent"])
    run = map_cell(_CELL, [1, 2], namespace={}, env_check="off", isolate=True)
    assert {version for version, _ in run.values} == {"1.0"}
    assert environment_of("test").patch == ("ddltiny==1.0",)

    # A newer version replaces it.
    sync_environment("test", packages=["ddltiny"])
    assert _values() == {"2.0"}


def test_the_controller_after_a_killed_one_gives_its_workers_the_same(
    index: Path, here: Path, home: Home, own_cluster: Cluster
) -> None:
    install(make_wheel(index, "ddltiny", "1.0"), here)
    sync_environment("test", packages=["ddltiny"])
    kill_controller("test")
    again = start_cluster(n_workers=1, name="test")
    assert _values() == {"1.0"}
    again.stop()
    assert list((home.runtime / "jupyter_ddl").glob("*.packages")) == [], "it has ended in order"


def test_an_index_with_another_package_of_that_version_is_refused(
    index: Path, here: Path, own_cluster: Cluster, tmp_path: Path
) -> None:
    install(make_wheel(tmp_path / "true", "ddltiny", "1.0"), here)
    make_wheel(index, "ddltiny", "1.0", "import os\n")
    with pytest.raises(WorkerEnvironmentError) as refused:
        sync_environment("test", packages=["ddltiny"])
    assert "ddltiny-1.0-py3-none-any.whl has other files here than" in refused.value.message
    assert "\n" not in refused.value.message
    run = map_cell("import importlib.util as u\nu.find_spec('ddltiny')", [1], namespace={})
    assert run.values == [None]
    # The true one is taken once it is there, and nothing of the other was kept.
    make_wheel(index, "ddltiny", "1.0")
    sync_environment("test", packages=["ddltiny"])
    assert _values() == {"1.0"}


def test_a_package_that_nobody_has_is_refused_with_the_reason_of_pip(
    index: Path, here: Path, own_cluster: Cluster
) -> None:
    install(make_wheel(here.parent, "ddltiny", "1.0"), here)
    with pytest.raises(WorkerEnvironmentError) as refused:
        sync_environment("test", packages=["ddltiny"])
    assert "No matching distribution found for ddltiny==1.0" in refused.value.message
    assert "\n" not in refused.value.message
    with pytest.raises(WorkerEnvironmentError, match="this kernel has no such package"):
        sync_environment("test", packages=["absent-package"])
    for wrong in ("ddltiny==9", "../../etc"):
        with pytest.raises(WorkerEnvironmentError, match="this is not a package's name"):
            sync_environment("test", packages=[wrong])
    # Nothing of it is left: workers go on with what they had.
    assert map_cell("item", [1, 2], namespace={}).values == [1, 2]


def test_a_package_of_a_checkout_travels_as_a_wheel(
    index: Path, here: Path, own_cluster: Cluster, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "ddltiny").mkdir(parents=True)
    (checkout / "ddltiny" / "__init__.py").write_text("__version__ = 'of the checkout'\n")
    (checkout / "pyproject.toml").write_text(_PROJECT)
    install(checkout, here)
    sync_environment("test", packages=["ddltiny"])
    assert _values() == {"of the checkout"}

    (checkout / "pyproject.toml").write_text("[build-system]\nrequires = []\nbuild-backend = 'x'")
    install(make_wheel(index, "ddlother", "1.0"), here)
    (here / "ddlother-1.0.dist-info" / "direct_url.json").write_text(
        f'{{"url": "{checkout.as_uri()}", "dir_info": {{"editable": true}}}}'
    )
    (here / "another").mkdir()  # so that the directory has changed
    with pytest.raises(WorkerEnvironmentError, match="no wheel can be built of it"):
        sync_environment("test", packages=["ddlother"])


def test_ranks_that_work_are_left_alone(index: Path, here: Path, home: Home) -> None:
    cluster = start_cluster(n_workers=1, name="test")
    install(make_wheel(index, "ddltiny", "1.0"), here)
    gate = here / "gate"
    cell = f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.02)"
    run = map_cell(cell, [1], namespace={}, wait=False)
    until(lambda: run.snapshot().counts.running == 1, 20.0, "the trial")
    sync_environment("test", packages=["ddltiny"])
    gate.touch()
    assert run.wait().state == "complete"
    assert run.snapshot().counts.complete == 1
    assert not run.errors
    status = check_before("test", ["ddltiny"], here, "strict")
    assert status is not None
    assert status.word == "same"
    cluster.stop()
