"""Checkpoint state as a plain tree and a list of arrays and tensors, and back.

Nothing here is pickled, so loading a checkpoint runs no code from the file.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from jupyter_ddl.worker.metrics import ReportError, shown

__all__ = ["flatten", "unflatten"]

_MESSAGEPACK_BITS = 63


def flatten(state: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """Split state into a tree of plain values and its leaves.

    A plain scalar stands for itself; everything else is ``[tag, content]``.

    Returns
    -------
    tree, leaves
        Leaves are numpy arrays and torch tensors, in the order of their numbers in the tree.

    Raises
    ------
    ReportError
        A part is nothing that can be saved; the message says where it is.
    """
    leaves: list[Any] = []
    pairs = [[name, _flat(value, name, leaves, ())] for name, value in state.items()]
    return ["dict", pairs], leaves


def unflatten(tree: Any, leaves: list[Any]) -> Any:
    """Rebuild what :func:`flatten` was given; objects with ``state_dict`` come as that dict."""
    if not isinstance(tree, list):
        return tree
    tag, content = tree
    if tag == "dict":
        return {unflatten(key, leaves): unflatten(value, leaves) for key, value in content}
    if tag == "integer":
        return int(content, 16)
    if tag == "leaf":
        return leaves[content]
    if tag == "scalar":
        return leaves[content][()]
    items = [unflatten(item, leaves) for item in content]
    return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[tag](items)


def _flat(value: Any, path: str, leaves: list[Any], parents: tuple[int, ...]) -> Any:
    kind = type(value)
    if value is None or kind in (bool, float, str, bytes):
        return value
    if kind is int:
        # In hex, because Python refuses decimal texts of very large integers.
        return value if value.bit_length() <= _MESSAGEPACK_BITS else ["integer", hex(value)]
    leaf = _leaf(value, path, leaves)
    if leaf is not None:
        return leaf
    if id(value) in parents:
        raise ReportError(f"checkpoint({path}=…) contains itself; save a part of it")
    parents = (*parents, id(value))
    if isinstance(value, Mapping):
        return [
            "dict",
            [
                [
                    _flat(key, f"{path} key", leaves, parents),
                    _flat(item, f"{path}[{shown(key)}]", leaves, parents),
                ]
                for key, item in value.items()
            ],
        ]
    for tag, sequence in (("list", list), ("tuple", tuple), ("set", set), ("frozenset", frozenset)):
        if isinstance(value, sequence):
            items = [_flat(item, f"{path}[{i}]", leaves, parents) for i, item in enumerate(value)]
            return [tag, items]
    state_dict = getattr(value, "state_dict", None)
    if callable(state_dict) and not isinstance(value, type):
        return _flat(state_dict(), f"{path}.state_dict()", leaves, parents)
    return _plain_subclass(value, path)


def _plain_subclass(value: Any, path: str) -> Any:
    for plain in (bool, int, float, str):
        if isinstance(value, plain):
            return plain(value)
    raise ReportError(
        f"checkpoint(): {path} is {shown(value)} ({type(value).__name__}), which cannot be saved; "
        f"expected numbers, strings, lists, dicts, arrays, tensors or an object with state_dict()"
    )


def _leaf(value: Any, path: str, leaves: list[Any]) -> Any:
    torch = sys.modules.get("torch")
    numpy = sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        tensor = value.detach()
        if tensor.untyped_storage().nbytes() > tensor.numel() * tensor.element_size():
            tensor = tensor.clone()  # a view would drag its whole storage into the file
        leaves.append(tensor)
        return ["leaf", len(leaves) - 1]
    if numpy is None or not isinstance(value, numpy.ndarray | numpy.generic):
        return None
    if value.dtype.hasobject or (value.dtype.kind == "V" and value.dtype.names is None):
        raise ReportError(
            f"checkpoint(): {path} is an array of {value.dtype}, which cannot be saved; "
            f"give a list or an array of numbers"
        )
    leaves.append(numpy.asarray(value))
    return ["scalar" if isinstance(value, numpy.generic) else "leaf", len(leaves) - 1]
