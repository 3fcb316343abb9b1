"""Files below a folder, by relative paths: no link is followed, and nothing outside is reached.

Who names the paths may be another host.  Each component is opened in the one before, so a link that
somebody puts in its place meanwhile leads nowhere either.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from jupyter_ddl.protocol.mirroring import CHECKED_BYTES
from jupyter_ddl.protocol.names import is_written_path
from jupyter_ddl.store.atomic import PARTIAL

__all__ = ["Draft", "Tree", "crc_before", "read_at", "write_at"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe in the place of a file would hold up who opens it.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_DEPTH = 31
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class Tree:
    """A folder and what lies below it; blocking.

    Methods raise FileNotFoundError for what is not there, is no plain file or has a path that
    leads elsewhere, and OSError as the system does.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """All plain files that may travel, but for those that are being written."""
        with _closing(self._root()) as root:
            for folder, names, files, fd in os.fwalk(".", dir_fd=root, follow_symlinks=False):
                above = Path(folder).parts
                if len(above) >= _MAX_DEPTH:
                    names.clear()
                for name in files:
                    path = "/".join((*above, name))
                    if name.startswith(PARTIAL) or not is_written_path(path):
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        seen = os.stat(name, dir_fd=fd, follow_symlinks=False)
                        if stat.S_ISREG(seen.st_mode):
                            yield path, seen

    def drop_partials(self) -> None:
        """Remove what nobody will end who was writing here; only its writer may do so."""
        with _closing(self._root()) as root:
            for _, _, files, fd in os.fwalk(".", dir_fd=root, follow_symlinks=False):
                for name in files:
                    if name.startswith(PARTIAL):
                        with contextlib.suppress(FileNotFoundError):
                            os.unlink(name, dir_fd=fd)

    def stat(self, path: str) -> os.stat_result | None:
        """What the system tells of a file; None where there is none."""
        try:
            with self.open(path) as fd:
                return os.fstat(fd)
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def open(self, path: str, flags: int = os.O_RDONLY) -> Iterator[int]:
        """A descriptor of a file; with ``O_CREAT`` it is made, with its folders."""
        makes = bool(flags & os.O_CREAT)
        with self._folder_of(path, makes=makes) as (folder, name):
            try:
                fd = os.open(name, flags | _FILE, 0o600, dir_fd=folder)
            except OSError as error:
                raise _absent(error, path) from None
            with _closing(fd):
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise FileNotFoundError(errno.ENOENT, "not a plain file", path)
                yield fd

    def begin(self, path: str) -> Draft:
        """Begin a file that takes this path when it is whole."""
        with self._folder_of(path, makes=True) as (folder, name):
            return Draft(os.dup(folder), name)

    def remove(self, path: str) -> None:
        """Remove a file; it may be gone."""
        with contextlib.suppress(FileNotFoundError), self._folder_of(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def _root(self) -> int:
        try:
            return os.open(self.root, _FOLDER)
        except OSError as error:
            raise _absent(error, str(self.root)) from None

    @contextlib.contextmanager
    def _folder_of(self, path: str, *, makes: bool = False) -> Iterator[tuple[int, str]]:
        if not is_written_path(path):
            raise FileNotFoundError(errno.ENOENT, "not a path below a folder", path)
        *above, name = path.split("/")
        fd = self._root()
        try:
            for part in above:
                if makes:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=fd)
                try:
                    inner = os.open(part, _FOLDER, dir_fd=fd)
                except OSError as error:
                    raise _absent(error, path) from None
                os.close(fd)
                fd = inner
            yield fd, name
        finally:
            os.close(fd)


class Draft:
    """A file in parts, which gets its name once it is whole; made by :meth:`Tree.begin`.

    Always end it, by :meth:`keep` or :meth:`drop`.

    Attributes
    ----------
    fd : int
    size : int
        Bytes so far.
    """

    def __init__(self, folder: int, name: str) -> None:
        self._folder = folder
        self._name = name
        self._partial = f"{PARTIAL}{os.urandom(8).hex()}"
        self.size = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE
        try:
            self.fd = os.open(self._partial, flags, 0o600, dir_fd=folder)
        except BaseException:
            os.close(folder)
            raise

    def add(self, data: bytes, n_zeros: int = 0) -> None:
        """Write behind what there is; zeros in front of the data take no room."""
        if n_zeros:
            self.size += n_zeros
            os.ftruncate(self.fd, self.size)
        self.size += write_at(self.fd, data, self.size)

    def keep(self, *, replaces: bool, is_synced: bool, changed_at_ns: int | None = None) -> None:
        """Give the file its name.

        Parameters
        ----------
        replaces : bool
            Whether another file of that name goes; else it raises FileExistsError.
        is_synced : bool
            Have the content and the name on the disk when this returns.
        changed_at_ns : int, optional
            The time of its last change.
        """
        try:
            if changed_at_ns is not None:
                os.utime(self.fd, ns=(changed_at_ns, changed_at_ns))
            if is_synced:
                os.fsync(self.fd)
            if replaces:
                self._rename()
            else:
                self._link()
            if is_synced:
                os.fsync(self._folder)
        finally:
            self.drop()

    def _rename(self) -> None:
        names = self._partial, self._name
        os.rename(*names, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def _link(self) -> None:
        names = self._partial, self._name
        try:
            os.link(*names, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            with contextlib.suppress(FileNotFoundError):
                os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
                raise FileExistsError(errno.EEXIST, "it is there", self._name) from None
            self._rename()

    def drop(self) -> None:
        """Forget it; may be called twice, and after :meth:`keep`."""
        if self._folder < 0:
            return
        folder, self._folder = self._folder, -1
        try:
            with contextlib.suppress(OSError):
                os.unlink(self._partial, dir_fd=folder)
        finally:
            os.close(self.fd)
            os.close(folder)


def read_at(fd: int, offset: int, n_bytes: int) -> bytes:
    """So many bytes of an open file, fewer at its end."""
    parts = []
    while n_bytes > 0 and (part := os.pread(fd, n_bytes, offset)):
        parts.append(part)
        offset += len(part)
        n_bytes -= len(part)
    return b"".join(parts)


def write_at(fd: int, data: bytes, offset: int) -> int:
    """Write all of it; returns its length."""
    view, done = memoryview(data), 0
    while done < len(view):
        done += os.pwrite(fd, view[done:], offset + done)
    return done


def crc_before(fd: int, offset: int) -> int:
    """CRC-32 of the bytes in front of an offset, by which two files are known to be one."""
    n_bytes = min(offset, CHECKED_BYTES)
    return crc32(read_at(fd, offset - n_bytes, n_bytes))


@contextlib.contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def _absent(error: OSError, path: str) -> OSError:
    """A link, or a file in the place of a folder, is as good as nothing."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR):
        return FileNotFoundError(errno.ENOENT, "not a plain file", path)
    return error
