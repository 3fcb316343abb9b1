"""Workers that differ from the kernel and from each other, each on a path of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.client.api import map_cell
from jupyter_ddl.client.clusters import connect_cluster
from jupyter_ddl.client.environment import compare_with, forget_answers
from jupyter_ddl.client.sync import sync_environment
from jupyter_ddl.environment.compare import kernel_environment
from jupyter_ddl.errors import WorkerEnvironmentError
from tests.integration.backends.foreign import foreign_cluster
from tests.leaks import Home
from tests.tiny_wheels import install, make_wheel

pytestmark = pytest.mark.integration

_CELL = "import ddltiny\nddltiny.__version__\n"


@pytest.fixture
def places(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Directories with a version each; the last one is this process's."""
    found = [tmp_path / version for version in ("1.0", "2.0", "3.0")]
    for place in found:
        place.mkdir()
        install(make_wheel(tmp_path / "index", "ddltiny", place.name), place)
    monkeypatch.syspath_prepend(str(found[-1]))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "notebook").mkdir()
    monkeypatch.chdir(tmp_path / "notebook")
    forget_answers("dask")
    return found


def test_each_is_told_and_made_like_the_kernel_and_one_that_cannot_be_takes_no_work(
    home: Home, places: list[Path], tmp_path: Path
) -> None:
    broken = {"JUPYTER_DDL_OVERLAY": str(tmp_path / "its own"), "PIP_TIMEOUT": "never"}
    with foreign_cluster(home, 0, tls=False) as found:
        for place, variables in ((places[0], {}), (places[1], broken)):
            with pytest.MonkeyPatch.context() as patch:
                for name, value in {"PYTHONPATH": str(place), **variables}.items():
                    patch.setenv(name, value)
                found.add_workers(1, nanny=False)
        cluster = connect_cluster(found.address)
        scope = kernel_environment().scope(["ddltiny"])
        verdict = compare_with("dask", scope, None).verdict
        assert {(each.what, each.kernel) for each in verdict.differences} == {("ddltiny", "3.0")}
        assert {each.other for each in verdict.differences} == {"1.0", "2.0"}
        assert len({each.where for each in verdict.differences}) == 2
        with pytest.raises(WorkerEnvironmentError, match=r"ddltiny is 3\.0 here, worker .* has"):
            map_cell(_CELL, [1], namespace={}, env_check="strict")
        seen = map_cell(_CELL, list(range(20)), namespace={}, env_check="warn", isolate=True)
        assert set(seen.values) == {"1.0", "2.0"}

        with pytest.raises(WorkerEnvironmentError) as half:
            sync_environment("dask", packages=["ddltiny"])
        assert "the other one has it; a worker without it takes no work" in half.value.message
        run = map_cell(_CELL, list(range(20)), namespace={}, env_check="strict", isolate=True)
        assert set(run.values) == {"3.0"}
        cluster.stop()
