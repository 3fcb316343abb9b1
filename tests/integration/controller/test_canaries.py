"""Secrets in cells, the environment, output and errors stay in the run and are nowhere else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jupyter_ddl.client.api import train
from jupyter_ddl.client.clusters import start_cluster
from jupyter_ddl.client.run import Run
from jupyter_ddl.errors import RunFailedError
from jupyter_ddl.recording.page import export_run
from tests.conftest import _close_session
from tests.leaks import Home, new_home
from tests.unit.recording.canaries import CANARIES, CELL, VARIABLE, places_of

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[str, bytes]]:
    """All that others may get to see of a run that is full of secrets, by where it was."""
    with new_home() as home, pytest.MonkeyPatch.context() as patch:
        for name, value in {**home.variables(), "JUPYTER_DDL_PREWARM": ""}.items():
            patch.setenv(name, value)
        patch.setenv("MY_TOKEN", VARIABLE)
        patch.setattr("jupyter_ddl.client.session._session", None)
        cluster = start_cluster(n_workers=1)
        try:
            found = _seen(home)
        finally:
            cluster.stop()
            _close_session()
        yield found | {
            f"log {path.name}": path.read_bytes() for path in home.runtime.rglob("*.log*")
        }


def _seen(home: Home) -> dict[str, bytes]:
    with pytest.raises(RunFailedError) as failed:
        train(CELL, 1, namespace={}, max_restarts=0)
    run = Run(str(failed.value.fields["run_id"]))
    assert VARIABLE in run.logs(), "the run itself has them"
    found = {}
    for name in ("one.jsonl", "one.html"):
        export_run(run.id, home.work / name)
        found[name] = (home.work / name).read_bytes()
    events = run.tensorboard(home.work / "events")
    for path in Path(events).rglob("*"):
        found[f"event file {path.name}"] = path.read_bytes() if path.is_file() else b""
    lines = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            lines.append(" ".join(process.cmdline()))
    found["ps"] = "\n".join(each for each in lines if "pytest" not in each).encode()
    return found


@pytest.mark.parametrize(("name", "line", "secret"), CANARIES, ids=[each[0] for each in CANARIES])
def test_a_secret_is_found_nowhere_outside_the_run(
    seen: dict[str, bytes], name: str, line: str, secret: str
) -> None:
    del name, line
    assert {each.partition(" ")[0] for each in seen} == {
        "one.jsonl",
        "one.html",
        "event",
        "ps",
        "log",
    }
    assert b"loss" in seen["one.jsonl"]
    assert places_of(secret, seen) == []
