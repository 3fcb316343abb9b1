"""What ``%cluster env sync`` has given a cluster, on disk: for the controller after this one.

``<runtime>/<cluster>.packages`` is written with each sync and removed when the controller ends
with no unfinished run.  A controller that was killed, or stopped in mid-run, so leaves it to the
next one of its name, whose runs need the same packages.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys

import msgspec

from jupyter_ddl.spec.cluster import ClusterSpec
from jupyter_ddl.spec.facts import Patch
from jupyter_ddl.store.paths import private_dir, runtime_path

__all__ = ["KeptPackages"]

log = logging.getLogger(__name__)


class _Record(msgspec.Struct, frozen=True):
    made_for: tuple[str, ...]
    patch: Patch
    wheels: dict[str, bytes]


class KeptPackages:
    """Every call is one read or write of a file, of up to 256 MB."""

    def __init__(self, spec: ClusterSpec) -> None:
        self._path = runtime_path() / f"{spec.name}.packages"
        # With another image or Python the versions of then are the wrong ones.
        self._made_for = (spec.backend, spec.kubernetes.image or "", sys.version)

    def read(self) -> tuple[Patch, dict[str, bytes]] | None:
        """What the controller before has left, if it was for workers like these."""
        try:
            record = msgspec.msgpack.decode(self._path.read_bytes(), type=_Record)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("%s is not read: %s", self._path, error)
            return None
        return (record.patch, record.wheels) if record.made_for == self._made_for else None

    def write(self, patch: Patch, wheels: dict[str, bytes]) -> None:
        """Keep a list in the place of the former one, whole or not at all."""
        private_dir(self._path.parent)
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
        partial.write_bytes(msgspec.msgpack.encode(_Record(self._made_for, patch, wheels)))
        partial.chmod(0o600)
        partial.replace(self._path)

    def remove(self) -> None:
        """Nobody is to have these packages any more."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
