"""Large CPU tensors travel as raw bytes beside the payload, without a copy.

A rank imports this file while it unpickles, and torch only if a tensor is there.  Each tensor
travels for itself: views of one storage arrive as separate tensors, and one that is not
contiguous arrives contiguous.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

__all__ = ["LARGE_TENSOR_BYTES", "rebuild_tensor", "reduce_tensor"]

LARGE_TENSOR_BYTES = 1 << 20


def reduce_tensor(value: Any) -> Any:
    """How a tensor is pickled, or None where pickle's own way is right.

    Raises
    ------
    TypeError
        For a tensor that lies on another device than the CPU: a rank may not have it.
    """
    torch: Any = sys.modules.get("torch")
    # An import that was interrupted leaves a module with nothing in it.
    if type(value) is not getattr(torch, "Tensor", None):
        return None
    if value.device.type != "cpu":
        raise TypeError(f"a tensor on device {value.device} stays there; move it with .cpu()")
    plain = (
        value.layout is torch.strided
        and not value.is_complex()
        and not value.is_quantized
        and not value.is_neg()
        and value.is_leaf
        and not value.__dict__
    )
    n_bytes = value.numel() * value.element_size()
    if not plain or n_bytes < LARGE_TENSOR_BYTES:
        return None
    dtype = str(value.dtype).removeprefix("torch.")
    # Bytes rather than numbers: numpy has no bfloat16 and no 8-bit floats.
    flat = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return rebuild_tensor, (flat, dtype, tuple(value.shape), value.requires_grad)


def rebuild_tensor(flat: Any, dtype: str, shape: tuple[int, ...], requires_grad: bool) -> Any:
    """The tensor of these bytes; it shares their memory where that is writable."""
    # By name, so that this package depends on no torch.
    torch = importlib.import_module("torch")
    if not flat.flags.writeable:
        flat = flat.copy()
    tensor = torch.from_numpy(flat).view(getattr(torch, dtype)).reshape(shape)
    return tensor.requires_grad_(requires_grad)
