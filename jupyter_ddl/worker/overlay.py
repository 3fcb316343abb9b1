"""Packages on top of what a worker has: a directory that comes first on its ranks' path.

One directory per host and list of packages, whichever of its workers is first to make it; the root
file system may be read-only, as long as one place is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import msgspec
from packaging.tags import Tag, sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from jupyter_ddl.errors import WorkerEnvironmentError
from jupyter_ddl.spec.facts import Patch
from jupyter_ddl.store.blobs import digest_of
from jupyter_ddl.store.paths import home_dir, private_dir
from jupyter_ddl.worker.facts import normal_name

__all__ = ["INSTALL_TIMEOUT_S", "install", "overlay_base"]

INSTALL_TIMEOUT_S = 540.0
_POLL_S = 0.2
_VARIABLE = "JUPYTER_DDL_OVERLAY"
_WHEEL = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)-.+\.whl")
_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")


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
    key = [*sorted(patch.requirements), *sorted(each.digest for each in patch.wheels), sys.version]
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
    part = target.with_name(f"{target.name}.part")
    await asyncio.to_thread(shutil.rmtree, part, ignore_errors=True)
    files = [str(path) for path in dict.fromkeys(own)]
    await _pip(["install", "--no-deps", "--no-index", "--target", str(part), *files], deadline_s)
    _tell_origins(patch, part)
    part.rename(target)  # so that it is whole wherever it is


def _tell_origins(patch: Patch, part: Path) -> None:
    """A package that was built of the kernel's checkout is the kernel's, not another one."""
    for each in patch.wheels:
        stem = "-".join(each.name.split("-")[:2])
        info = part / f"{stem}.dist-info"
        if each.origin and info.is_dir():
            (info / "direct_url.json").write_text(each.origin)


def _write_wheels(patch: Patch, wheels: Mapping[str, bytes], store: Path) -> list[Path]:
    private_dir(store)
    for name, data in wheels.items():
        _write(store / Path(name).name, data)
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


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all: another patch of this host may be reading it."""
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(path)


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
    return (errors or lines or ["pip failed without a word"])[-1][:400]


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
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise WorkerEnvironmentError(
                        f"another worker of this host is installing packages for longer than "
                        f"{INSTALL_TIMEOUT_S:.0f} s"
                    ) from None
            await asyncio.sleep(_POLL_S)
        yield
    finally:
        os.close(fd)
