"""The rank that keeps a shard of the parameters, started again while the workers wait for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from jupyter_ddl.ranks.strategies.company import Company
from jupyter_ddl.ranks.strategies.exchange import Exchange
from jupyter_ddl.ranks.strategies.messages import Message
from jupyter_ddl.ranks.strategies.parameter_server.rounds import Rounds
from jupyter_ddl.ranks.strategies.parameter_server.server import ParameterServer
from jupyter_ddl.ranks.strategies.shards import put_options
from jupyter_ddl.ranks.strategies.steps import StepRequest

__all__ = ["ReturnedServer"]


class ReturnedServer(ParameterServer):
    """See :class:`ParameterServer`.

    It has nothing of what its process before it had.  Rank 0 gives it the parameters as it had them
    last, and the optimizer's state of the last checkpoint; once that one is through with the cell,
    the first worker that comes gives what it has.
    """

    def __init__(
        self,
        exchange: Exchange,
        rounds: Rounds,
        request: StepRequest,
        numbers: Sequence[int],
        clip_norm: float | None,
        counted: Callable[[], None],
        company: Company,
    ) -> None:
        # It is the only one: where there are several, none is awaited.
        super().__init__(None, rounds, request, numbers, float, clip_norm, counted, company)
        there = company.lives
        self._exchange = exchange
        self._others = company
        self._n_told = company.members.number
        self._lives = {worker: there.get(worker, 0) for worker in range(company.place.n_workers)}
        self._lacks_all = True
        self._early: list[tuple[int, Message]] = []
        for worker, life in self._lives.items():
            if life != 1:  # one that was lost before pushes before it is waited for
                rounds.leave(worker)

    def _listen_to_all(self) -> None:
        for worker, life in self._lives.items():
            if life:
                self._listen(worker, life, None)

    def _look_who_is_there(self) -> None:
        super()._look_who_is_there()
        for worker in self._rounds.present - self._posts.keys():
            reason = self._others.left(worker)
            if reason is not None:  # it did not need this server any more, and will not meet it
                leave = Message({"do": "leave", "reason": reason}, [])
                self._heard.put((worker, self._lives[worker], leave))

    def _lose(self, worker: int, error: Exception) -> None:
        if self._others.left(worker) is None:
            super()._lose(worker, error)

    def _answer(self, worker: int, message: Message) -> None:
        if self._lacks_all:
            self._early.append((worker, message))
        elif message.content["do"] == "restore":
            self._give(worker)
        else:
            super()._answer(worker, message)

    def _advance(self) -> None:
        if self._lacks_all:
            self._restore()
        super()._advance()

    def _restore(self) -> None:
        """Take what a worker gives that may, if one has, and answer all."""
        may = [0] if 0 in self._rounds.present else [worker for worker, _ in self._early]
        given = (
            message
            for worker, message in self._early
            if worker in may and message.content["do"] == "restore"
        )
        message = next(given, None)
        if message is None:
            return
        model = [*self._model.parameters(), *self._model.buffers()]
        with torch.no_grad():
            for tensor, value in zip(model, message.tensors, strict=False):
                tensor.copy_(value)
        put_options(self._optimizer, message.content["options"])
        self._n_steps, self._loss = message.content["n_steps"], message.content["loss"]
        self._begin(Message(message.content, message.tensors[len(model) :]))
        self._lacks_all = False
        early, self._early = self._early, []
        for worker, said in early:
            self._answer(worker, said)
