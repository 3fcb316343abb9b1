"""Starts a controller: detached from this kernel, so that it survives it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import msgspec

from jupyter_ddl import errors
from jupyter_ddl.backends.base import backend_plugin, check_size
from jupyter_ddl.binder_mode import sized_for_binder
from jupyter_ddl.errors import ClusterError, ControllerError
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.store.connection import ConnectionInfo, read_connection
from jupyter_ddl.store.paths import runtime_dir

__all__ = ["How", "packages_to_warm", "prepared_spec", "start_controller"]

How = Literal["start", "join", "either"]
"""Of clusters whose controllers run elsewhere: bring a new one up; use the one that is there; use
it, or bring one up if there is none."""

_HEAVY = ("numpy", "pandas", "scipy", "sklearn", "torch")

_OF_WORKERS = {
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""What Dask starts workers with unless the user has set it: of this host, they are its copies."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_MARGIN_S = 15.0
_GIVE_UP_S = 12.0


def packages_to_warm(
    *, if_installed: bool = False, among: Collection[str] | None = None
) -> tuple[str, ...]:
    """Packages that zygotes import ahead of need: the heavy ones that this process has imported.

    ``JUPYTER_DDL_PREWARM`` names others, separated by commas, or none at all when it is empty.

    Parameters
    ----------
    if_installed : bool
        For a process that imports none itself: those that it could import.
    among : collection of str, optional
        Those of these, whoever has imported them.
    """
    configured = os.environ.get("JUPYTER_DDL_PREWARM")
    if configured is None and among is not None:
        return tuple(name for name in _HEAVY if name in among)
    if configured is None:
        known = find_spec if if_installed else sys.modules.get
        return tuple(name for name in _HEAVY if known(name) is not None)
    return tuple(name.strip() for name in configured.split(",") if name.strip())


def prepared_spec(spec: ClusterSpec, on_phase: Callable[[str], None]) -> ClusterSpec:
    """The spec that is started in place of ``spec``: checked, sized, with its image built.

    Raises
    ------
    ClusterError
        A bad name, a name in use, a size that is none, or what Binder has no room for.
    OptionError
        There is no such backend.
    JupyterDDLError
        What the backend needs from here can't be made.
    """
    spec = sized_for_binder(spec)
    _check(spec)
    return backend_plugin(spec.backend).prepare(spec, on_phase)


def start_controller(
    spec: ClusterSpec, on_phase: Callable[[str], None], how: How = "start"
) -> tuple[ConnectionInfo, list[str]]:
    """Start a controller of a spec that was prepared, and wait until its cluster is ready.

    Where the backend has controllers elsewhere, what is started here is the mirror of one.

    Parameters
    ----------
    how : str
        Of such a backend: ``start`` a new cluster, ``join`` the one that is there, or ``either``.

    Returns
    -------
    ConnectionInfo, list of str
        How to reach it, and the unfinished runs that it goes on with.

    Raises
    ------
    ClusterError
        There are no workers by the deadline, or the backend refuses; nothing is left running.
    ControllerError
        It ended while it started, and did not say why: it was killed, or crashed.
    """
    process = _spawn(spec, how)
    try:
        resumed = _wait_ready(process, spec, on_phase)
    except BaseException:
        _end(process)
        raise
    finally:
        if process.stdout is not None:
            process.stdout.close()
    # Who starts it may be a server that lives for months: ended controllers must not pile up.
    threading.Thread(
        target=process.wait, name=f"jupyter-ddl-end-of-{spec.name}", daemon=True
    ).start()
    info = read_connection(spec.name)
    if info is None:
        raise ControllerError(f"cluster {spec.name} ended at once; {_log_tail(spec.name)}")
    return info, resumed


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a controller that is still starting; it takes back what it has begun."""
    process.terminate()
    try:
        process.wait(_GIVE_UP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _check(spec: ClusterSpec) -> None:
    if not _NAME.fullmatch(spec.name):
        raise ClusterError(
            f"cluster name {spec.name!r} is not valid; expected up to 40 of a-z, 0-9 and -"
        )
    if read_connection(spec.name) is not None:
        # The controller checks too; refused here, the log of the running one stays in its place.
        raise ClusterError(
            f"a cluster named {spec.name!r} is already running; `%cluster attach {spec.name}` uses "
            "it, --name starts another one"
        )
    check_size(spec)


def _spawn(spec: ClusterSpec, how: How) -> subprocess.Popen[bytes]:
    is_mirror = backend_plugin(spec.backend).has_controller_host
    module = ("jupyter_ddl.mirror", how) if is_mirror else ("jupyter_ddl.controller",)
    # Appended to: if a controller of this name runs, the log is its own.
    log_file = runtime_dir() / f"{spec.name}.log"
    fd = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(fd, "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *module],
            env={**_OF_WORKERS, **os.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # a signal to the kernel's process group does not reach it
            cwd="/",
        )
    if process.stdin is None:
        raise ControllerError("the controller has no standard input")
    # If it has ended already, who waits for it finds that.
    with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(msgspec.json.encode(spec))
    return process


def _wait_ready(
    process: subprocess.Popen[bytes], spec: ClusterSpec, on_phase: Callable[[str], None]
) -> list[str]:
    deadline = time.monotonic() + spec.start_timeout_s + _MARGIN_S
    for message in _messages(process, deadline):
        if message["kind"] == "phase":
            on_phase(message["text"])
        elif message["kind"] == "error":
            kind = getattr(errors, message["error"], ClusterError)
            raise kind(message["message"])
        elif message["kind"] == "ready":
            return list(message["resumed"])
    if time.monotonic() < deadline:
        raise ControllerError(f"cluster {spec.name} ended while starting; {_log_tail(spec.name)}")
    raise ClusterError(
        f"cluster {spec.name} was not ready after {spec.start_timeout_s:.0f} s; "
        f"{_log_tail(spec.name)}"
    )


def _messages(process: subprocess.Popen[bytes], deadline: float) -> Any:
    """JSON lines from the controller until its end or the deadline."""
    if process.stdout is None:
        return
    fd = process.stdout.fileno()
    pending = b""
    while (left := deadline - time.monotonic()) > 0:
        readable, _, _ = select.select([fd], [], [], min(left, 0.5))
        if not readable:
            continue
        data = os.read(fd, 65536)
        if not data:
            return
        pending += data
        *lines, pending = pending.split(b"\n")
        yield from (json.loads(line) for line in lines)


def _log_tail(name: str) -> str:
    path: Path = runtime_dir() / f"{name}.log"
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    last = lines[-1] if lines else "it is empty"
    return f"the last line of its log {path}: {last}"
