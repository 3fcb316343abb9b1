"""Horovod's functions in one process: they change nothing, and refuse what is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import jupyter_ddl.horovod as hvd
from jupyter_ddl.errors import LaunchError, SpecError


@pytest.fixture(autouse=True)
def initialized() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


def test_one_process_is_rank_0_of_1() -> None:
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (0, 1, 0, 1)
    assert hvd.is_initialized()


def test_without_init_every_function_says_so() -> None:
    hvd.shutdown()
    assert not hvd.is_initialized()
    for call in (hvd.rank, hvd.size, lambda: hvd.allreduce(torch.ones(1))):
        with pytest.raises(LaunchError, match=r"call hvd\.init\(\) first"):
            call()


def test_collectives_return_copies_of_what_they_are_given() -> None:
    given = torch.ones(2)
    for found in (hvd.allreduce(given), hvd.allgather(given), hvd.broadcast(given, 0)):
        assert torch.equal(found, given)
        assert found is not given
    assert hvd.broadcast_object([1]) == [1]
    assert hvd.metric_average(torch.tensor(0.25)) == 0.25


def test_a_distributed_optimizer_steps_as_its_own_class_does() -> None:
    layers = [torch.nn.Linear(2, 1) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    plain, wrapped = (torch.optim.Adam(layer.parameters()) for layer in layers)
    schedule = torch.optim.lr_scheduler.ExponentialLR(wrapped, 0.5)
    wrapped = hvd.DistributedOptimizer(wrapped, named_parameters=layers[1].named_parameters())
    assert isinstance(wrapped, torch.optim.Adam)
    assert hvd.DistributedOptimizer(wrapped) is wrapped
    for layer, optimizer in zip(layers, (plain, wrapped), strict=True):
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    schedule.step()
    assert torch.equal(layers[0].weight, layers[1].weight)
    assert wrapped.param_groups[0]["lr"] == 5e-4


def test_wrong_arguments_are_refused() -> None:
    layer = torch.nn.Linear(2, 1)
    sgd = torch.optim.SGD(layer.parameters(), lr=0.1)
    with pytest.raises(SpecError, match="leaves out 1 of the optimizer's 2 parameters"):
        hvd.DistributedOptimizer(sgd, named_parameters=[("weight", layer.weight)])
    with pytest.raises(SpecError, match="'w' twice"):
        hvd.DistributedOptimizer(sgd, named_parameters=[("w", layer.weight), ("w", layer.bias)])
    with pytest.raises(SpecError, match=r"expected hvd\.Average or hvd\.Sum"):
        hvd.DistributedOptimizer(sgd, op=hvd.Max)
    with pytest.raises(SpecError, match="expected at least 1"):
        hvd.DistributedOptimizer(sgd, backward_passes_per_step=0)
    for wrong in ({"gradient_predivide_factor": 0.0}, {"op": hvd.Sum}):
        with pytest.raises(SpecError, match=r"a number above 0, and op=hvd\.Average"):
            hvd.DistributedOptimizer(sgd, **{"gradient_predivide_factor": 2.0, **wrong})
    with pytest.raises(SpecError, match=r"expected a torch\.optim optimizer"):
        hvd.DistributedOptimizer(layer)
    with pytest.raises(SpecError, match=r"expected hvd\.Average, Sum, Min or Max"):
        hvd.allreduce(torch.ones(1), op="median")
    with pytest.raises(SpecError, match=r"expected model\.state_dict\(\)"):
        hvd.broadcast_parameters(3)
