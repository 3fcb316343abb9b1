"""What the README shows: its cells run under each of their first lines, its refusals are real."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.live_kernel import LiveKernel

pytestmark = pytest.mark.kernel

_README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
_LOAD, _SEARCH, _CELL = re.findall(r"^```python\n(.*?)^```$", _README, re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| (.+?) \| ([^|]+) \|$", re.MULTILINE)
_YOURS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

x_train, x_val = torch.randn(256, 4), torch.randn(64, 4)
y_train, y_val = (x_train[:, 0] > 0).long(), (x_val[:, 0] > 0).long()
data, loss_fn = TensorDataset(x_train, y_train), nn.CrossEntropyLoss()

def make_model(width=4):
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))

def train_one_epoch(model, optimizer):
    optimizer.zero_grad()
    loss_fn(model(x_train), y_train).backward()
    optimizer.step()

def accuracy(model, x=x_val, y=y_val):
    return (model(x).argmax(1) == y).float().mean().item()
"""
"""What the README calls yours."""


def _first_lines() -> list[str]:
    """Of the table below the second cell."""
    table = _README.partition("| first line | what runs |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(%%distribute [^`]+)`", table, re.MULTILINE)


@pytest.mark.notebooks  # ranks have torch when they begin, as everywhere but in tests
def test_its_cells_run_under_each_of_their_first_lines(kernel: LiveKernel) -> None:
    kernel.run(_LOAD).check()
    kernel.run(_YOURS, timeout_s=60).check()
    kernel.run(_SEARCH.partition("\n")[2], timeout_s=60).check()
    kernel.run(_SEARCH, timeout_s=90).check()
    assert kernel.value("len(run.trials), sorted(run.best.params)") == "(24, ['lr', 'width'])"
    kernel.run(_CELL, timeout_s=60).check()
    lines = _first_lines()
    assert len(lines) == 3
    for line in lines:
        kernel.run(f"{line} -o run\n{_CELL}", timeout_s=120).check()
        assert kernel.value("run.state") == "'complete'"


def test_its_refusals_are_what_is_read(kernel: LiveKernel) -> None:
    kernel.run(_LOAD).check()
    table = _README.partition("| you wrote | you read |")[2].partition("\n\n")[0]
    read = dict(_ROW.findall(table))
    bodies = {
        "`--sampler tpee`": ("--metric acc --sampler tpee", "lr = loguniform(0.1, 1)\nacc = lr"),
        "`lr = loguniform(0.1, 0.001)`": ("--metric acc", "lr = loguniform(0.1, 0.001)\nacc = lr"),
        "`--metric acc`, but the cell reports `val_acc`": (
            "--metric acc",
            "lr = loguniform(0.1, 1)\nreport(val_acc=lr)",
        ),
    }
    for wrote, (options, body) in bodies.items():
        imports = "from jupyter_ddl import loguniform, report\n"
        shown = kernel.run(f"%%distribute search {options}\n{imports}{body}").everything
        text = re.sub(r"In \[\d+\]", "In [4]", " ".join(shown.split()))
        assert [part for part in read[wrote].split("…") if part.strip() not in text] == [], text
