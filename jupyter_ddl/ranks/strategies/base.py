"""What a strategy must do.  A strategy lives as long as one attempt, in one rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

__all__ = ["Strategy"]


class Strategy(Protocol):
    """Called on the rank's main thread, by all ranks of the group in the same order.

    *Plain* state is the state dict that one process without any strategy would have, on the CPU:
    a checkpoint that was written under one strategy is read under every other.
    """

    def wrap(self, model: Any, device: Any) -> Any:
        """Make a ``torch.nn.Module`` ready for training on ``device``, in place or around it.

        What is returned takes plain state in ``load_state_dict``.
        """

    def adapt(self, optimizer: Any) -> None:
        """Have a ``torch.optim.Optimizer`` work on the parameters of the wrapped models.

        Called again after every :meth:`wrap`, so it must leave alone what it has adapted.
        Afterwards the optimizer takes plain state in ``load_state_dict``.
        """

    def state(self, stateful: Any) -> Mapping[str, Any]:
        """Return a model's or an optimizer's state; sharded tensors may still be in it.

        Not collective: whoever saves gathers the sharded tensors.
        """

    def unwrap(self, model: Any) -> Any:
        """Return the plain module with its trained parameters; collective if they are sharded."""
