"""Where an optimizer's state is, when its parameters have been moved."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["follow_parameters"]


def follow_parameters(optimizer: Any) -> None:
    """Move an optimizer's state to the devices of its parameters.

    ``load_state_dict`` of torch does so once; a cell may load a checkpoint before its model is
    moved.  Counters stay where they are, as there: optimizers want them on the CPU.
    """
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.dim() and value.device != parameter.device:
                state[name] = value.to(parameter.device)
