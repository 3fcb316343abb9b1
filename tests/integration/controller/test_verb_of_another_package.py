"""A verb that only its own folder knows, from its first line to results on a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.cell.draft import CellContext
from jupyter_ddl.client.clusters import start_cluster
from jupyter_ddl.client.submit import submit
from jupyter_ddl.verbs.base import parse_line
from tests.contract.test_recipes import write

pytestmark = pytest.mark.integration


@pytest.mark.usefixtures("stopping")
def test_a_verb_of_another_package_runs_on_a_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write("echo", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # of the controller
    start_cluster(n_workers=1, name="echo")
    verb, options = parse_line("echo --times 3 --bring answer")
    draft = verb.compile("answer = 6 * 7\n", {}, CellContext(None, Path.cwd()), options)
    run = submit(draft).wait(timeout_s=60)
    assert [run.value("answer", number) for number in range(3)] == [42, 42, 42]
    assert (run.snapshot().verb, run.snapshot().nouns.trials) == ("echo", "echoes")
