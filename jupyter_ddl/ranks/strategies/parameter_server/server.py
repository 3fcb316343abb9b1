"""The rank that keeps a shard of the parameters: takes gradients, gives parameters."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from jupyter_ddl.ranks.stopping import StopReason
from jupyter_ddl.ranks.strategies.company import Company
from jupyter_ddl.ranks.strategies.messages import Message, Post
from jupyter_ddl.ranks.strategies.parameter_server.rounds import Rounds
from jupyter_ddl.ranks.strategies.placing import follow_parameters
from jupyter_ddl.ranks.strategies.shards import put_options, put_state, state_of, trained
from jupyter_ddl.ranks.strategies.steps import StepRequest

__all__ = ["ParameterServer"]

_Heard: TypeAlias = tuple[int, int, Message | Exception]
"""Of which worker, of which of its processes, and what."""
_TELL_EVERY = 4
"""Counts are told behind the 1st, 4th, 16th … update."""
_LOOK_S = 0.5
"""How soon a stop signal is seen while no worker says anything."""


class ParameterServer:
    """Of one server rank; its main thread updates and answers, one thread each hears a worker.

    Parameters
    ----------
    request : StepRequest
        The cell's own, on this rank: of the parameters that are not in the shard its optimizer
        never gets a gradient, so that it leaves them alone.
    numbers : sequence of int
        The parameters of the shard.
    over_servers : callable
        Gives the sum of a number of each server, by which they know the norm of all gradients.
    clip_norm : float, optional
    counted : callable
        Called when it is time to tell what was counted: ever more rarely, and at the end.
    post : Post, optional
        By which all workers are reached; None: they meet this server one by one.
    company : Company, optional
        Of a group that goes on without a worker that is lost.
    """

    def __init__(
        self,
        post: Post | None,
        rounds: Rounds,
        request: StepRequest,
        numbers: Sequence[int],
        over_servers: Callable[[float], float],
        clip_norm: float | None,
        counted: Callable[[], None],
        company: Company | None = None,
    ) -> None:
        self._posts = {} if post is None else dict.fromkeys(rounds.present, post)
        self._exchange = None if post is None else post.exchange
        self._rounds = rounds
        self._model = request.model
        self._optimizer = optimizer = request.optimizer
        self._parameters = trained(optimizer)
        self._company = company
        self._lives = dict.fromkeys(range(rounds.n_workers), 1)
        self._n_told = 0
        self._n_steps, self._loss = 0, float("nan")
        self._numbers = tuple(numbers)
        self._over_servers = over_servers
        self._clip_norm = clip_norm
        self._counted = counted
        self._tell_at = 1
        self._pushes: dict[int, Message] = {}
        self._orphaned: set[int] = set()
        """Workers whose gradient is that of a process that is gone: it counts, and nobody waits for
        the answer, which the worker's next process would take for that to its own first word."""
        self._heard: queue.SimpleQueue[_Heard] = queue.SimpleQueue()

    def serve(self) -> StopReason:
        """Answer until the last worker is done; return how that one ended.

        Raises
        ------
        RuntimeError
            A worker is gone without having taken leave, and the group does not go on without it.
        """
        self._listen_to_all()
        reason: StopReason = "complete"
        while self._rounds.present:
            worker, life, message = self._next()
            if life != self._lives[worker]:
                continue  # of a process of which it is known that it is gone
            if isinstance(message, Exception):
                self._lose(worker, message)
            elif message.content["do"] == "leave":
                if life == 1:  # one that was started again may be sent away before it is through
                    reason = message.content["reason"]
                self._rounds.leave(worker)
            else:
                self._answer(worker, message)
            self._advance()
        self._counted()
        return reason

    # -- who is there ------------------------------------------------------------------------------

    def _listen_to_all(self) -> None:
        for worker, post in self._posts.items():
            self._listen(worker, 1, post)

    def _listen(self, worker: int, life: int, post: Post | None) -> None:
        # A thread each: no wait of gloo is for several ranks that may come and go.
        threading.Thread(target=self._hear, args=(worker, life, post), daemon=True).start()

    def _hear(self, worker: int, life: int, post: Post | None) -> None:
        try:
            if post is None:
                post = self._posts[worker] = self._meet(worker, life)
            while True:
                message = post.receive(worker)
                self._heard.put((worker, life, message))
                if message.content["do"] == "leave":
                    return
        except Exception as error:  # noqa: BLE001 - told on the main thread
            self._heard.put((worker, life, error))

    def _next(self) -> _Heard:
        while True:
            self._look_who_is_there()
            try:
                return self._heard.get(timeout=_LOOK_S)
            except queue.Empty:
                continue

    def _look_who_is_there(self) -> None:
        """Meet workers that were started again."""
        company = self._company
        if company is None or company.members.number == self._n_told:
            return
        self._n_told = company.members.number
        for worker, life in company.lives.items():
            if life > self._lives.get(worker, life):
                self._rounds.leave(worker)  # if its connection has not told it yet
                self._lives[worker] = life
                self._orphaned.update({worker} & self._pushes.keys())
                self._listen(worker, life, None)

    def _meet(self, worker: int, life: int) -> Post:
        assert self._company is not None
        assert self._exchange is not None
        place = self._company.place
        group = self._company.meet_pair(worker, life, place.rank, place.life)
        return Post(group, self._exchange, (place.rank, worker))

    def _lose(self, worker: int, error: Exception) -> None:
        if self._company is None or not self._company.place.is_dispensable(worker):
            raise error
        self._rounds.leave(worker)

    def _send(self, worker: int, content: Mapping[str, Any], tensors: Sequence[Any]) -> None:
        try:
            self._posts[worker].send(worker, content, tensors)
        except RuntimeError as error:
            self._lose(worker, error)

    # -- what they say -----------------------------------------------------------------------------

    def _answer(self, worker: int, message: Message) -> None:
        content = message.content
        if content["do"] == "push":
            if worker == 0:
                self._n_steps, self._loss = self._n_steps + 1, content["loss"]
            self._pushes[worker] = message
            self._orphaned.discard(worker)
            self._rounds.push(worker, content["version"])
        elif content["do"] == "begin":
            self._begin(message)
        elif content["do"] == "pull":
            self._give(worker)
        elif content["do"] == "join":
            self._welcome(worker)
        else:
            state, tensors = state_of(self._optimizer, self._numbers)
            self._send(worker, {"state": state}, tensors)

    def _begin(self, message: Message) -> None:
        """Take what a worker has loaded, or begins with."""
        n_own = len(self._numbers)
        with torch.no_grad():
            for number, value in zip(self._numbers, message.tensors[:n_own], strict=True):
                self._parameters[number].copy_(value)
        state = message.content["state"]
        if state is not None:
            for number in self._numbers:
                self._optimizer.state.pop(self._parameters[number], None)
            for number, held in put_state(state, message.tensors[n_own:]):
                self._optimizer.state[self._parameters[number]] = held
            follow_parameters(self._optimizer)
        self._rounds.begin()

    def _advance(self) -> None:
        while True:
            for worker in self._rounds.dropped():
                del self._pushes[worker]
                self._reply(worker)
            workers = self._rounds.due()
            if not workers:
                return
            pushes = [self._pushes.pop(worker) for worker in workers]
            loss = self._update(pushes)
            if self._rounds.version >= self._tell_at:
                self._tell_at *= _TELL_EVERY
                self._counted()
            for worker in workers:
                self._reply(worker, loss=loss)

    def _reply(self, worker: int, **more: Any) -> None:
        """Answer a gradient."""
        if worker in self._orphaned:
            self._orphaned.discard(worker)
        else:
            self._give(worker, **more)

    def _give(self, worker: int, **more: Any) -> None:
        shard = [self._parameters[number] for number in self._numbers]
        self._send(worker, {"version": self._rounds.version, **more}, shard)

    def _welcome(self, worker: int) -> None:
        """Give a worker that was started again all that it lacks."""
        model = [*self._model.parameters(), *self._model.buffers()]
        shard = [self._parameters[number] for number in self._numbers]
        content = {
            "version": self._rounds.version,
            "n_steps": self._n_steps,
            "loss": self._loss,
        }
        self._send(worker, content, [*model, *shard])

    def _update(self, pushes: Sequence[Message]) -> float:
        """Step by the mean of the gradients over all samples; return the mean of the losses."""
        n_all = sum(push.content["n_samples"] for push in pushes)
        weights = [push.content["n_samples"] / n_all if n_all else 0.0 for push in pushes]
        for push in pushes:
            if push.content["options"] is not None:
                put_options(self._optimizer, push.content["options"])
                break
        if not n_all:
            return float("nan")  # not one of the gradients was finite
        self._optimizer.zero_grad()
        for push, weight in zip(pushes, weights, strict=True):
            if not weight:
                continue
            for number, gradient in zip(push.content["numbers"], push.tensors, strict=True):
                parameter = self._parameters[number]
                share = gradient.to(parameter.device, parameter.dtype)
                share = share if weight == 1.0 else share * weight
                parameter.grad = share if parameter.grad is None else parameter.grad + share
        self._clip()
        self._optimizer.step()
        losses = (
            push.content["loss"] * weight
            for push, weight in zip(pushes, weights, strict=True)
            if weight
        )
        return float(sum(losses))

    def _clip(self) -> None:
        """Scale the gradients of all shards down to a norm together, as torch does for one."""
        if self._clip_norm is None:
            return
        own = [self._parameters[number].grad for number in self._numbers]
        found = [each for each in own if each is not None]
        square = torch.zeros((), dtype=torch.float64)
        for each in found:
            square += torch.linalg.vector_norm(each.detach()).double().square().cpu()
        factor = min(1.0, self._clip_norm / (self._over_servers(float(square)) ** 0.5 + 1e-6))
        for each in found:
            each.mul_(factor)
