"""``%cluster env sync`` on pods: a read-only root, and no way to an index of packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.client.api import map_cell
from jupyter_ddl.client.clusters import Cluster
from jupyter_ddl.client.environment import forget_answers
from jupyter_ddl.client.sync import sync_environment
from jupyter_ddl.errors import WorkerEnvironmentError
from tests.kube.kube_tools import delete_pod, pods, signal_controller, start_kube
from tests.tiny_wheels import install, make_wheel
from tests.until import until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(400)]

_CELL = """
import pathlib, socket, time
import ddltiny
time.sleep(0.3)
ddltiny.__version__, ddltiny.__file__, socket.gethostname()
"""


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the kernel's pip finds packages; no pod sees it."""
    directory = tmp_path / "index"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    here = tmp_path / "here"
    here.mkdir()
    install(make_wheel(directory, "ddltiny", "1.0"), here)
    monkeypatch.syspath_prepend(str(here))
    # Modules below the notebook's folder would travel with the cell.
    (tmp_path / "notebook").mkdir()
    monkeypatch.chdir(tmp_path / "notebook")
    forget_answers("kube")
    return directory


def _found(n_workers: int, cluster: Cluster) -> set[str]:
    """Versions, once so many workers take work and each was asked."""
    until(lambda: len(cluster.status().workers) == n_workers, 60, f"{n_workers} workers")
    found: list[tuple[str, str, str]] = []

    def ask() -> bool:
        found[:] = _values()
        return len({host for _, _, host in found}) == n_workers

    until(ask, 60, "all workers to take work")
    return {version for version, _, _ in found}


def _values() -> list[tuple[str, str, str]]:
    """Version, file and host of each of six elements."""
    run = map_cell(_CELL, list(range(6)), namespace={}, env_check="strict", isolate=True)
    values: list[tuple[str, str, str]] = run.values
    assert all(file.startswith("/tmp/") for _, file, _ in values), "above a read-only root"
    return values


def test_packages_come_from_the_kernel_and_stay_with_the_cluster(
    namespace: str, index: Path
) -> None:
    cluster = start_kube(namespace, 2)
    with pytest.raises(WorkerEnvironmentError, match="all workers lack it"):
        _values()
    synced = sync_environment("kube", packages=["ddltiny"])
    assert synced.requirements == ("ddltiny==1.0",)
    assert _found(2, cluster) == {"1.0"}

    # From here on nobody can fetch it again.
    (index / "ddltiny-1.0-py3-none-any.whl").unlink()
    first, _ = (pod["metadata"]["name"] for pod in pods(namespace, "worker"))
    delete_pod(namespace, first)
    until(lambda: len(cluster.status().workers) == 1, 60, "the loss to be noticed")
    assert _found(2, cluster) == {"1.0"}, "a pod that takes another one's place has it, too"

    former = cluster.status().controller_pid
    signal_controller(namespace, "SIGKILL")
    until(lambda: cluster.status().controller_pid != former, 60, "another controller")
    assert _found(2, cluster) == {"1.0"}, "the next controller knows of it"
    cluster.stop()
