"""Checkpoints of one trial: written atomically, two kept, the newest valid one found again."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
from blake3 import blake3

from jupyter_ddl.errors import CapacityError, JupyterDDLError
from jupyter_ddl.ranks.metrics import ReportError, shown
from jupyter_ddl.store.atomic import replacing, sync_directory
from jupyter_ddl.store.exhaustion import GOES_ON, NO_SPACE, room_at, used_up

__all__ = [
    "FORMAT",
    "CheckpointFileError",
    "SavedCheckpoint",
    "checkpoint_names",
    "flatten",
    "keep_newest",
    "newest_checkpoint",
    "read_checkpoint",
    "read_or_notice",
    "save_checkpoint",
    "unflatten",
    "write_checkpoint",
]


# Checkpoint state as a plain tree and a list of arrays and tensors, and back.
#
# Nothing here is pickled, so loading a checkpoint runs no code from the file.

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


# One checkpoint file: a fixed-size header line, then the state in one of two codecs.
#
# The header is JSON: format version, codec, digest and size of what follows, step.  A reader
# believes no byte before the digest is right.

FORMAT = 1
_HEADER_BYTES = 256
_LENGTH_BYTES = 8
_DECODING_ERRORS = (RuntimeError, ValueError, LookupError, TypeError, EOFError)
"""What torch, numpy and msgspec raise for content of another version of theirs."""
_READ_STEP_BYTES = 1 << 22


class CheckpointFileError(JupyterDDLError):
    """A file is not a whole checkpoint of a known format."""

    code = "DDL-8003"


class _HashingFile(io.RawIOBase):
    """Passes writes on and digests them on the way."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.hash = blake3()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self.hash.update(view)
        self._file.write(view)
        self.size += view.nbytes
        return view.nbytes


