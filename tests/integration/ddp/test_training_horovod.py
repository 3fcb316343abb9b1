"""Horovod's five steps on real data, with only the import changed."""

from __future__ import annotations

import pytest

from jupyter_ddl import train

pytestmark = pytest.mark.integration

DIGITS = """
import argparse
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
import jupyter_ddl.horovod as hvd

parser = argparse.ArgumentParser(description="PyTorch digits example")
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--gradient-predivide-factor", type=float, default=1.0)
args = parser.parse_args()

hvd.init()
torch.manual_seed(42 + hvd.rank())

digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
train_set = TensorDataset(images[:1400], labels[:1400])
test_set = TensorDataset(images[1400:], labels[1400:])
train_sampler = DistributedSampler(train_set, num_replicas=hvd.size(), rank=hvd.rank())
test_sampler = DistributedSampler(test_set, num_replicas=hvd.size(), rank=hvd.rank())
train_loader = DataLoader(train_set, batch_size=32, sampler=train_sampler)
test_loader = DataLoader(test_set, batch_size=100, sampler=test_sampler)

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * hvd.size(), momentum=0.5)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(
    optimizer,
    named_parameters=model.named_parameters(),
    op=hvd.Average,
    gradient_predivide_factor=args.gradient_predivide_factor,
)

for epoch in range(args.epochs):
    model.train()
    train_sampler.set_epoch(epoch)
    for data, target in train_loader:
        optimizer.zero_grad()
        F.cross_entropy(model(data), target).backward()
        optimizer.step()
    schedule.step()

model.eval()
n_right = 0.0
with torch.no_grad():
    for data, target in test_loader:
        n_right += (model(data).argmax(1) == target).float().sum().item()
accuracy = hvd.metric_average(n_right / len(test_sampler), "accuracy")
if hvd.rank() == 0:
    report(step=0, accuracy=accuracy)
weights = hvd.allgather(model[0].weight.flatten()[None])
[hvd.size(), accuracy, float((weights[0] - weights[-1]).abs().max())]
"""

OPERATIONS = """
import torch
import jupyter_ddl.horovod as hvd

hvd.init()
mine = torch.full((2, 3), float(hvd.rank() + 1))
combined = [
    hvd.allreduce(mine)[0, 0].item(),
    hvd.allreduce(mine, op=hvd.Sum)[0, 0].item(),
    hvd.allreduce(mine, average=False)[0, 0].item(),
    hvd.allreduce(mine, op=hvd.Max)[0, 0].item(),
    hvd.allreduce(torch.tensor([3 + 2 * hvd.rank()])).tolist(),
]
rows = hvd.allgather(torch.full((hvd.rank() + 1, 2), hvd.rank())).tolist()
root = hvd.broadcast(mine.t(), root_rank=1).tolist()
thing = hvd.broadcast_object({"rank": hvd.rank()}, root_rank=1)

layer = torch.nn.Linear(2, 1)
torch.nn.init.constant_(layer.weight, hvd.rank())
adam = torch.optim.Adam(layer.parameters(), lr=0.1 * (hvd.rank() + 1))
if hvd.rank() == 1:
    layer(torch.ones(1, 2)).sum().backward()
    adam.step()
hvd.broadcast_parameters(layer.named_parameters(), root_rank=1)
hvd.broadcast_optimizer_state(adam, root_rank=1)
state = [adam.param_groups[0]["lr"], len(adam.state), layer.weight.tolist()]

sgd = torch.optim.SGD(layer.parameters(), lr=1.0)
sgd = hvd.DistributedOptimizer(sgd, backward_passes_per_step=2, compression=hvd.Compression.fp16)
torch.nn.init.zeros_(layer.weight)
sgd.zero_grad()
for _ in range(2):
    layer(torch.full((1, 2), float(hvd.rank() + 1))).sum().backward()
sgd.synchronize()
clipped = torch.nn.utils.clip_grad_norm_(layer.parameters(), 1e9).item()
with sgd.skip_synchronize():
    sgd.step()
is_sgd = isinstance(sgd, torch.optim.SGD)
stepped = layer.weight.tolist()

torch.nn.init.zeros_(layer.weight)
halved = hvd.DistributedOptimizer(
    torch.optim.SGD(layer.parameters(), lr=1.0), gradient_predivide_factor=4.0
)
halved.zero_grad()
layer(torch.full((1, 2), float(hvd.rank() + 1))).sum().backward()
halved.step()
[combined, rows, root, thing, state, stepped, clipped, is_sgd, layer.weight.tolist()]
"""


def test_the_five_steps_learn_digits_on_two_ranks(cluster: object) -> None:
    two = train(DIGITS, 2, namespace={}).values
    assert two[0] == two[1]
    size, accuracy, difference = two[0]
    assert size == 2
    assert accuracy > 0.85
    assert difference == 0.0


def test_every_operation_does_what_horovods_does(cluster: object) -> None:
    for combined, rows, root, thing, state, weight, norm, is_sgd, divided in train(
        OPERATIONS, 2, namespace={}
    ).values:
        assert combined == [1.5, 3.0, 3.0, 2.0, [4]]
        assert rows == [[0, 0], [1, 1], [1, 1]]
        assert root == [[2.0, 2.0]] * 3
        assert thing == {"rank": 1}
        assert state[:2] == [0.2, 2]
        assert weight == [[-3.0, -3.0]]  # two passes of 1 and of 2: their mean, twice
        assert norm == pytest.approx((3**2 + 3**2 + 2**2) ** 0.5)
        assert is_sgd
        assert divided == [[-1.5, -1.5]]  # the mean of 1 and 2, however it is divided
