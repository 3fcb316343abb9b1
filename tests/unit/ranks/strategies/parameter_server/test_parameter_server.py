"""Parameter servers: when they update, what they keep, and what goes between ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from jupyter_ddl.plotting.staleness import staleness_chart, staleness_counts
from jupyter_ddl.plotting.svg import to_svg
from jupyter_ddl.protocol.group import MembersChanged, RankPlace
from jupyter_ddl.protocol.staleness import MAX_STALENESS, Staleness
from jupyter_ddl.ranks.membership import Membership
from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.company import Company
from jupyter_ddl.ranks.strategies.messages import Message, _cut
from jupyter_ddl.ranks.strategies.parameter_server.returned import ReturnedServer
from jupyter_ddl.ranks.strategies.parameter_server.rounds import Rounds, WheneverTheyLike
from jupyter_ddl.ranks.strategies.parameter_server.server import ParameterServer
from jupyter_ddl.ranks.strategies.parameter_server.strategy import SynchronousServers, WorkerStep
from jupyter_ddl.ranks.strategies.shards import (
    group_options,
    owners_of,
    put_options,
    put_state,
    state_of,
    trained,
)
from jupyter_ddl.ranks.strategies.steps import StepRequest, StepSettings
from jupyter_ddl.ranks.training import Training
from tests.unit.ranks.strategies.wires import Server


def _begun(rounds: Rounds) -> Rounds:
    rounds.begin()
    return rounds


def test_a_round_waits_for_all_workers_that_are_there() -> None:
    rounds = _begun(Rounds(3))
    rounds.push(2, 0)
    rounds.push(0, 0)
    assert rounds.due() == ()
    rounds.push(1, 0)
    assert rounds.due() == (0, 1, 2)
    assert rounds.version == 1
    rounds.push(1, 1)
    rounds.push(2, 1)
    rounds.leave(0)
    assert rounds.due() == (1, 2)
    assert rounds.due() == ()


@pytest.mark.parametrize("rounds", [Rounds(2), WheneverTheyLike(2, None)])
def test_nothing_is_updated_before_the_first_worker_has_told_the_beginning(rounds: Rounds) -> None:
    rounds.push(1, 0)
    assert rounds.due() == ()
    rounds.leave(0)
    assert rounds.due() == (1,)


def test_a_gradient_that_is_too_old_is_dropped_and_counted() -> None:
    rounds = _begun(WheneverTheyLike(2, 2))
    for version in range(3):
        rounds.push(0, version)
        assert rounds.due() == (0,)
    rounds.push(1, 1)
    assert rounds.dropped() == ()
    assert rounds.due() == (1,)
    rounds.push(1, 1)  # now three updates late
    assert rounds.dropped() == (1,)
    assert rounds.due() == ()
    assert (rounds.version, rounds.n_dropped) == (4, 1)
    assert rounds.staleness == {0: 3, 2: 1}


def _steps_until(rounds: Rounds, end: int, durations: tuple[int, ...]) -> int:
    """Gradients used in so many ticks, of workers that compute each for a number of ticks."""
    versions = [0] * len(durations)
    ready = dict(enumerate(durations))
    n_used = 0
    for now in range(1, end + 1):
        for worker in [each for each, at in ready.items() if at == now]:
            del ready[worker]
            rounds.push(worker, versions[worker])
        while workers := rounds.due():
            n_used += len(workers)
            for worker in workers:
                versions[worker] = rounds.version
                ready[worker] = now + durations[worker]
    return n_used


def test_with_a_slow_rank_more_steps_are_made_by_workers_that_do_not_wait() -> None:
    in_rounds = _steps_until(_begun(Rounds(2)), 40, (1, 4))
    freely = _steps_until(_begun(WheneverTheyLike(2, None)), 40, (1, 4))
    assert (in_rounds, freely) == (2 * 10, 40 + 10)


def test_parameters_are_shared_out_by_their_bytes() -> None:
    assert owners_of([8, 100, 8, 90], 2) == [1, 0, 1, 1]
    assert owners_of([5], 2) == [0]
    assert owners_of([5, 5, 5], 1) == [0, 0, 0]


def test_state_and_options_come_over_as_they_were() -> None:
    def made() -> Any:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        groups = [{"params": [model.weight], "lr": 0.5}, {"params": [model.bias]}]
        return model, torch.optim.AdamW(groups, lr=0.1, betas=(0.8, 0.9))

    model, optimizer = made()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    _, other = made()
    other.param_groups[0]["lr"] = 1.0
    put_options(other, group_options(optimizer))
    for number, held in put_state(*state_of(optimizer, [0, 1])):
        parameter = [each for group in other.param_groups for each in group["params"]][number]
        other.state[parameter] = held
    assert other.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
    torch.testing.assert_close(other.state_dict()["state"], optimizer.state_dict()["state"])
    assert list(dict(put_state(*state_of(optimizer, [1])))) == [1]


def test_tensors_of_all_kinds_lie_one_behind_the_other() -> None:
    sent = [torch.ones(3, dtype=torch.bool), torch.tensor(2.5, dtype=torch.float64)]
    data = torch.cat([each.reshape(-1).view(torch.uint8) for each in sent])
    found = _cut(data, [["bool", [3]], ["float64", []], ["float32", [0, 2]]])
    torch.testing.assert_close(found[:2], sent)
    assert found[2].shape == (0, 2)


def test_loaders_are_shared_out_over_workers_only() -> None:
    place = RankPlace(
        "g", rank=2, world_size=4, strategy="ps-async", strategy_options={"servers": 2}
    )
    assert place.n_workers == 2
    strategy = Training(place, seed=3).strategy
    assert strategy is not None
    shares = [strategy.share(rank, 4) for rank in range(4)]
    assert shares == [(0, 2), (1, 2), (0, 2), (1, 2)]


def _model_and_adam() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2).double()
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def test_a_cell_that_writes_parameters_leaves_the_optimizers_state_on_the_servers(
    alone: None,
) -> None:
    """As one that clamps weights behind each step, or loads the best model so far."""
    model, optimizer = _model_and_adam()
    post = Server(_model_and_adam()[1], Rounds(1)).post_of(0)
    loss = torch.nn.functional.mse_loss
    request = StepRequest(model, loss, optimizer, StepSettings(), torch.device("cpu"))
    step = WorkerStep(request, {1: post}, [0, 0], 0, SynchronousServers())
    plain, by_hand = _model_and_adam()
    x, y = torch.linspace(-1, 1, 12).double().reshape(4, 3), torch.ones(4, 2).double()
    for _ in range(5):
        step(x, y)
        by_hand.zero_grad()
        loss(plain(x), y).backward()
        by_hand.step()
        for each in (model, plain):
            with torch.no_grad():
                each.weight.clamp_(-0.3, 0.3)
    torch.testing.assert_close(model.state_dict(), plain.state_dict())
    torch.testing.assert_close(step.optimizer_state(), by_hand.state_dict())


def test_servers_clip_complex_gradients_by_their_norm(alone: None) -> None:
    parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.complex128))
    server = Server(torch.optim.SGD([parameter], lr=1.0), Rounds(1), clip_norm=1.0)
    post = server.post_of(0)
    post.send(0, {"do": "begin", "state": {}}, [parameter])
    push = {"do": "push", "version": 0, "n_samples": 1, "numbers": [0], "options": None, "loss": 0}
    post.send(0, push, [torch.tensor([3.0 + 4.0j], dtype=torch.complex128)])
    assert parameter.detach().tolist() == pytest.approx([-0.6 - 0.8j], rel=1e-5)


def test_what_a_process_has_given_before_it_was_killed_is_not_answered_to_the_next_one() -> None:
    """It would take the answer for that to its own question, and each later one for the next."""
    place = RankPlace("g", rank=2, world_size=3, strategy="ps-sync")
    members = Membership()
    _, optimizer = _model_and_adam()
    sent: list[tuple[str, int]] = []

    def post_of(whose: str) -> Any:
        return SimpleNamespace(send=lambda worker, *_: sent.append((whose, worker)), exchange=None)

    request: Any = SimpleNamespace(model=torch.nn.Module(), optimizer=optimizer)
    parts = (post_of("first"), Rounds(2), request, [0, 1], float, None, lambda: None)
    server: Any = ParameterServer(*parts, Company(place, None, members))
    server._listen = lambda worker, life, _: server._posts.update({worker: post_of(f"life {life}")})

    def tell(worker: int, **content: Any) -> None:
        shard = [torch.zeros_like(each) for each in trained(optimizer)]
        push = {"version": 0, "n_samples": 1, "numbers": [0, 1], "options": None, "loss": 0.0}
        server._answer(worker, Message({**push, **content}, shard))
        server._advance()

    tell(0, do="begin", state=None)
    tell(1, do="push")
    members.take(MembersChanged("r", 0, 1, 1, {0: 1, 1: 2, 2: 1}))
    server._look_who_is_there()
    tell(1, do="join")
    tell(0, do="push")
    assert sent == [("life 2", 1), ("first", 0)]
    # What the next one gives is answered as ever.
    tell(1, do="push")
    tell(0, do="push")
    assert sent[2:] == [("first", 0), ("life 2", 1)]


class _Returned:
    """A server that is started again, and two workers that meet it when they are told to."""

    def __init__(self, lives: dict[int, int]) -> None:
        place = RankPlace("g", rank=2, world_size=3, strategy="ps-async", life=2)
        members = Membership()
        members.take(MembersChanged("r", 0, 1, 1, {**lives, 2: 2}))
        self.store = torch.distributed.HashStore()
        self.model, optimizer = _model_and_adam()
        request: Any = SimpleNamespace(model=self.model, optimizer=optimizer)
        company = Company(place, self.store, members)
        rounds = WheneverTheyLike(2, None)
        exchange: Any = None
        parts = (exchange, rounds, request, [0, 1], None, lambda: None, company)
        self.server: Any = ReturnedServer(*parts)
        self.listens: list[tuple[int, int]] = []
        self.server._listen = lambda worker, life, _: self.listens.append((worker, life))
        self.sent: list[tuple[int, dict[str, Any]]] = []
        self.server._listen_to_all()

    def meet(self, worker: int) -> None:
        def send(to: int, content: dict[str, Any], _: Any) -> None:
            self.sent.append((to, content))

        self.server._posts[worker] = SimpleNamespace(send=send)

    def hear(self, worker: int, do: str, value: float = 0.0) -> None:
        content = {"do": do, "version": 0, "state": {}, "n_steps": 7, "loss": 0.5}
        content |= {"options": group_options(self.server._optimizer)}
        like = [*self.model.parameters(), *self.model.parameters()]
        self.server._answer(worker, Message(content, [torch.full_like(e, value) for e in like]))
        self.server._advance()


def test_a_server_that_is_back_answers_when_the_first_worker_has_given_it_what_it_lacks() -> None:
    returned = _Returned({0: 1, 1: 1})
    assert returned.listens == [(0, 1), (1, 1)]
    for worker in (0, 1):
        returned.meet(worker)
    returned.hear(1, "restore", 3.0)
    assert returned.sent == []
    returned.hear(0, "restore", 2.0)
    assert sorted(worker for worker, _ in returned.sent) == [0, 1]
    assert all(bool((each == 2.0).all()) for each in returned.model.parameters())
    returned.hear(1, "join")
    assert returned.sent[-1] == (1, {"version": 0, "n_steps": 7, "loss": 0.5})


def test_once_the_first_worker_is_through_another_one_gives_what_it_has() -> None:
    returned = _Returned({0: 1, 1: 1})
    returned.meet(1)
    returned.hear(1, "restore", 3.0)
    assert returned.sent == []
    returned.store.set("jupyter_ddl/company/left/0", "complete")
    returned.server._look_who_is_there()
    worker, life, message = returned.server._heard.get(timeout=1.0)
    assert (worker, life, message.content["do"]) == (0, 1, "leave")
    returned.server._rounds.leave(worker)
    returned.server._advance()
    assert [worker for worker, _ in returned.sent] == [1]
    assert all(bool((each == 3.0).all()) for each in returned.model.parameters())
    # The thread that has waited for the first worker gives up later, and nothing fails of it.
    returned.server._lose(0, RuntimeError("wait timeout"))
    with pytest.raises(RuntimeError, match="wait timeout"):
        _Returned({0: 1, 1: 1}).server._lose(0, RuntimeError("wait timeout"))


def test_a_server_that_is_back_waits_for_no_worker_that_is_lost_or_passes_over_steps() -> None:
    returned = _Returned({0: 1})
    assert (returned.listens, returned.server._rounds.present) == ([(0, 1)], {0})
    returned = _Returned({0: 1, 1: 2})
    assert (returned.listens, returned.server._rounds.present) == ([(0, 1), (1, 2)], {0})


def test_a_group_without_a_worker_is_refused(alone: None) -> None:
    model = torch.nn.Linear(1, 1)
    training = Training(RankPlace("g", strategy="ps-sync"), seed=3)
    settings = {"accumulate": 1, "clip_norm": None, "amp": None}
    with pytest.raises(ReportError, match="--servers 1 of 1 ranks leaves none to train"):
        training.prepare_step(
            model,
            torch.nn.functional.mse_loss,
            torch.optim.SGD(model.parameters(), lr=0.1),
            settings,
            torch.device("cpu"),
        )


def test_counts_of_all_servers_are_drawn_together() -> None:
    rounds = WheneverTheyLike(2, None)
    rounds.staleness.update({0: 3, 2: 1, MAX_STALENESS + 9: 1})
    late = rounds.counted(server=2)
    assert (len(late.counts), late.counts[:3], late.counts[-1]) == (MAX_STALENESS + 1, (3, 0, 1), 1)
    told = [Staleness(2, (3, 0, 1), 0), Staleness(3, (1, 1), 2)]
    assert staleness_counts(told) == [4, 1, 1]
    chart = staleness_chart(told)
    assert chart.text == "6 gradients used, 2 dropped"
    assert [mark.x for mark in chart.panels[0].layers[0].marks] == [4, 1, 1]
    assert "<svg" in to_svg(chart)
    assert "--strategy ps-async" in staleness_chart([]).note
