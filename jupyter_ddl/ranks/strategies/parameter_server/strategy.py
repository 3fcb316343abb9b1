"""``--strategy ps-sync`` and ``ps-async``: the last ranks keep the parameters, the others train.

A worker computes a gradient, gives each server its part of it, and gets the parameters that come of
it: in rounds, or of its own gradient alone (Dean et al., "Large Scale Distributed Deep Networks",
2012; staleness is bounded after Ho et al., "More Effective Distributed ML", 2013).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.stopping import StopReason, TrialStopped
from jupyter_ddl.ranks.strategies.base import Share, StepStrategy
from jupyter_ddl.ranks.strategies.company import Company
from jupyter_ddl.ranks.strategies.messages import Message, Post
from jupyter_ddl.ranks.strategies.parameter_server.returned import ReturnedServer
from jupyter_ddl.ranks.strategies.parameter_server.rounds import Rounds, WheneverTheyLike
from jupyter_ddl.ranks.strategies.parameter_server.server import ParameterServer
from jupyter_ddl.ranks.strategies.shards import (
    described,
    group_options,
    owners_of,
    put_state,
    state_of,
    trained,
)
from jupyter_ddl.ranks.strategies.steps import StepRequest, TrainingStep

__all__ = ["AsynchronousServers", "SynchronousServers"]

_TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


class SynchronousServers(StepStrategy):
    """See :class:`~jupyter_ddl.ranks.strategies.base.Strategy`.

    Parameters
    ----------
    servers : int
        How many ranks, the last ones, keep parameters.
    compress : str, optional
        ``fp16`` or ``bf16``: how gradients are sent; by default as they are.
    """

    in_rounds = True
    """Whether an update is made of the gradients of all workers."""

    def __init__(self, servers: int = 1, compress: str | None = None) -> None:
        self.n_servers = servers
        self._compress = compress
        self._step: WorkerStep | None = None
        self._workers: Any = None

    def share(self, rank: int, n_ranks: int) -> Share:
        # A server, too, prepares loaders before it comes to prepare_step.
        n_workers = max(1, n_ranks - self.n_servers)
        return Share(rank % n_workers, n_workers)

    def axes(self, n_ranks: int) -> Mapping[str, int]:
        raise ReportError(
            f"device_mesh() is a grid of ranks that train, and the last {self.n_servers} of these "
            f"{n_ranks} are servers; make one of the workers' ranks by torch.distributed, or take "
            f"another --strategy"
        )

    def make_step(self, request: StepRequest) -> TrainingStep:
        if self._step is not None:
            raise ReportError(
                "prepare_step(…) was called twice; under --strategy ps-sync and ps-async a cell "
                "trains one model"
            )
        if self.company is not None and self.company.joins:
            self.company.hear_of_others()
            if self.company.place.rank >= self.company.place.n_workers:
                raise TrialStopped(self._returned_server(request, self.company).serve())
            self._step = self._joined(request, self.company)
            return self._step
        n_ranks, rank, first = self._first()
        n_workers = n_ranks - self.n_servers
        if n_workers < 1:
            raise ReportError(
                f"--servers {self.n_servers} of {n_ranks} ranks leaves none to train; use fewer "
                f"servers, or more ranks"
            )
        everybody = self._meet(first, n_workers)
        _begin_alike(request.model, everybody)
        everybody.barrier().wait()  # who is through with it knows that nobody waits to meet others
        owners = self._owners(request)
        post = Post(everybody, self.exchange, first)
        if rank < n_workers:
            request.model.to(request.device)
            posts = dict.fromkeys(range(n_workers, n_ranks), post)
            self._step = WorkerStep(request, posts, owners, rank, self)
            return self._step
        rounds = self.rounds(n_workers)
        for absent in set(range(n_workers)).difference(first):
            rounds.leave(absent)
        numbers, clip_norm, counted = self._kept_by(rank - n_workers, owners, request, rounds, rank)
        servers = range(n_workers, n_ranks)
        over_servers = functools.partial(post.sum, rank, servers)
        parts = (post, rounds, request, numbers, over_servers, clip_norm)
        raise TrialStopped(ParameterServer(*parts, counted, self.company).serve())

    def _first(self) -> tuple[int, int, list[int]]:
        """How many ranks there are, the number of this one, and those that begin."""
        if self.company is None:
            n_ranks = dist.get_world_size()
            return n_ranks, dist.get_rank(), list(range(n_ranks))
        place = self.company.place
        return place.world_size, place.rank, self.company.first

    def _meet(self, first: list[int], n_workers: int) -> Any:
        """Make the group of all that begin.

        With the default one, a server could wait no longer for a worker that validates than for one
        that is gone; which it is, the watch over hangs tells.
        """
        if self.company is not None:
            return self.company.meet("begin", first)
        everybody = dist.new_group(backend="gloo")
        self._workers = dist.new_group(list(range(n_workers)))
        return everybody

    def _kept_by(
        self, server: int, owners: list[int], request: StepRequest, rounds: Rounds, rank: int
    ) -> tuple[list[int], float | None, Callable[[], None]]:
        """What a server keeps, how it clips, and how it tells what it has counted."""
        clip_norm = request.settings.clip_norm if self.in_rounds else None

        def counted() -> None:
            if not self.in_rounds:
                self.tell(rounds.counted(rank))

        return [n for n, owner in enumerate(owners) if owner == server], clip_norm, counted

    def _returned_server(self, request: StepRequest, company: Company) -> ParameterServer:
        """A server that was started again while the workers wait for it."""
        place = company.place
        rounds, owners = self.rounds(place.n_workers), self._owners(request)
        own = place.rank - place.n_workers
        numbers, clip_norm, counted = self._kept_by(own, owners, request, rounds, place.rank)
        parts = (self.exchange, rounds, request, numbers, clip_norm, counted, company)
        return ReturnedServer(*parts)

    def _owners(self, request: StepRequest) -> list[int]:
        return owners_of([each.nbytes for each in trained(request.optimizer)], self.n_servers)

    def _joined(self, request: StepRequest, company: Company) -> WorkerStep:
        """The step of a worker that was started again while the others went on."""
        place = company.place
        request.model.to(request.device)
        posts = {}
        for server in range(place.n_workers, place.world_size):
            life = company.await_life(server, beyond=0)
            group = company.meet_pair(place.rank, place.life, server, life)
            posts[server] = Post(group, self.exchange, (server, place.rank))
        step = WorkerStep(request, posts, self._owners(request), place.rank, self)
        step.join()
        return step

    def rounds(self, n_workers: int) -> Rounds:
        """When an update is made."""
        return Rounds(n_workers)

    def compressed(self, gradient: Any) -> Any:
        """A gradient as it is sent."""
        return gradient if self._compress is None else gradient.to(_TYPES[self._compress])

    @property
    def reporting_group(self) -> Any:
        return self._workers

    def state(self, stateful: Any) -> Mapping[str, Any]:
        if self._step is None:
            return super().state(stateful)
        if stateful is self._step.optimizer:
            return self._step.optimizer_state()
        if stateful is self._step.model:
            self._step.pull()
        return super().state(stateful)

    def unwrap(self, model: Any) -> Any:
        if self._step is not None and model is self._step.model:
            self._step.pull()
        return model

    def leave(self, reason: StopReason) -> None:
        if self._step is not None:
            self._step.leave(reason)
            self._step = None


class AsynchronousServers(SynchronousServers):
    """See :class:`SynchronousServers`.

    Parameters
    ----------
    max_staleness : int, optional
        A gradient from parameters that are more updates old is dropped.
    """

    in_rounds = False
    returns_own_loss = True

    def __init__(
        self, servers: int = 1, max_staleness: int | None = None, compress: str | None = None
    ) -> None:
        super().__init__(servers, compress)
        self._max_staleness = max_staleness

    def rounds(self, n_workers: int) -> Rounds:
        return WheneverTheyLike(n_workers, self._max_staleness)


class WorkerStep(TrainingStep):
    """The step of a rank that trains: the servers make the update.

    Parameters
    ----------
    posts : dict
        By server, how it is reached.
    owners : list of int
        By which server each of the optimizer's parameters is kept.
    rank : int
        This worker's.
    """

    def __init__(
        self,
        request: StepRequest,
        posts: dict[int, Post],
        owners: list[int],
        rank: int,
        strategy: SynchronousServers,
    ) -> None:
        super().__init__(request)
        self._posts = posts
        self._strategy = strategy
        self._parameters = trained(request.optimizer)
        self._servers = {
            server: [n for n, owner in enumerate(owners) if owner == number]
            for number, server in enumerate(posts)
        }
        self._versions = dict.fromkeys(self._servers, 0)
        self._is_first = rank == 0
        self._has_begun = False
        self._known: list[int] = []
        """How often each parameter had been written to when the servers last gave it."""
        self._told: list[dict[str, Any]] | None = None
        self._n_pushed = 0
        self._saved: dict[int, dict[str, Any]] = {}
        """The optimizer's state as rank 0 saved, or loaded it last: a server may lose its own."""
        company = strategy.company
        there = {} if company is None else company.lives
        self._lives = {server: there.get(server, 1) for server in posts}
        request.optimizer.register_load_state_dict_post_hook(self._loaded)

    def __call__(self, *batch: Any) -> Any:
        strategy = self._strategy
        strategy.n_steps += 1
        if strategy.passes:
            if strategy.n_steps <= strategy.n_others:
                return self._loss
            self._go_on()
        return super().__call__(*batch)

    def join(self) -> None:
        """Take what the others have come to; the steps that they have made are passed over."""
        for server, numbers in self._servers.items():
            self._posts[server].send(server, {"do": "join"})
            answer = self._posts[server].receive(server)
            tensors = [*self.model.parameters(), *self.model.buffers()]
            with torch.no_grad():
                for tensor, value in zip(tensors, answer.tensors, strict=False):
                    tensor.copy_(value)
            # Each has the whole model, and what it does not keep is as at the beginning.
            self._take(server, numbers, answer, answer.tensors[len(tensors) :])
            self._strategy.n_others = answer.content["n_steps"]
        self._loss = torch.tensor(answer.content["loss"])
        self._strategy.passes = True

    def _go_on(self) -> None:
        """This rank is where the others were when it came."""
        self._strategy.passes = False
        self._has_begun, self._told = True, None
        self.optimizer.state.clear()
        self._known = self._writes()
        if self._strategy.in_rounds:
            # The first gradient of one that has not been there for some rounds counts for nothing.
            self._push([None] * len(self._parameters), 0)
        else:
            self.pull()

    def begin(self, n_samples: int) -> None:
        super().begin(n_samples)
        if not self._has_begun or self._known != self._writes():
            self._begin()

    def weight(self) -> float:
        return 1.0 / self.n_samples if self.n_samples else 0.0

    def computed(self, mean: Any) -> None:
        self._loss = mean

    def update(self) -> None:
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        gradients = [each.grad for each in self._parameters]
        n_samples = self.n_samples
        if self.scaler is not None:
            # One that has overflown counts for nothing, here and on the servers.
            held = [each for each in gradients if each is not None]
            n_samples *= all(bool(each.isfinite().all()) for each in held)
            self.scaler.update()
        if not self._strategy.in_rounds and self.settings.clip_norm is not None:
            self.clip(self.settings.clip_norm)
        self._push(gradients, n_samples)
        # A step without gradients changes nothing, and tells schedulers and watches of the step.
        self.optimizer.zero_grad(set_to_none=True)
        self.optimizer.step()

    # -- what is told to the servers -----------------------------------------------------------

    def pull(self) -> None:
        """Take the servers' parameters; in rounds, this rank has them already."""
        if self._strategy.in_rounds or not self._has_begun or self._known != self._writes():
            return
        for server, numbers in self._servers.items():
            self._take(server, numbers, self._asked(server, {"do": "pull"}))
        self._known = self._writes()

    def optimizer_state(self) -> Mapping[str, Any]:
        """The optimizer's state of all shards, as one process would have it."""
        own: dict[str, Any] = self.optimizer.state_dict()
        if not self._has_begun:
            return own
        whole: dict[int, Any] = {}
        for server in self._servers:
            answer = self._asked(server, {"do": "state"})
            whole.update(put_state(answer.content["state"], answer.tensors))
        self._keep(whole)
        return {**own, "state": dict(sorted(whole.items()))}

    def leave(self, reason: StopReason) -> None:
        """This rank is done: the servers wait for it no longer."""
        for server in self._servers:
            with contextlib.suppress(RuntimeError):  # one that is gone waits for nobody
                self._posts[server].send(server, {"do": "leave", "reason": reason})
        if self._strategy.company is not None:
            self._strategy.company.take_leave(reason)

    def _loaded(self, _optimizer: Any) -> None:
        self._has_begun = False

    def _writes(self) -> list[int]:
        return [each._version for each in self._parameters]

    def _begin(self) -> None:
        """Give the servers what the cell begins with, has loaded, or has written itself."""
        if self._is_first:
            for server, numbers in self._servers.items():
                # Where parameters alone were written, the optimizer goes on with what it has.
                state, tensors = (
                    (None, []) if self._has_begun else state_of(self.optimizer, numbers)
                )
                if state is not None:
                    self._keep(dict(put_state(state, tensors)))
                shard = [self._parameters[number] for number in numbers]
                self._tell(server, {"do": "begin", "state": state}, [*shard, *tensors])
        self.optimizer.state.clear()  # it lives on the servers from now on
        self._has_begun, self._told = True, None

    def _push(self, gradients: list[Any], n_samples: int) -> None:
        options = group_options(self.optimizer)
        said = None if options == self._told else options
        self._told = options
        loss = float(self._loss)
        pushes = {}
        for server, numbers in self._servers.items():
            given = [n for n in numbers if gradients[n] is not None] if n_samples else []
            content = {
                "do": "push",
                "version": self._versions[server],
                "n_samples": n_samples,
                "numbers": given,
                "options": said,
                "loss": loss,
            }
            tensors = [self._strategy.compressed(gradients[n].to_dense()) for n in given]
            pushes[server] = content, tensors
            self._tell(server, content, tensors)
        for server, numbers in self._servers.items():
            answer = self._heard(server, *pushes[server])
            self._take(server, numbers, answer)
        self._n_pushed += 1
        self._known = self._writes()
        if self._strategy.in_rounds:
            self._loss = torch.full_like(self._loss, answer.content["loss"])

    def _take(
        self, server: int, numbers: list[int], answer: Message, values: Sequence[Any] | None = None
    ) -> None:
        self._versions[server] = answer.content["version"]
        with torch.no_grad():
            for number, value in zip(numbers, values or answer.tensors, strict=True):
                self._parameters[number].copy_(value)

    # -- servers that are lost -----------------------------------------------------------------

    def _asked(self, server: int, content: Mapping[str, Any]) -> Message:
        self._tell(server, content)
        return self._heard(server, content)

    def _tell(self, server: int, content: Mapping[str, Any], tensors: Sequence[Any] = ()) -> None:
        with contextlib.suppress(RuntimeError):  # it is told again, or its loss, to who listens
            self._posts[server].send(server, content, tensors)

    def _heard(
        self, server: int, content: Mapping[str, Any], tensors: Sequence[Any] = ()
    ) -> Message:
        """The answer to what a server was told; one that was lost is told again when it is back."""
        while True:
            try:
                return self._posts[server].receive(server)
            except RuntimeError as error:
                self._meet_again(server, error)
                if "version" in content:
                    content = {**content, "version": self._versions[server]}
                self._tell(server, content, tensors)

    def _meet_again(self, server: int, error: RuntimeError) -> None:
        """Wait for a server to be back, and give it what it lacks."""
        company = self._strategy.company
        if company is None or not company.place.is_awaited(server):
            raise error
        is_known = self._known == self._writes()
        while True:
            life = self._lives[server] = company.await_life(server, beyond=self._lives[server])
            try:
                place = company.place
                group = company.meet_pair(place.rank, place.life, server, life)
                post = Post(group, self._strategy.exchange, (server, place.rank))
                self._restore(server, post)
            except RuntimeError:
                continue  # lost again
            self._posts[server] = post
            if is_known:
                self._known = self._writes()
            return

    def _restore(self, server: int, post: Post) -> None:
        numbers = self._servers[server]
        model = [*self.model.parameters(), *self.model.buffers()]
        shard = [self._parameters[number] for number in numbers]
        state, tensors = described(self._saved, numbers)
        content = {
            "do": "restore",
            "state": state,
            "options": group_options(self.optimizer),
            "n_steps": self._n_pushed,
            "loss": float(self._loss),
        }
        post.send(server, content, [*model, *shard, *tensors])
        self._take(server, numbers, post.receive(server))

    def _keep(self, states: dict[int, dict[str, Any]]) -> None:
        """Note what a server may lose, where one that is lost comes back."""
        company = self._strategy.company
        if self._is_first and company is not None and company.place.is_awaited(min(self._servers)):
            self._saved.update(states)


def _begin_alike(model: Any, group: Any) -> None:
    """All ranks begin with what rank 0 has."""
    for tensor in (*model.parameters(), *model.buffers()):
        sent = tensor.detach().cpu().contiguous()
        group.broadcast(sent, 0).wait()
        tensor.detach().copy_(sent)
