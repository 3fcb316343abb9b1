"""Gradients that are sent in fewer bytes, and steps in sixteen bits, beside one exact process."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.integration.ddp.answering import answer, answers_of

pytestmark = pytest.mark.integration

_N_RANKS = 3
_N_EPOCHS = 8
_LOSS_BAND = 0.05
"""Share of the exact loss by which another one may differ: bf16 has eight bits, 2**-8 each."""
_ROUNDED = 1e-5
"""Parameters that differ by less were not: 32 bits added up in another order come to 1e-6."""
_PLAN = '{"0": "colwise", "2": "rowwise"}'


class _Case(NamedTuple):
    strategy: str
    options: dict[str, Any]
    amp: str | None = None


_CASES = {
    "ddp fp16": _Case("ddp", {"compress": "fp16"}),
    "ddp bf16": _Case("ddp", {"compress": "bf16"}),
    "ddp powersgd": _Case("ddp", {"compress": "powersgd"}),
    "ps-sync fp16": _Case("ps-sync", {"compress": "fp16"}),
    "ps-sync bf16": _Case("ps-sync", {"compress": "bf16"}),
    **{
        f"amp {amp} {name}": _Case(strategy, options, amp)
        for amp in ("bf16", "fp16")
        for name, strategy, options in (
            ("ddp", "ddp", {}),
            ("fsdp", "fsdp", {}),
            ("tp", "fsdp", {"mesh": f"tp={_N_RANKS}", "tp_plan": _PLAN}),
            ("local-sgd", "local-sgd", {"sync_every": 1}),
            ("ps-sync", "ps-sync", {}),
            ("ps-async", "ps-async", {"servers": 2}),
        )
    },
}
"""Of asynchronous workers there is one: only then is the order of its gradients the process's."""


def _model() -> Any:
    """Large enough in the middle for PowerSGD to send less of it; three ranks cut it evenly."""
    import torch
    from torch.nn import Linear, Sequential, Tanh

    torch.manual_seed(0)
    return Sequential(Linear(4, 66), Tanh(), Linear(66, 66), Tanh(), Linear(66, 2))


def _trained(training: Any, amp: str | None) -> tuple[float, Any]:
    """The loss over all samples that a training comes to, and its parameters in a row."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    settings = {"accumulate": 2, "clip_norm": None, "amp": amp}
    loss_fn = torch.nn.functional.mse_loss
    step = training.prepare_step(model, loss_fn, optimizer, settings, torch.device("cpu"))
    generator = torch.Generator().manual_seed(1)
    x_all, y_all = (torch.randn(27, n, generator=generator) for n in (4, 2))
    loader = DataLoader(TensorDataset(x_all, y_all), batch_size=12)
    (loader,) = training.prepare((loader,), torch.device("cpu"))
    for _ in range(_N_EPOCHS):
        for x, y in loader:
            step(x, y)
    state = training.plain_state({"model": model}, keep=True)["model"]
    plain = _model()
    plain.load_state_dict(state)
    loss = loss_fn(plain(x_all), y_all).item()
    return loss, torch.nn.utils.parameters_to_vector(plain.parameters()).detach()


def _overflown(training: Any, rank: int) -> list[float]:
    """The scale and the second layer's bias behind a step in which one rank's part overflows."""
    import torch

    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    settings = {"accumulate": 1, "clip_norm": None, "amp": "fp16"}
    loss_fn = torch.nn.functional.mse_loss
    step = training.prepare_step(model, loss_fn, optimizer, settings, torch.device("cpu"))
    if rank == 1:
        step.model[0].weight.register_hook(lambda gradient: gradient * float("inf"))
    step(torch.ones(4, 4), torch.ones(4, 2))
    return [step.scale_state()["scale"], step.model[2].bias.full_tensor().sum().item()]


def _train_all(rank: int, folder: str, answers: Any) -> None:
    """One rank of a group that trains by each case in turn; it answers with what came out."""
    import torch
    import torch.distributed as dist

    from jupyter_ddl.protocol.group import RankPlace
    from jupyter_ddl.ranks.stopping import TrialStopped
    from jupyter_ddl.ranks.training import Training

    torch.set_num_threads(1)
    place = f"file://{folder}/group"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=_N_RANKS)
    found: Any = {}
    try:
        exact_loss, exact = _trained(Training(None, seed=3), None)
        for name, (strategy, options, amp) in _CASES.items():
            here = RankPlace("g", rank, _N_RANKS, strategy=strategy, strategy_options=options)
            training = Training(here, seed=3)
            try:
                loss, parameters = _trained(training, amp)
            except TrialStopped:
                continue  # a server, which is through
            farthest = float((parameters - exact).abs().max())
            found[name] = [loss / exact_loss, farthest]
            training.leave("complete")
        cut = {"mesh": f"tp={_N_RANKS}", "tp_plan": _PLAN}
        here = RankPlace("g", rank, _N_RANKS, strategy="fsdp", strategy_options=cut)
        found["overflown"] = _overflown(Training(here, seed=3), rank)
    except Exception:  # noqa: BLE001 - the test tells what went wrong
        found = traceback.format_exc()
    answer(rank, found, answers)


@pytest.fixture(scope="module")
def by_rank(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[float]]]:
    """What each has come to: the loss, as a multiple of the exact one, and how far it is off."""
    folder: Path = tmp_path_factory.mktemp("group")
    told = answers_of(_train_all, folder, _N_RANKS)
    for rank, found in enumerate(told):
        assert isinstance(found, dict), f"rank {rank}:\n{found}"
    return told


@pytest.mark.parametrize("name", _CASES)
def test_what_is_rounded_trains_nearly_what_one_exact_process_does(
    name: str, by_rank: list[dict[str, list[float]]]
) -> None:
    share, farthest = by_rank[0][name]
    assert share == pytest.approx(1.0, abs=_LOSS_BAND)
    assert farthest > _ROUNDED, "nothing was rounded"


def test_no_rank_makes_a_step_in_which_the_part_of_one_overflows(
    by_rank: list[dict[str, list[float]]],
) -> None:
    """Of layers that are cut: the others would go on with other parameters than it."""
    begun = _model()[2].bias.sum().item()
    for found in by_rank:
        scale, bias = found["overflown"]
        assert scale == 2.0**15
        assert bias == pytest.approx(begun, abs=1e-6)
