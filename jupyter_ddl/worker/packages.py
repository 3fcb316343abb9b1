"""What a worker knows and changes of the environment that its ranks have."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from distributed import Worker
from packaging.tags import Tag, sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from jupyter_ddl.errors import WorkerEnvironmentError
from jupyter_ddl.protocol.facts import CORE, EnvironmentCall, Facts, Patch, WorkerEnvironment
from jupyter_ddl.protocol.reading import from_msgpack
from jupyter_ddl.store.atomic import write_whole
from jupyter_ddl.store.blobs import digest_of
from jupyter_ddl.store.locks import try_lock
from jupyter_ddl.store.packages import EnvironmentReader, normal_name
from jupyter_ddl.store.paths import home_dir, private_dir
from jupyter_ddl.store.wheel_contents import differs_from, is_bomb
from jupyter_ddl.worker.rank_pool import RankPool

__all__ = [
    "EXTENSION",
    "INSTALL_TIMEOUT_S",
    "RankEnvironment",
    "ask_environment",
    "install",
    "overlay_base",
]


# Packages on top of what a worker has: a directory that comes first on its ranks' path.
#
# One directory per host and list of packages, whichever of its workers is first to make it; the
# root file system may be read-only, as long as one place is not.

INSTALL_TIMEOUT_S = 540.0
_POLL_S = 0.2
_VARIABLE = "JUPYTER_DDL_OVERLAY"
_WHEEL = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)-.+\.whl")
_PIP = ("-P", "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")


def overlay_base() -> Path:
    """A directory of this user's that can be written to.

    ``JUPYTER_DDL_OVERLAY``, else beside the runs, else in the temporary directory.

    Raises
    ------
    WorkerEnvironmentError
        None of them can be written.
    """
    tried = []
    for candidate in _candidates():
        try:
            path = private_dir(candidate())
            owner = path.stat()
            if owner.st_uid == os.getuid() and os.access(path, os.W_OK):
                return path
            tried.append(str(path))
        except OSError as error:
            tried.append(str(error.filename or error))
    raise WorkerEnvironmentError(
        f"a worker has no directory to install packages in (tried {', '.join(tried)}); set "
        f"{_VARIABLE} to one that can be written"
    )


def _candidates() -> Iterator[Callable[[], Path]]:
    configured = os.environ.get(_VARIABLE)
    if configured:
        yield lambda: Path(configured)
    yield lambda: home_dir() / "overlays"
    yield lambda: Path(tempfile.gettempdir()) / f"jupyter_ddl-{os.getuid()}-overlays"


async def install(patch: Patch, wheels: Mapping[str, bytes]) -> Path:
    """The directory with a patch's packages, installed now unless that was done before.

    Parameters
    ----------
    wheels : mapping
        Contents of the patch's own wheels by file name; every other package comes from where
        this host's pip takes packages.

    Raises
    ------
    WorkerEnvironmentError
        pip failed or took longer than 9 minutes; the message has its reason.
    """
    base = overlay_base()
    digests = [each.digest for each in patch.wheels]
    digests += [each.digest for each in patch.contents.values()]
    key = [*sorted(patch.requirements), *sorted(digests), sys.version]
    target = base / digest_of(msgspec.json.encode(key))[:16]
    deadline_s = time.monotonic() + INSTALL_TIMEOUT_S
    async with _lock(base / f"{target.name}.lock", deadline_s):
        if not target.exists():
            await _install(patch, wheels, base / "wheels", target, deadline_s)
    return target


async def _install(
    patch: Patch, wheels: Mapping[str, bytes], store: Path, target: Path, deadline_s: float
) -> None:
    own = _write_wheels(patch, wheels, store)
    there = {_key(*_parts(path.name)) for path in own}
    others = [text for text in patch.requirements if _requirement_key(text) not in there]
    # Kept between patches: a package is fetched once per host.
    before = _wheels_in(store)
    tags = frozenset(sys_tags())  # another Python of this host may have fetched its own
    found = {
        _key(*_parts(path.name)): path for path in before if path not in own and _runs(path, tags)
    }
    missing = [text for text in others if _requirement_key(text) not in found]
    if missing:
        await _pip(["wheel", "--no-deps", "--wheel-dir", str(store), *missing], deadline_s)
        own += [path for path, made_at in _wheels_in(store).items() if before.get(path) != made_at]
    own += [found[key] for text in others if (key := _requirement_key(text)) in found]
    for path in dict.fromkeys(own):
        await asyncio.to_thread(_check, path, patch)
    part = target.with_name(f"{target.name}.part")
    await asyncio.to_thread(shutil.rmtree, part, ignore_errors=True)
    files = [str(path) for path in dict.fromkeys(own)]
    await _pip(["install", "--no-deps", "--no-index", "--target", str(part), *files], deadline_s)
    _tell_origins(patch, part)
    part.rename(target)  # so that it is whole wherever it is


def _check(wheel: Path, patch: Patch) -> None:
    """Refuse, and forget, a wheel that is not the one that the kernel's installer got.

    Raises
    ------
    WorkerEnvironmentError
        Its files differ, or would fill the disk.
    """
    name, version = _parts(wheel.name)
    if is_bomb(wheel):
        wheel.unlink(missing_ok=True)
        raise WorkerEnvironmentError(
            f"{wheel.name} would unpack to more than a hundred times its size, and was not "
            f"installed; see which index pip asks on the workers (`pip config list`)",
            package=name,
        )
    known = patch.contents.get(normal_name(name))
    if known is None or not differs_from(wheel, known):
        return
    wheel.unlink(missing_ok=True)
    raise WorkerEnvironmentError(
        f"{wheel.name} has other files here than the wheel that the kernel has {name} {version} "
        f"of, and was not installed; see which index pip asks on the workers (`pip config list`), "
        f"or run `%pip install --force-reinstall --no-deps {name}=={version}` and sync again",
        package=name,
    )


def _tell_origins(patch: Patch, part: Path) -> None:
    """A package that was built of the kernel's checkout is the kernel's, not another one."""
    for each in patch.wheels:
        stem = "-".join(each.name.split("-")[:2])
        info = part / f"{stem}.dist-info"
        if each.origin and info.is_dir():
            (info / "direct_url.json").write_text(each.origin)


def _write_wheels(patch: Patch, wheels: Mapping[str, bytes], store: Path) -> list[Path]:
    private_dir(store)
    digests = {each.name: each.digest for each in patch.wheels}
    for name, data in wheels.items():
        if digest_of(data) != digests.get(name):
            raise WorkerEnvironmentError(
                f"{name} has not come here as it was sent, and was not installed; sync again",
                package=_parts(name)[0],
            )
        # Whole or not at all: another patch of this host may be reading it.
        write_whole(store / Path(name).name, data)
    return [store / Path(each.name).name for each in patch.wheels]


def _wheels_in(store: Path) -> dict[Path, int]:
    """Wheels of a directory, and when each was written."""
    return {path: path.stat().st_mtime_ns for path in store.glob("*.whl")}


def _runs(wheel: Path, tags: frozenset[Tag]) -> bool:
    """Whether a wheel is one for this Python and platform."""
    try:
        return not parse_wheel_filename(wheel.name)[3].isdisjoint(tags)
    except InvalidWheelFilename:
        return False


async def _pip(arguments: list[str], deadline_s: float) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *_PIP,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PYTHONPATH": ""},
    )
    try:
        async with asyncio.timeout(max(0.0, deadline_s - time.monotonic())):
            output, _ = await process.communicate()
    except TimeoutError:
        raise WorkerEnvironmentError(
            f"pip {arguments[0]} took longer than {INSTALL_TIMEOUT_S:.0f} s on a worker"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise WorkerEnvironmentError(_reason(output.decode(errors="replace")))


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if any("No module named pip" in line for line in lines):
        return "the workers' Python has no pip"
    return (errors or lines or ["pip failed without any output"])[-1][:400]


def _parts(wheel: str) -> tuple[str, str]:
    match = _WHEEL.fullmatch(wheel)
    return (match["name"], match["version"]) if match else (wheel, "")


def _key(name: str, version: str) -> str:
    return f"{normal_name(name)}=={version}"


def _requirement_key(text: str) -> str:
    """As of a wheel's file name; a URL is none, and so always fetched."""
    name, _, version = text.partition("==")
    return _key(name.strip(), version.strip()) if version and "@" not in text else text


