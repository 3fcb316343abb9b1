"""One checkpoint file: a fixed-size header line, then the state in one of two codecs.

The header is JSON: format version, codec, digest and size of what follows, step.  A reader
believes no byte before the digest is right.
"""

from __future__ import annotations

import io
import json
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import msgspec
from blake3 import blake3

from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.worker.state_tree import flatten, unflatten

__all__ = ["FORMAT", "CheckpointFileError", "read_checkpoint", "write_checkpoint"]

FORMAT = 1
_HEADER_BYTES = 256
_LENGTH_BYTES = 8
_DECODING_ERRORS = (RuntimeError, ValueError, LookupError, TypeError, EOFError)
"""What torch, numpy and msgspec raise for content of another version of theirs."""
_READ_STEP_BYTES = 1 << 22


class CheckpointFileError(JupyterDDLError):
    """A file is no whole checkpoint of a known format."""

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


def write_checkpoint(file: IO[bytes], step: int, state: Mapping[str, Any]) -> tuple[str, int]:
    """Write state to an empty, seekable file.

    Returns
    -------
    digest, size_bytes
        Digest of the state's bytes, and the size of the whole file.

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
    return hashing.hash.hexdigest(), _HEADER_BYTES + hashing.size


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
        raise CheckpointFileError("its first line is no checkpoint header") from error
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
