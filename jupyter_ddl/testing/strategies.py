"""What every strategy keeps, as tests that the author of one runs; they need torch.

::

    class TestMine(StrategyContract):
        @pytest.fixture
        def strategy(self):
            return MyStrategy

One of them starts processes that form groups of two and of four, on the CPU or, where the fixture
``device`` says so, on GPUs under NCCL.
"""

from __future__ import annotations

import copy
import multiprocessing
import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jupyter_ddl.ranks.checkpoints import read_checkpoint, write_checkpoint
from jupyter_ddl.ranks.stopping import TrialStopped
from jupyter_ddl.ranks.strategies.base import Strategy
from jupyter_ddl.testing.process_groups import end_process_group

__all__ = ["StepContract", "StrategyContract"]

_N_STEPS = 3
_N_STEPS_BY_STEP = 50
_SEED = 3
_BATCH = 10
_N_SAMPLES = 53
"""So that the last batch of an epoch has three samples: less than four ranks."""
_TOLERANCE = 1e-9
"""Of numbers near 1, after 50 steps in 64 bits: 2**-53 for each addition in another order."""
_GROUP_S = 300.0
"""Until each rank has answered: it imports torch first, on a machine that may be busy."""


class StepContract:
    """Of strategies that make whole steps; subclass it, and override the fixture ``strategy``."""

    @pytest.fixture
    def strategy(self) -> type[Strategy]:
        """The class under test; it can be imported by its name."""
        raise NotImplementedError("override the fixture `strategy`")

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        """Of the strategy, with which it trains as one process does."""
        return {}

    @pytest.fixture
    def settings(self) -> Mapping[str, Any]:
        """Of ``prepare_step``, with which it trains as one process does."""
        return {"accumulate": 2, "clip_norm": 0.5, "amp": None}

    @pytest.fixture
    def groups(self) -> tuple[int, ...]:
        """Numbers of ranks to train with."""
        return (2, 4)

    @pytest.fixture
    def device(self) -> str:
        """What the ranks train on: ``cpu`` under gloo, or ``cuda`` under NCCL."""
        return "cpu"

    def test_ranks_train_in_fifty_steps_what_one_trains_with_the_whole_batch(
        self,
        strategy: type[Strategy],
        options: Mapping[str, Any],
        settings: Mapping[str, Any],
        groups: tuple[int, ...],
        device: str,
        tmp_path: Path,
    ) -> None:
        """To 1e-9 in 64 bits: the model, the optimizer, the losses; the one process is on the CPU.

        It goes on from their checkpoint, and they go on from that of one process: so what
        any strategy has saved is for any other.
        """
        pytest.importorskip("torch")
        expected = _trained_by_steps(_alone(), settings)
        plan = Plan(strategy, dict(options), dict(settings), device, str(tmp_path))
        _write(tmp_path / _BEGUN, expected)
        teams = [*(Team(n_ranks) for n_ranks in groups), Team(groups[0], goes_on=True)]
        for (team, rank), found in _by_ranks(plan, teams).items():
            where = (team, rank)
            if found is None:  # it has served the others, which have come to the end
                assert rank, where
                continue
            assert not isinstance(found, str), f"rank {rank} of {team}:\n{found}"
            if not strategy.returns_own_loss:
                assert found.losses == pytest.approx(expected.losses, abs=_TOLERANCE), where
            if rank == 0:
                assert _differences(found.end, expected.end, atol=_TOLERANCE) == [], where
                again = _trained_by_steps(_alone(), settings, begun=found.middle)
                assert _differences(again.end, expected.end, atol=_TOLERANCE) == [], where


class StrategyContract(StepContract):
    """Of strategies that train loops by hand, too."""

    @pytest.fixture
    def alone(self) -> Iterator[None]:
        """A process group of this process only."""
        dist: Any = pytest.importorskip("torch.distributed")
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            yield
        finally:
            end_process_group()

    def test_a_wrapped_model_computes_what_the_model_did(
        self, strategy: type[Strategy], alone: None
    ) -> None:
        torch: Any = pytest.importorskip("torch")
        model, batch = _model(), _batches(1)[0][0]
        expected = model(batch).detach()
        wrapped = strategy().wrap(model, torch.device("cpu"))
        assert torch.allclose(wrapped(batch).detach(), expected)

    def test_what_is_wrapped_is_not_wrapped_again(
        self, strategy: type[Strategy], alone: None
    ) -> None:
        torch: Any = pytest.importorskip("torch")
        made = strategy()
        wrapped = made.wrap(_model(), torch.device("cpu"))
        assert made.wrap(wrapped, torch.device("cpu")) is wrapped

    def test_an_optimizer_that_was_made_before_trains_the_wrapped_model(
        self, strategy: type[Strategy], alone: None
    ) -> None:
        made, model, optimizer = _prepared(strategy)
        _train(model, optimizer, _batches(_N_STEPS))
        assert _differences(_plain(made, model), _trained_plainly()[0].state_dict()) == []

    def test_plain_state_is_that_of_a_process_without_a_strategy(
        self, strategy: type[Strategy], alone: None
    ) -> None:
        made, model, optimizer = _prepared(strategy)
        _train(model, optimizer, _batches(_N_STEPS))
        plain_model, plain_optimizer = _trained_plainly()
        assert list(_plain(made, model)) == list(plain_model.state_dict())
        assert _differences(_plain(made, optimizer), plain_optimizer.state_dict()) == []

    def test_plain_state_is_taken_back(self, strategy: type[Strategy], alone: None) -> None:
        plain_model, plain_optimizer = _trained_plainly()
        made, model, optimizer = _prepared(strategy)
        model.load_state_dict(plain_model.state_dict())
        optimizer.load_state_dict(copy.deepcopy(plain_optimizer.state_dict()))
        _train(model, optimizer, _batches(_N_STEPS))
        _train(plain_model, plain_optimizer, _batches(_N_STEPS))
        assert _differences(_plain(made, model), plain_model.state_dict()) == []

    def test_what_comes_out_is_the_model_itself_with_what_it_has_learned(
        self, strategy: type[Strategy], alone: None
    ) -> None:
        torch: Any = pytest.importorskip("torch")
        made, model, optimizer = _prepared(strategy)
        _train(model, optimizer, _batches(_N_STEPS))
        plain = made.unwrap(model)
        assert type(plain) is torch.nn.Sequential
        assert _differences(plain.state_dict(), _trained_plainly()[0].state_dict()) == []