@contextlib.asynccontextmanager
async def _lock(path: Path, deadline_s: float) -> AsyncIterator[None]:
    """Held by one process of the host at a time."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not try_lock(fd, path, _VARIABLE):
            if time.monotonic() > deadline_s:
                raise WorkerEnvironmentError(
                    f"another worker of this host is installing packages for longer than "
                    f"{INSTALL_TIMEOUT_S:.0f} s"
                )
            await asyncio.sleep(_POLL_S)
        yield
    finally:
        os.close(fd)


EXTENSION = "jupyter_ddl_environment"
"""Name among the extensions of the Dask worker."""
_RANK_POLL_S = 0.02
_N_POLLS = 400


class RankEnvironment:
    """Used on the worker's loop only.

    Ranks are forked from the zygote: what it has loaded they have, whatever lies on disk by now.
    The packages of the worker process itself stay as they were when it started.
    """

    def __init__(self, pool: RankPool) -> None:
        self._pool = pool
        self._own = EnvironmentReader(sys.path)
        self._own.note_loaded(name.partition(".")[0] for name in tuple(sys.modules))
        self._path: tuple[str, ...] = tuple(sys.path)
        self._ranks = EnvironmentReader(self._path)
        self._merged: tuple[str, Facts] | None = None
        self._merged_of: tuple[str, str] = ("", "")
        self._changing = asyncio.Lock()
        self._patch: Patch | None = None
        pool.on_zygote = self._new_zygote
        pool.on_loaded = self._loaded

    async def call(self, payload: bytes) -> bytes:
        """Answer an encoded :class:`EnvironmentCall`."""
        call = from_msgpack(payload, EnvironmentCall)
        error = ""
        if call.patch is not None:
            try:
                await self._apply(call.patch, call.wheels)
            except (WorkerEnvironmentError, OSError) as failure:
                error = getattr(failure, "message", str(failure))
        digest, facts = self._facts()
        known = digest in call.known
        return msgspec.msgpack.encode(WorkerEnvironment(digest, None if known else facts, error))

    async def _apply(self, patch: Patch, wheels: dict[str, bytes]) -> None:
        async with self._changing:
            if patch == self._patch:
                return
            overlay = str(await install(patch, wheels)) if patch.requirements else ""
            self._path = (overlay, *sys.path)
            await self._pool.renew(overlay)
            self._patch = patch

    def _new_zygote(self, loaded: Iterable[str]) -> None:
        self._ranks = EnvironmentReader(self._path)
        self._ranks.note_loaded(loaded)

    def _loaded(self, names: Iterable[str]) -> None:
        self._ranks.note_loaded(names)

    def _facts(self) -> tuple[str, Facts]:
        """The ranks' facts, with the worker's own where it is the worker that matters."""
        of = (self._own.digest, self._ranks.digest)
        if self._merged is None or of != self._merged_of:
            facts = _merge(self._own.facts(), self._ranks.facts())
            digest = digest_of(msgspec.json.encode(facts, order="sorted"))
            self._merged, self._merged_of = (digest, facts), of
        return self._merged


def _merge(own: Facts, ranks: Facts) -> Facts:
    packages, held = dict(ranks.packages), dict(ranks.held)
    for name in CORE:
        for source, target in ((own.packages, packages), (own.held, held)):
            target.pop(name, None)
            if name in source:
                target[name] = source[name]
    ordered = dict(sorted(packages.items()))
    return msgspec.structs.replace(ranks, packages=ordered, held=dict(sorted(held.items())))


async def ask_environment(encoded: bytes, dask_worker: Worker) -> bytes:
    """Answer an encoded ``EnvironmentCall`` on a worker; called with ``Client.run``."""
    for _ in range(_N_POLLS):
        if EXTENSION in dask_worker.extensions:
            break
        await asyncio.sleep(_RANK_POLL_S)  # a worker is announced before its plugins are set up
    answering: RankEnvironment = dask_worker.extensions[EXTENSION]
    return await answering.call(encoded)