def write_checkpoint(file: IO[bytes], step: int, state: Mapping[str, Any]) -> int:
    """Write state to an empty, seekable file.

    Returns
    -------
    int
        The size of the whole file.

    Raises
    ------
    ReportError
        The state has a part that cannot be saved; nothing has been written then.
    OSError
        The disk is full, for instance.
    """
    tree, leaves = flatten(state)
    torch = sys.modules.get("torch")
    with_torch = torch is not None and any(isinstance(leaf, torch.Tensor) for leaf in leaves)
    file.write(b" " * _HEADER_BYTES)
    hashing = _HashingFile(file)
    if with_torch:
        _write_torch(hashing, tree, leaves)
    else:
        _write_raw(hashing, tree, leaves)
    header = {
        "format": FORMAT,
        "codec": "torch" if with_torch else "raw",
        "blake3": hashing.hash.hexdigest(),
        "size_bytes": hashing.size,
        "step": step,
    }
    file.seek(0)
    file.write(json.dumps(header).encode().ljust(_HEADER_BYTES - 1) + b"\n")
    return _HEADER_BYTES + hashing.size


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read the state and its ``step``.

    Raises
    ------
    CheckpointFileError
        The file is cut, changed, of a newer format or undecodable; the message says which.
    OSError
        It cannot be read.
    """
    with path.open("rb") as file:
        header = _read_header(file)
        digest = blake3()
        size = 0
        while chunk := file.read(_READ_STEP_BYTES):
            digest.update(chunk)
            size += len(chunk)
        if size != header["size_bytes"]:
            raise CheckpointFileError(
                f"it has {size:,} bytes of state, {header['size_bytes']:,} were written"
            )
        if digest.hexdigest() != header["blake3"]:
            raise CheckpointFileError("its content changed after it was written")
        file.seek(_HEADER_BYTES)
        read = _read_torch if header["codec"] == "torch" else _read_raw
        try:
            state: dict[str, Any] = read(file)
        except (*_DECODING_ERRORS, pickle.UnpicklingError) as error:
            raise CheckpointFileError(f"it cannot be decoded: {error}") from error
    return {**state, "step": header["step"]}


def _read_header(file: IO[bytes]) -> dict[str, Any]:
    line = file.read(_HEADER_BYTES)
    if len(line) < _HEADER_BYTES or not line.endswith(b"\n"):
        raise CheckpointFileError(f"it is cut after {len(line)} bytes")
    try:
        header = json.loads(line)
        number = header["format"]
        if number == FORMAT:
            header["size_bytes"], header["blake3"], header["codec"], header["step"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointFileError("its first line is not a checkpoint header") from error
    if number != FORMAT:
        raise CheckpointFileError(f"its format is {number}, and this version reads {FORMAT}")
    return dict(header)


def _write_raw(file: _HashingFile, tree: Any, arrays: list[Any]) -> None:
    index = msgspec.msgpack.encode([tree, [_form_of(array) for array in arrays]])
    file.write(len(index).to_bytes(_LENGTH_BYTES, "little"))
    file.write(index)
    for array in arrays:
        file.write(_bytes_of(array).data)


def _read_raw(file: IO[bytes]) -> Any:
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    tree, forms = msgspec.msgpack.decode(file.read(length))
    # Bytearrays, so that the arrays can be written to.
    leaves = [_array_of(form, bytearray(file.read(form["n_bytes"]))) for form in forms]
    return unflatten(tree, leaves)


def _write_torch(file: _HashingFile, tree: Any, leaves: list[Any]) -> None:
    import torch

    tensors, forms = [], []
    for leaf in leaves:
        is_tensor = isinstance(leaf, torch.Tensor)
        tensors.append(leaf if is_tensor else torch.from_numpy(_bytes_of(leaf).copy()))
        forms.append(None if is_tensor else _form_of(leaf))
    index = bytearray(msgspec.msgpack.encode([tree, forms]))
    torch.save({"index": torch.frombuffer(index, dtype=torch.uint8), "leaves": tensors}, file)


def _read_torch(file: IO[bytes]) -> Any:
    import torch

    saved = torch.load(file, map_location="cpu", weights_only=True)
    tree, forms = msgspec.msgpack.decode(saved["index"].numpy().tobytes())
    leaves = [
        tensor if form is None else _array_of(form, bytearray(tensor.numpy().tobytes()))
        for form, tensor in zip(forms, saved["leaves"], strict=True)
    ]
    return unflatten(tree, leaves)


def _form_of(array: Any) -> dict[str, Any]:
    from numpy.lib.format import dtype_to_descr

    descr = dtype_to_descr(array.dtype)
    return {"dtype": descr, "shape": array.shape, "n_bytes": array.nbytes}


def _bytes_of(array: Any) -> Any:
    """The elements in C order, as a one-dimensional array of bytes."""
    import numpy

    if array.nbytes == 0:
        return numpy.empty(0, numpy.uint8)
    return numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)


def _array_of(form: dict[str, Any], data: bytearray) -> Any:
    import numpy
    from numpy.lib.format import descr_to_dtype

    dtype = descr_to_dtype(form["dtype"])
    if form["n_bytes"] == 0:
        return numpy.empty(form["shape"], dtype)
    return numpy.frombuffer(data, dtype).reshape(form["shape"])


_N_KEPT = 2
_NAME = re.compile(r"step-(-?\d+)-a(\d+)\.ckpt")


class SavedCheckpoint(NamedTuple):
    """What a :class:`~jupyter_ddl.protocol.events.CheckpointSaved` says about a file."""

    file: str
    size_bytes: int


def save_checkpoint(
    checkpoints_dir: Path, trial: int, attempt: int, step: int, state: Mapping[str, Any]
) -> SavedCheckpoint:
    """Save a trial's state; on return it outlives a crash of the machine.

    Raises
    ------
    ReportError
        The state has a part that cannot be saved.
    CapacityError
        The disk is full; says which one.
    """
    directory = checkpoints_dir / f"trial-{trial}"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / f"step-{step}-a{attempt}.ckpt"
    try:
        with replacing(path, is_synced=True) as file:
            size_bytes = write_checkpoint(file, step, state)
        sync_directory(directory)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        raise CapacityError(
            f"saving {path} failed: {error.strerror}, {room_at(directory)}{used_up(error, path)}; "
            f"the checkpoints before it are kept, and {GOES_ON}",
            path=str(path),
        ) from error
    keep_newest(directory, keep=path)
    return SavedCheckpoint(f"{directory.name}/{path.name}", size_bytes)


def newest_checkpoint(
    checkpoints_dir: Path, trial: int, notice: Callable[[str], None]
) -> dict[str, Any] | None:
    """Load the newest valid checkpoint of a trial, of whichever attempt.

    Parameters
    ----------
    notice : callable
        Is told in one sentence about every checkpoint that was passed over, and why.

    Returns
    -------
    dict or None
        The state and its ``step``; None when there is no valid checkpoint.
    """
    for name in checkpoint_names(checkpoints_dir, trial):
        state = read_or_notice(checkpoints_dir, trial, name, notice)
        if state is not None:
            return state
    return None


def checkpoint_names(checkpoints_dir: Path, trial: int) -> list[str]:
    """Names of a trial's checkpoint files, the newest first, valid or not."""
    return [path.name for path in _newest_first(checkpoints_dir / f"trial-{trial}")]


def read_or_notice(
    checkpoints_dir: Path, trial: int, name: str, notice: Callable[[str], None]
) -> dict[str, Any] | None:
    """Read one checkpoint; None, and a sentence to ``notice``, when it is not valid."""
    try:
        return read_checkpoint(checkpoints_dir / f"trial-{trial}" / name)
    except CheckpointFileError as error:
        reason = error.message
    except OSError as error:
        reason = f"it cannot be read: {error.strerror}"
    notice(f"checkpoint {name} of trial {trial} was skipped: {reason}; an older one is tried")
    return None


def _newest_first(directory: Path) -> list[Path]:
    """Checkpoints by attempt, then step.

    By attempt first: an attempt that started over has the state that the run goes on from,
    even when an earlier one had come further.
    """
    found: list[tuple[int, int, Path]] = []
    with contextlib.suppress(FileNotFoundError):
        for path in directory.iterdir():
            match = _NAME.fullmatch(path.name)
            if match:
                found.append((int(match[2]), int(match[1]), path))
    return [path for _, _, path in sorted(found, reverse=True)]


def keep_newest(directory: Path, keep: Path) -> None:
    """Remove a trial's checkpoints but the two newest ones, and ``keep``."""
    for path in _newest_first(directory)[_N_KEPT:]:
        if path != keep:
            path.unlink(missing_ok=True)
