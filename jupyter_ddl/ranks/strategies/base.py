"""What a strategy must do: how ``prepare`` makes a model of one process train on several ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

__all__ = ["Strategy"]


class Strategy(ABC):
    """Lives as long as one attempt, in one rank of a group.

    A package adds one by the entry point group ``jupyter_ddl.strategies``: a name, and a class
    derived from this one, whose ``__init__`` takes nothing.  ``jupyter_ddl.testing.strategies`` has
    the tests that each one is to pass.

    It is made when the cell first calls ``prepare``, after the process group was initialised
    (unless the cell does that itself, with ``--no-init``), and all calls come on the rank's main
    thread, by all ranks of the group in the same order: a method may use collectives unless it says
    otherwise.  How long that may take is for the group's watch over hangs to say.  Nothing has to
    be given back: the process ends with the attempt.

    *Plain* state is the state dict that one process without any strategy would have, on the CPU:
    a checkpoint that was written under one strategy is read under every other.
    """

    @abstractmethod
    def wrap(self, model: Any, device: Any) -> Any:
        """Make a ``torch.nn.Module`` ready for training on ``device``, in place or around it.

        All ranks begin with the parameters of rank 0.  What has been wrapped is returned as it is.
        What is returned takes plain state in ``load_state_dict``.

        Raises
        ------
        ReportError
            The model, or the group, is not one that can be trained so; the message says what to do.
        """

    @abstractmethod
    def adapt(self, optimizer: Any) -> None:
        """Have a ``torch.optim.Optimizer`` work on the parameters of the wrapped models.

        Called again after every :meth:`wrap`, so it must leave alone what it has adapted.
        Afterwards the optimizer takes plain state in ``load_state_dict``.
        """

    @abstractmethod
    def state(self, stateful: Any) -> Mapping[str, Any]:
        """Return a model's or an optimizer's state; sharded tensors may still be in it.

        Not collective: whoever saves gathers the sharded tensors.
        """

    @abstractmethod
    def unwrap(self, model: Any) -> Any:
        """Return the plain module with its trained parameters; collective if they are sharded."""
