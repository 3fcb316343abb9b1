"""The examples of docs/how-to: every block without a title runs, in one kernel on one cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_ddl.plugins import VERBS
from tests.leaks import end_processes, leftovers_of, new_home
from tests.live_kernel import LiveKernel

pytestmark = pytest.mark.kernel

_FOLDER = Path(__file__).resolve().parents[2] / "docs" / "how-to"
_ORDER = ("ddp", "search", "analysis", "map", "run", "fit", "files", "runs", "cluster")
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_IMPORTS = "import torch\nfrom sklearn import linear_model, model_selection, neighbors, tree\n"
"""Before the cluster starts, as the page about clusters advises: ranks need not do it."""
_TITLES = {
    "needs GPUs",
    "needs Kubernetes",
    "needs a scheduler",
    "raises RankFailedError",
    "raises RunFailedError",
}


def _blocks(name: str) -> list[tuple[str, str, str]]:
    """(language, title, source) of every block of a page."""
    return _BLOCK.findall((_FOLDER / f"{name}.md").read_text())


@pytest.fixture(scope="module")
def notebook() -> Iterator[LiveKernel]:
    """One kernel for all pages; its clusters end with it."""
    with new_home() as home:
        live = LiveKernel(home)
        live.run(_IMPORTS, timeout_s=60).check()
        yield live
        live.close()
        found = leftovers_of(home)
        end_processes(home)
        if found:
            pytest.fail("left behind:\n" + "\n".join(found), pytrace=False)


@pytest.mark.parametrize("name", _ORDER)
def test_every_block_runs_as_it_stands_in_the_page(name: str, notebook: LiveKernel) -> None:
    for language, title, source in _blocks(name):
        if language == "python" and not title:
            notebook.run(source, timeout_s=60).check()
        elif title.startswith("raises "):
            error = notebook.run(source, timeout_s=60).error
            assert error is not None
            assert error[0] == title.removeprefix("raises ")


def test_each_verb_each_magic_and_files_have_their_page() -> None:
    assert (
        {path.stem for path in _FOLDER.glob("*.md")}
        == {*VERBS.names(), "analysis", "cluster", "files", "runs"}
        == {*_ORDER}
    )


@pytest.mark.parametrize("name", _ORDER)
def test_a_block_that_is_not_executed_says_why(name: str) -> None:
    text = (_FOLDER / f"{name}.md").read_text()
    blocks = _blocks(name)
    assert text.count("```") == 2 * len(blocks)
    assert {title for _, title, _ in blocks if title} <= _TITLES
    assert {language for language, _, _ in blocks} <= {"python", "sh"}
    assert sum(1 for language, title, _ in blocks if language == "python" and not title) > 3
