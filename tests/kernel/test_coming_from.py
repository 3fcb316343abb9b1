"""The examples of docs/coming-from: every cell marked *here* runs, in a real kernel, in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.live_kernel import LiveKernel

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.notebooks,  # ranks have torch when they begin, as everywhere but in tests
]

_FOLDER = Path(__file__).resolve().parents[2] / "docs" / "coming-from"
TABLE = _FOLDER / "real-code.md"
"""Holds no cells: tests/real writes its rows."""
_PAGES = sorted(set(_FOLDER.glob("*.md")) - {TABLE})
FRAMEWORKS = _FOLDER / "frameworks.md"
"""Its cells need more packages: tests/real executes them."""
_TOOLS = (
    "GridSearchCV", "dask-ml", "joblib", "Horovod", "tf.distribute", "TensorFlowOnSpark",
    "Spark MLlib", "Maggy", "Hopsworks", "collective_all_reduce", "Katib", "PyTorchJob",
    "Kubeflow pipelines", "Ray Tune", "Ray Train", "Optuna", "ipyparallel", "nbdistributed",
    "torchrun", "accelerate", "Hugging Face", "Lightning", "Fabric", "Keras", "xgboost", "lightgbm",
    "hyperopt",
)  # fmt: skip
_BLOCK = re.compile(r'^```\w+ title="(here|there)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def cells_here(page: Path) -> list[str]:
    return [code for who, code in _BLOCK.findall(page.read_text()) if who == "here"]


@pytest.mark.parametrize(
    "page", [page for page in _PAGES if page != FRAMEWORKS], ids=lambda page: page.stem
)
def test_every_cell_runs_as_it_stands_in_the_page(page: Path, attached_kernel: LiveKernel) -> None:
    cells = cells_here(page)
    assert len(cells) > 4
    for cell in cells:
        attached_kernel.run(cell, timeout_s=90).check()


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_every_section_shows_both_sides(page: Path) -> None:
    sections = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]
    assert sections
    one_sided = [
        section.splitlines()[0]
        for section in sections
        if {who for who, _ in _BLOCK.findall(section)} != {"here", "there"}
    ]
    assert one_sided == []


def test_everybody_finds_the_tool_they_come_from() -> None:
    text = "".join(page.read_text() for page in _PAGES)
    headings = "\n".join(re.findall(r"^## (.+)$", text, re.MULTILINE))
    assert [tool for tool in _TOOLS if tool not in headings] == []
