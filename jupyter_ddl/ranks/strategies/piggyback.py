"""Two numbers that travel with the gradients of DDP, where a collective of their own costs more.

For DDP they are the gradient of one more parameter, which the model does not have: it is there
while DDP looks for parameters, and an identity that the loss passes through gives it its gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["Piggyback"]

_NAME = "_jupyter_ddl_piggyback"
_TYPES = (torch.float32, torch.float64)
"""Narrower ones would round the numbers."""


class Piggyback:
    """Of one model in DDP, on a CPU; on a GPU its numbers would have to be waited for."""

    def __init__(self, dtype: Any) -> None:
        self._parameter = torch.nn.Parameter(torch.zeros(2, dtype=dtype))

    @classmethod
    def of(cls, model: Any, device: Any) -> Piggyback | None:
        """One that shares a bucket with the model's parameters; None: there can't be one."""
        types = {each.dtype for each in model.parameters() if each.requires_grad}
        is_plain = isinstance(model._parameters, dict)  # unlike that of a scripted module
        if device.type != "cpu" or not is_plain or len(types) != 1 or not types <= {*_TYPES}:
            return None
        return cls(types.pop())

    def wrapped(self, model: Any, wrap: Callable[[], Any]) -> Any:
        """Return what ``wrap`` makes of the model, and of this parameter."""
        # Not by the module's own functions, which one that is compiled hands on.
        model._parameters[_NAME] = self._parameter
        try:
            return wrap()
        finally:
            del model._parameters[_NAME]

    def attach(self, loss: Any, first: float, second: float) -> Any:
        """The loss, whose backward pass sends the numbers; once in a step."""
        self._parameter.grad = None
        numbers = torch.tensor([first, second], dtype=self._parameter.dtype)
        return _Attached.apply(loss, self._parameter, numbers)

    def means(self) -> tuple[float, float]:
        """The means of the numbers over the ranks, once gradients are averaged."""
        first, second = self._parameter.grad.tolist()
        return first, second

    @property
    def n_bytes(self) -> int:
        """That travel in a step."""
        return int(self._parameter.nbytes)


class _Attached(torch.autograd.Function):  # type: ignore[misc]  # torch is not followed
    @staticmethod
    def forward(context: Any, loss: Any, _parameter: Any, numbers: Any) -> Any:
        context.numbers = numbers
        return loss.view_as(loss)

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        return gradient, context.numbers, None
