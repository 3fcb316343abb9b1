"""``device_mesh()``: the grid that a strategy trains on, or one axis over all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

import jupyter_ddl
from jupyter_ddl.errors import OptionError
from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.training import Training
from jupyter_ddl.testing.process_groups import end_process_group

_CPU = torch.device("cpu")


@pytest.fixture
def last_of_four() -> Iterator[None]:
    """Rank 3 of four, whose collectives reach nobody: where ranks stand needs none."""
    dist.init_process_group("fake", store=FakeStore(), rank=3, world_size=4)
    yield
    end_process_group()


def _training(strategy: str, **options: Any) -> Training:
    place = RankPlace("g", rank=3, world_size=4, strategy=strategy, strategy_options=options)
    return Training(place, seed=3)


@pytest.mark.usefixtures("last_of_four")
def test_the_grid_of_a_mesh_is_the_one_that_the_strategy_trains_on() -> None:
    training = _training("fsdp", mesh="tp=2,dp=2", tp_plan='{"0": "colwise"}')
    mesh = training.device_mesh(_CPU)
    assert (mesh.mesh_dim_names, mesh.mesh.tolist()) == (("dp", "tp"), [[0, 1], [2, 3]])
    assert [mesh[axis].mesh.tolist() for axis in ("dp", "tp")] == [[1, 3], [2, 3]]
    (model,) = training.prepare((torch.nn.Sequential(torch.nn.Linear(4, 4)),), _CPU)
    assert model[0].weight.device_mesh == mesh
    assert training.device_mesh(_CPU) is mesh


@pytest.mark.usefixtures("last_of_four")
def test_copies_of_a_pipeline_are_next_to_each_other_and_share_the_batch() -> None:
    training = _training("pipeline", mesh="dp=2,pp=2")
    mesh = training.device_mesh(_CPU)
    assert (mesh.mesh_dim_names, mesh.mesh.tolist()) == (("pp", "dp"), [[0, 1], [2, 3]])
    strategy = training.strategy
    assert strategy is not None
    assert [strategy.share(rank, 4) for rank in range(4)] == [(0, 2), (1, 2), (0, 2), (1, 2)]


@pytest.mark.usefixtures("last_of_four")
@pytest.mark.parametrize(
    ("strategy", "axis"), [("ddp", "dp"), ("fsdp", "dp"), ("diloco", "dp"), ("pipeline", "pp")]
)
def test_without_a_mesh_one_axis_has_all_ranks(strategy: str, axis: str) -> None:
    mesh = _training(strategy).device_mesh(_CPU)
    assert (mesh.mesh_dim_names, mesh.mesh.tolist()) == ((axis,), [0, 1, 2, 3])


@pytest.mark.usefixtures("last_of_four")
def test_a_round_with_another_number_of_ranks_than_the_mesh_is_refused() -> None:
    with pytest.raises(OptionError, match="a grid of 2 ranks, and the group has 4"):
        _training("fsdp", mesh="dp=2").device_mesh(_CPU)


@pytest.mark.usefixtures("last_of_four")
def test_ranks_of_which_some_are_servers_are_no_grid() -> None:
    with pytest.raises(ReportError, match="the last 1 of these 4 are servers"):
        _training("ps-sync", servers=1).device_mesh(_CPU)


def test_there_is_no_mesh_without_a_group() -> None:
    with pytest.raises(ReportError, match=r"runs in one process; put `%%distribute ddp -n N`"):
        jupyter_ddl.device_mesh()
    with pytest.raises(ReportError, match=r"not initialised; .* or leave --no-init out"):
        _training("fsdp").device_mesh(_CPU)
