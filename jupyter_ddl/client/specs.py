"""What clusters were started with, so that one whose process died is started again as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path

import msgspec

from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.reading import from_json
from jupyter_ddl.store.atomic import write_whole
from jupyter_ddl.store.paths import runtime_dir

__all__ = ["remember_packages", "remember_spec", "remembered_spec"]


def remember_spec(spec: ClusterSpec) -> None:
    """For whoever starts a cluster of this name again."""
    write_whole(_path(spec.name), msgspec.json.encode(spec))


def remembered_spec(name: str) -> ClusterSpec | None:
    """None: no cluster of this name was started here, or by another version."""
    try:
        return from_json(_path(name).read_bytes(), ClusterSpec)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def remember_packages(name: str, packages: Collection[str]) -> None:
    """Have a cluster that is started again import at once what its runs need.

    Else it does so when it goes on with them, some seconds later.
    """
    spec = remembered_spec(name)
    if spec is None or {*packages} <= {*spec.prewarm}:
        return
    with contextlib.suppress(OSError):  # it saves time, and no run is to fail for a full disk
        known = dict.fromkeys((*spec.prewarm, *packages))
        remember_spec(msgspec.structs.replace(spec, prewarm=tuple(known)))


def _path(name: str) -> Path:
    return runtime_dir() / f"{name}.spec"
