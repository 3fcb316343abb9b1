"""``--strategy dp``: torch's ``nn.DataParallel``, one process and a thread for each GPU.

Torch itself advises against it: it copies the model to every GPU in each step, and its threads wait
for one another to hold Python's lock.  It is here to be compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from jupyter_ddl.ranks.strategies.base import Strategy
from jupyter_ddl.ranks.strategies.ddp.strategy import ShownModule
from jupyter_ddl.ranks.strategies.steps import StepRequest, TrainingStep

__all__ = ["OneProcess"]


class OneProcess(Strategy):
    """See :class:`~jupyter_ddl.ranks.strategies.base.Strategy`."""

    def wrap(self, model: Any, device: Any) -> Any:
        if isinstance(model, torch.nn.DataParallel):
            return model
        return CopiedModel(model.to(device))

    def adapt(self, optimizer: Any) -> None:
        """Nothing to do: the parameters are the same objects as before."""

    def state(self, stateful: Any) -> Mapping[str, Any]:
        state: Mapping[str, Any] = self.unwrap(stateful).state_dict()
        return state

    def unwrap(self, model: Any) -> Any:
        return model.module if isinstance(model, torch.nn.DataParallel) else model

    def prepare_step(self, request: StepRequest) -> TrainingStep:
        model = self.wrap(request.model, request.device)
        return TrainingStep(dataclasses.replace(request, model=model))


class CopiedModel(ShownModule, torch.nn.DataParallel):  # type: ignore[misc]
    """``nn.DataParallel`` that shows the model's own state and attributes."""