class Trained(NamedTuple):
    """What a training by steps has come to; states as one process without a strategy has them."""

    losses: list[float]
    middle: dict[str, Any]
    end: dict[str, Any]


def _alone() -> Any:
    from jupyter_ddl.ranks.training import Training

    return Training(None, _SEED)


def _trained_by_steps(
    training: Any,
    settings: Mapping[str, Any],
    *,
    device: str = "cpu",
    rank: int = 0,
    begun: Any = None,
) -> Trained:
    """Several parameter groups, a schedule, and batches whose last one is short."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    model = _model(rank).double()
    groups = [{"params": model[0].parameters()}, {"params": model[1:].parameters(), "lr": 0.03}]
    # All parameters of a group at once, as torch does on GPUs by itself.
    options = {"momentum": 0.9, "weight_decay": 0.01, "foreach": True}
    optimizer = torch.optim.SGD(groups, lr=0.1, **options)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 15, 0.5)
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(
        *(torch.randn(_N_SAMPLES, n, generator=generator, dtype=torch.float64) for n in (4, 2))
    )
    step = training.prepare_step(
        model, torch.nn.functional.mse_loss, optimizer, settings, torch.device(device)
    )
    loader = DataLoader(data, batch_size=_BATCH, shuffle=True)
    (loader,) = training.prepare((loader,), torch.device(device))
    named = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    losses: list[float] = []
    if begun is not None:
        for name, state in training.restore(copy.deepcopy(begun)).items():
            if name in named:
                named[name].load_state_dict(state)
            else:
                losses = state
    middle = begun
    while len(losses) < _N_STEPS_BY_STEP:
        for x, y in loader:
            losses.append(step(x, y).item())
            scheduler.step()
            if len(losses) == _N_STEPS_BY_STEP // 2:
                saved = {**named, "scheduler": scheduler.state_dict(), "losses": list(losses)}
                middle = copy.deepcopy(training.plain_state(saved, keep=True))
            if len(losses) == _N_STEPS_BY_STEP:
                break
    end = training.plain_state({"model": model, "optimizer": optimizer}, keep=True)
    return Trained(losses, middle or {}, {name: end[name] for name in ("model", "optimizer")})


class Team(NamedTuple):
    """Ranks that train together."""

    n_ranks: int
    goes_on: bool = False
    """From the middle of what one process has trained."""


class Plan(NamedTuple):
    """What the processes of a group are given."""

    strategy: type[Strategy]
    options: dict[str, Any]
    settings: dict[str, Any]
    device: str
    folder: str


def _by_ranks(plan: Plan, teams: Sequence[Team]) -> dict[tuple[Team, int], Trained | str | None]:
    """What each rank of each team has come to, or its traceback; None: it trains nothing."""
    # One process imports torch, and is copied for each rank before torch has threads there.
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    launcher = context.Process(target=_launch, args=(plan, teams, answers))
    launcher.start()
    try:
        n_ranks = sum(team.n_ranks for team in teams)
        got = dict(answers.get(timeout=_GROUP_S) for _ in range(n_ranks))
    finally:
        launcher.join(10.0)
        launcher.kill()
        launcher.join()
        answers.close()
    read = {key: Path(plan.folder) / _file_of(*key) for key in got}
    return {key: _read(read[key]) if error == "" else error for key, error in got.items()}


def _file_of(team: Team, rank: int) -> str:
    return f"rank-{rank}-of-{team.n_ranks}-{team.goes_on}"


_BEGUN = "begun"
"""The file with what one process has come to."""


def _read(path: Path) -> Trained:
    state = read_checkpoint(path)
    return Trained(state["losses"], state["middle"], state["end"])


def _write(path: Path, trained: Trained) -> None:
    with path.open("wb") as file:
        write_checkpoint(file, 0, trained._asdict())


def _launch(plan: Plan, teams: Sequence[Team], answers: Any) -> None:
    # For the copies: each would import at its first step what optimizers import then.
    import torch._dynamo
    import torch.distributed  # noqa: F401

    context = multiprocessing.get_context("fork")
    for team in teams:
        arguments = (team, plan, answers)
        ranks = [context.Process(target=_rank, args=(n, *arguments)) for n in range(team.n_ranks)]
        for each in ranks:
            each.daemon = True
            each.start()
        for each in ranks:
            each.join()


def _rank(rank: int, team: Team, plan: Plan, answers: Any) -> None:
    import torch
    import torch.distributed as dist

    from jupyter_ddl.protocol.group import RankPlace
    from jupyter_ddl.ranks.training import Training

    torch.set_num_threads(1)
    place = f"file://{plan.folder}/group-{_file_of(team, 0)}"
    error: str | None = ""
    try:
        device = _own_gpu(rank, team.n_ranks) if plan.device == "cuda" else None
        dist.init_process_group(
            "gloo" if device is None else "nccl",
            init_method=place,
            rank=rank,
            world_size=team.n_ranks,
            device_id=device,
        )
        here = RankPlace("contract", rank=rank, world_size=team.n_ranks)
        training = Training(here, _SEED, plan.strategy(**plan.options))
        begun = _read(Path(plan.folder) / _BEGUN).middle if team.goes_on else None
        trained = _trained_by_steps(
            training, plan.settings, device=plan.device, rank=rank, begun=begun
        )
        _write(Path(plan.folder) / _file_of(team, rank), trained)
        training.leave("complete")
    except TrialStopped:
        error = None
    except Exception:  # noqa: BLE001 - the test tells what went wrong
        error = traceback.format_exc()
    answers.put(((team, rank), error))
    answers.close()
    answers.join_thread()
    os._exit(0)  # others may wait for a rank that failed


def _own_gpu(rank: int, n_ranks: int) -> Any:
    """The GPU of a rank; where there are too few, ranks share them.

    NCCL refuses two ranks on one GPU of a host, and takes what differs in ``NCCL_HOSTID`` for two
    hosts: they then talk through sockets, and take turns on the GPU.
    """
    import torch

    n_gpus = torch.cuda.device_count()
    if n_gpus < n_ranks:
        os.environ["NCCL_HOSTID"] = f"rank-{rank}"
    device = torch.device("cuda", rank % n_gpus)
    torch.cuda.set_device(device)
    return device


def _model(seed: int = 0) -> Any:
    import torch
    from torch import nn

    torch.manual_seed(seed)
    # Eight parts: a pipeline of four ranks has two stages on each.
    middle = (each for _ in range(3) for each in (nn.Tanh(), nn.Linear(8, 8)))
    return nn.Sequential(nn.Linear(4, 8), *middle, nn.Linear(8, 2))


def _optimizer(model: Any) -> Any:
    import torch

    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def _batches(n: int) -> list[tuple[Any, Any]]:
    import torch

    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(6, 4, generator=generator), torch.randn(6, 2, generator=generator))
        for _ in range(n)
    ]


def _train(model: Any, optimizer: Any, batches: list[tuple[Any, Any]]) -> None:
    import torch

    for x, y in batches:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def _trained_plainly() -> tuple[Any, Any]:
    model = _model()
    optimizer = _optimizer(model)
    _train(model, optimizer, _batches(_N_STEPS))
    return model, optimizer


def _prepared(strategy: type[Strategy]) -> tuple[Strategy, Any, Any]:
    """As ``prepare(model, optimizer)`` does it; the optimizer was made before."""
    import torch

    made, model = strategy(), _model()
    optimizer = _optimizer(model)
    wrapped = made.wrap(model, torch.device("cpu"))
    made.adapt(optimizer)
    made.adapt(optimizer)  # after every further model, too
    return made, wrapped, optimizer


def _plain(strategy: Strategy, stateful: Any) -> dict[str, Any]:
    from jupyter_ddl.ranks.strategies.sharded import gathered

    state: dict[str, Any] = gathered(dict(strategy.state(stateful)), keep=True)
    return state


def _differences(state: Any, expected: Any, at: str = "", *, atol: float = 1e-6) -> list[str]:
    """Places at which two states differ."""
    import torch

    if isinstance(expected, torch.Tensor):
        same = isinstance(state, torch.Tensor) and torch.allclose(
            state.cpu(), expected, rtol=0.0 if atol < 1e-6 else 1e-5, atol=atol
        )
        return [] if same else [at]
    if isinstance(expected, Mapping):
        if not isinstance(state, Mapping) or list(state) != list(expected):
            return [at]
        return [
            place
            for key in expected
            for place in _differences(state[key], expected[key], f"{at}/{key}", atol=atol)
        ]
    if isinstance(expected, list | tuple):
        if len(state) != len(expected):
            return [at]
        pairs = enumerate(zip(state, expected, strict=True))
        return [
            place
            for n, (one, other) in pairs
            for place in _differences(one, other, f"{at}/{n}", atol=atol)
        ]
    return [] if state == expected else [at]
