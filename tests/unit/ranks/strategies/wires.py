"""A parameter server and its workers in one process: what is sent arrives at once, in order."""

from __future__ import annotations

import json
from collections import deque
from types import SimpleNamespace
from typing import Any

import torch

from jupyter_ddl.ranks.strategies.messages import Message
from jupyter_ddl.ranks.strategies.parameter_server.rounds import Rounds
from jupyter_ddl.ranks.strategies.parameter_server.server import ParameterServer
from jupyter_ddl.ranks.strategies.shards import trained

__all__ = ["Server"]


class Server:
    """Keeps all parameters of an optimizer."""

    def __init__(
        self, optimizer: Any, rounds: Rounds, n_workers: int = 1, clip_norm: float | None = None
    ) -> None:
        self._answers: list[deque[Message]] = [deque() for _ in range(n_workers)]
        post: Any = SimpleNamespace(send=self._answer, exchange=None)
        request: Any = SimpleNamespace(model=torch.nn.Module(), optimizer=optimizer)
        numbers = range(len(trained(optimizer)))
        parts = (post, rounds, request, numbers, float, clip_norm)
        self._server = ParameterServer(*parts, lambda: None)

    def post_of(self, worker: int) -> Any:
        """What a worker has for a :class:`~jupyter_ddl.ranks.strategies.messages.Post`."""

        def send(_server: int, content: Any, tensors: Any = ()) -> None:
            self._server._answer(worker, _arrived(content, tensors))
            self._server._advance()

        return SimpleNamespace(send=send, receive=lambda _: self._answers[worker].popleft())

    def _answer(self, worker: int, content: Any, tensors: Any) -> None:
        self._answers[worker].append(_arrived(content, tensors))


def _arrived(content: Any, tensors: Any) -> Message:
    return Message(json.loads(json.dumps(content)), [each.detach().clone() for each in tensors])
