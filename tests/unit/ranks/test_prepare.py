"""Models and optimizers made ready: in plain execution, and in a process group of one."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.ranks import incell
from jupyter_ddl.ranks.loader import PreparedLoader
from jupyter_ddl.ranks.metrics import ReportError, check_reduction, reduced
from jupyter_ddl.ranks.training import PRIVATE_KEY, Training
from jupyter_ddl.testing.process_groups import end_process_group

_CPU = torch.device("cpu")


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group(
        "gloo", store=store, rank=0, world_size=1, timeout=timedelta(seconds=20)
    )
    yield
    end_process_group()


def _training(strategy: str = "ddp") -> Training:
    return Training(RankPlace("g", world_size=1, strategy=strategy), seed=3)


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.n_classes = 2

    def forward(self, x: Any) -> Any:
        return self.layer(x)

    def loss(self, x: Any) -> Any:
        return self(x).square().mean()


def _step(model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(torch.ones(4, 3)).square().mean().backward()
    optimizer.step()


def test_plain_execution_gives_the_same_objects_and_a_loader_of_all_samples() -> None:
    model = _Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.arange(6))
    torch.manual_seed(4)
    found = incell.prepare(model, optimizer, DataLoader(data, batch_size=2, shuffle=True))
    assert found[0] is model
    assert found[1] is optimizer
    torch.manual_seed(4)
    again = incell.prepare(DataLoader(data, batch_size=2, shuffle=True))
    orders = [[batch.tolist() for (batch,) in loader] for loader in (found[2], again)]
    assert orders[0] == orders[1]
    assert sorted(sample for batch in orders[0] for sample in batch) == list(range(6))


def test_a_prepared_model_shows_its_own_state_and_attributes(group: None) -> None:
    plain = _Net()
    names = list(plain.state_dict())
    (model,) = _training().prepare((plain,), _CPU)
    assert isinstance(model, DistributedDataParallel)
    assert list(model.state_dict()) == names
    assert model.n_classes == 2
    model.load_state_dict(copy.deepcopy(plain.state_dict()))
    model.load_state_dict({f"module.{name}": each for name, each in plain.state_dict().items()})
    with pytest.raises(AttributeError, match="no attribute 'n_clases'"):
        _ = model.n_clases
    assert _training().prepare((model,), _CPU) == (model,)


def test_gradients_that_ddp_would_not_average_are_refused(group: None) -> None:
    (model,) = _training().prepare((_Net(),), _CPU)
    with pytest.raises(ReportError, match=r"model\.loss\(…\) was called on a prepared model"):
        model.loss(torch.ones(1, 3))
    with torch.no_grad():
        assert model.loss(torch.ones(1, 3)) >= 0


def test_a_frozen_model_is_not_wrapped(group: None) -> None:
    plain = _Net().requires_grad_(False)
    assert _training().prepare((plain,), _CPU) == (plain,)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_without_a_process_group_it_is_said_what_to_do(strategy: str) -> None:
    with pytest.raises(ReportError, match=r"init_process_group\(\) before it"):
        _training(strategy).prepare((_Net(),), _CPU)


@pytest.mark.parametrize("together", [True, False])
def test_an_optimizer_made_before_its_model_trains_the_shards(group: None, together: bool) -> None:
    training = _training("fsdp")
    plain = _Net()
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.1)
    _step(plain, optimizer)  # it has state already
    before = plain.layer.weight.detach().clone()
    if together:
        model, optimizer = training.prepare((plain, optimizer), _CPU)
    else:
        training.prepare((optimizer,), _CPU)
        (model,) = training.prepare((plain,), _CPU)
    assert isinstance(model, FSDPModule)
    _step(model, optimizer)
    assert not torch.equal(model.state_dict()["layer.weight"].full_tensor(), before)


def test_an_optimizer_that_was_never_prepared_is_refused_at_its_step(group: None) -> None:
    plain = _Net()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    (model,) = _training("fsdp").prepare((plain,), _CPU)
    with pytest.raises(ReportError, match=r"model, optimizer = prepare\(model, optimizer\)"):
        _step(model, optimizer)


def test_only_large_repeated_blocks_are_gathered_one_at_a_time(group: None) -> None:
    class Stack(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.ModuleList(torch.nn.Linear(400, 400) for _ in range(2))
            self.small = torch.nn.ModuleList([torch.nn.Linear(3, 3)])
            self.tied = torch.nn.ModuleList([torch.nn.Linear(400, 400)])
            self.head = torch.nn.Linear(400, 400)
            self.head.weight = self.tied[0].weight

    (model,) = _training("fsdp").prepare((Stack(),), _CPU)
    assert all(isinstance(block, FSDPModule) for block in model.blocks)
    assert not isinstance(model.small[0], FSDPModule)
    assert not isinstance(model.tied[0], FSDPModule)
    plain = _training("fsdp").unwrapped({"model": model})["model"]
    assert plain.head.weight is plain.tied[0].weight
    assert type(plain) is Stack
    assert type(plain.blocks[0]) is torch.nn.Linear


def test_plain_state_of_every_strategy_is_the_same_and_fits_every_other(group: None) -> None:
    start = _Net().state_dict()
    states = []
    for strategy in ("ddp", "fsdp", None):
        training = _training(strategy) if strategy else Training(None, 3)
        model = _Net()
        model.load_state_dict(start)
        model, optimizer = training.prepare(
            (model, torch.optim.Adam(model.parameters(), lr=0.1)), _CPU
        )
        if states:
            before = copy.deepcopy(states[-1])  # an optimizer changes what it has loaded
            model.load_state_dict(before["model"])
            optimizer.load_state_dict(before["optimizer"])
        _step(model, optimizer)
        state = training.plain_state({"model": model, "optimizer": optimizer}, keep=True)
        states.append(copy.deepcopy(state))  # a checkpoint is a copy, too
    reference = _Net()
    reference.load_state_dict(start)
    adam = torch.optim.Adam(reference.parameters(), lr=0.1)
    for state in states:
        _step(reference, adam)
        assert list(state["model"]) == list(start)
        torch.testing.assert_close(dict(state["model"]), dict(reference.state_dict()))
        assert state["optimizer"]["state"].keys() == {0, 1}
        torch.testing.assert_close(
            state["optimizer"]["state"][0]["exp_avg"], adam.state_dict()["state"][0]["exp_avg"]
        )


def test_ranks_that_do_not_write_keep_no_whole_tensors(group: None) -> None:
    training = _training("fsdp")
    (model,) = training.prepare((_Net(),), _CPU)
    assert training.is_collective({"model": [model]})
    assert not training.is_collective({"n": 1})
    kept = training.plain_state({"model": model}, keep=False)
    assert set(kept["model"].values()) == {None}


def test_loaders_go_on_whether_prepared_before_or_after_resume() -> None:
    def loader() -> PreparedLoader:
        return DataLoader(TensorDataset(torch.arange(8)), batch_size=1)  # type: ignore[return-value]

    saving = Training(None, 3)
    first, second = saving.prepare((loader(), loader()), _CPU)
    for number, _ in enumerate(first, 1):
        if number == 3:
            state = saving.plain_state({"epoch": 0}, keep=True)
            break
    training = Training(None, 3)
    (early,) = training.prepare((loader(),), _CPU)
    assert training.restore(dict(state)) == {"epoch": 0}
    (late,) = training.prepare((loader(),), _CPU)
    assert [len(early), len(late)] == [5, 8]
    assert state[PRIVATE_KEY]["loaders"][1]["consumed"] == 0
    assert len(second) == 8


def test_a_loader_over_other_data_is_refused() -> None:
    training = Training(None, 3)
    training.restore({PRIVATE_KEY: {"loaders": [{"epoch": 0, "consumed": 2, "n_samples": 5}]}})
    with pytest.raises(ReportError, match="had 5 samples, now it has 8"):
        training.prepare((DataLoader(TensorDataset(torch.arange(8))),), _CPU)


def test_a_reduction_is_one_of_four_and_needs_a_group() -> None:
    with pytest.raises(ReportError, match=r"report\(reduce='median'\): expected one of mean"):
        check_reduction("median")
    with pytest.raises(ReportError, match="expected one of mean"):
        incell.report(loss=1.0, reduce="avg")
    with pytest.raises(ReportError, match="needs torch's process group"):
        reduced({"loss": 1.0}, "mean")


def test_a_rank_that_prepares_nothing_loads_no_torch() -> None:
    code = (
        "import sys, jupyter_ddl.ranks.zygote, jupyter_ddl.ranks.main, jupyter_ddl.ranks.attempt; "
        "print(sorted({'torch', 'numpy', 'dask', 'optuna'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert out.strip() == "[]"
