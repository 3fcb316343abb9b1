"""Environment variables that were set, changed or removed since the process began."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from jupyter_ddl.settings.library import Library

__all__ = ["Environment"]

_NOT_CARRIED = re.compile(
    r"JPY_|JUPYTER|IPYTHON|IPY_|PYDEVD|DEBUGPY|PYTEST_|TORCHELASTIC_|KMP_|TORCHINDUCTOR_CACHE_DIR$|CUDA_VISIBLE_DEVICES$"
    r"|(HIP|ROCR|NVIDIA)_VISIBLE_DEVICES$|\w+_NUM_THREADS$|NUMEXPR_MAX_THREADS$"
    r"|MASTER_(ADDR|PORT)$|((GROUP_|LOCAL_|ROLE_)?(RANK|WORLD_SIZE)|GROUP_WORLD_SIZE)$"
    r"|(TERM|COLUMNS|LINES|CLICOLOR(_FORCE)?|FORCE_COLOR|PAGER|GIT_PAGER|MPLBACKEND|PWD|OLDPWD|_)$"
)
"""What Jupyter, libraries and this package set for each process of theirs."""


class Environment(Library):
    """Carried by value, and shown by name only: what is a secret can't be told."""

    name: ClassVar[str] = "environment"
    module: ClassVar[str] = "os"
    restored: ClassVar[bool] = False

    def values(self) -> dict[str, Any]:
        return dict(os.environ)

    def defaults(self) -> Mapping[str, Any]:
        return {os.fsdecode(name): os.fsdecode(value) for name, value in _at_start().items()}

    def set(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def changed(self) -> dict[str, Any]:
        # As bytes: decoding all of them takes a tenth of a millisecond.
        now, before = dict(os.environb), _at_start()
        names = {name for name, value in now.items() if before.get(name) != value}
        found = sorted(os.fsdecode(name) for name in names | (before.keys() - now.keys()))
        return {name: os.environ.get(name) for name in found if not _NOT_CARRIED.match(name)}

    def text(self, values: Mapping[str, Any]) -> str:
        return ", ".join(
            name if value is not None else f"{name} (removed)" for name, value in values.items()
        )


_WHEN_IMPORTED = dict(os.environb)


@functools.cache
def _at_start() -> Mapping[bytes, bytes]:
    """The environment that this process was given, where the system remembers it."""
    try:
        data = Path("/proc/self/environ").read_bytes()
    except OSError:
        return _WHEN_IMPORTED
    pairs = (each.partition(b"=") for each in data.split(b"\0") if b"=" in each)
    return {name: value for name, _, value in pairs}
