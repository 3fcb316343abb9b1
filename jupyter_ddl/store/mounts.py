"""How far a lock reaches on the file system that a path lies on.

A lock of a local disk holds for everybody who sees the file: all of them share one kernel.  File
systems of several hosts have the server keep locks, or don't: then two hosts can both have one.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

__all__ = ["FileSystem", "file_system_of"]

_MOUNTS = Path("/proc/self/mounts")
_ESCAPE = re.compile(r"\\([0-7]{3})")

_LOCKS_OF_ALL_HOSTS = frozenset(
    {"nfs", "nfs4", "lustre", "ceph", "fuse.ceph", "fuse.ceph-fuse", "gpfs", "gfs2", "ocfs2"}
    | {"fuse.glusterfs", "fuse.juicefs"}
)
_LOCKS_OF_ONE_HOST = frozenset(
    {"cifs", "smb3", "9p", "virtiofs", "vboxsf", "prl_fs", "afs", "beegfs", "pvfs2", "panfs"}
    | {"wekafs", "coda", "fuse"}
)
_ONLY_LOCAL = frozenset({"nolock", "local_lock=flock", "local_lock=all", "localflock"})
"""Options of a mount that keep locks from the server."""


class FileSystem(msgspec.Struct, frozen=True):
    """What is mounted where a path leads to."""

    kind: str
    options: frozenset[str]
    mounted_at: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.mounted_at}"

    @property
    def is_shared(self) -> bool:
        """Whether other hosts may see the same files."""
        of_network = self.kind in _LOCKS_OF_ALL_HOSTS | _LOCKS_OF_ONE_HOST
        return of_network or self.kind.startswith("fuse.")

    @property
    def locks_reach_all(self) -> bool:
        """Whether whoever sees a file sees its locks, on whatever host."""
        if not self.is_shared:
            return True
        if self.kind == "lustre" and "flock" not in self.options:
            return False
        return self.kind in _LOCKS_OF_ALL_HOSTS and not self.options & _ONLY_LOCAL


def file_system_of(path: Path) -> FileSystem:
    """The file system of a path, which need not exist yet."""
    found = FileSystem("unknown", frozenset(), "/")
    try:
        lines = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return found
    real = path.resolve()
    for line in lines:
        _, target, kind, options, *_ = line.split(" ")
        place = _ESCAPE.sub(lambda code: chr(int(code[1], 8)), target)
        # Of several mounts at one place the last one is seen.
        if real.is_relative_to(place) and len(place) >= len(found.mounted_at):
            found = FileSystem(kind, frozenset(options.split(",")), place)
    return found
