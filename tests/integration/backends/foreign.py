"""A Dask cluster that somebody else has started: a scheduler and workers of Dask's own commands."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import distributed
import psutil
from distributed import Client, Security

from jupyter_ddl.backends.certificates import temporary_security
from tests.leaks import Home
from tests.until import PATIENCE_S, until

__all__ = ["Foreign", "certificates", "foreign_cluster", "outside", "security_of"]

_START_S = 30.0
_PRELOAD = ("--preload", "jupyter_ddl.worker.preemption")
_PRELOAD_NANNY = ("--preload-nanny", "jupyter_ddl.worker.preemption")


@dataclass
class Foreign:
    """Where it is, what opens it, and its processes."""

    address: str
    security: Security
    words: tuple[str, ...]
    home: Home
    host: str = "127.0.0.1"
    enter: tuple[str, ...] = ()
    """The beginning of a command that runs on the scheduler's host; empty: on this one."""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    starts: list[Callable[[], subprocess.Popen[bytes]]] = field(default_factory=list)
    """How each of them was started."""

    def add_workers(
        self,
        n: int,
        *,
        nanny: bool = True,
        has_jupyter_ddl: bool = True,
        n_slots: int = 1,
        variables: Mapping[str, str] = MappingProxyType({}),
        host: str = "127.0.0.1",
        enter: tuple[str, ...] = (),
    ) -> None:
        """Start ``n`` at one address, and wait for them."""
        with self.client() as client:
            n_before = len(client.scheduler_info(n_workers=-1)["workers"])
            slots = ("--nthreads", str(n_slots))  # Dask's word for them
            kind = (*slots, "--no-dashboard", *(() if nanny else ("--no-nanny",)))
            if has_jupyter_ddl:
                kind += (*_PRELOAD, *(_PRELOAD_NANNY if nanny else ()))
            words = ("worker", self.address, "--host", host, *kind, *self.words)
            path = None if has_jupyter_ddl else _packages_without_ours(self.home)
            for _ in range(n):
                # As on hosts of their own: none sees another one's files.
                away = self.home.root / f"elsewhere-{len(self.processes)}"
                start = functools.partial(
                    _start,
                    self.home,
                    *words,
                    enter=enter,
                    path=path,
                    away=away,
                    variables=variables,
                )
                self._begin(start)
            client.wait_for_workers(n_before + n, timeout=PATIENCE_S)

    def replace_ended(self) -> None:
        """Start workers that have ended anew, as whoever looks after a cluster does."""
        for number, process in enumerate(self.processes):
            if number and process.poll() is not None:
                self.processes[number] = self.starts[number]()

    def kill_scheduler(self) -> None:
        """Its workers end by themselves."""
        self.processes[0].kill()
        self.processes[0].wait()

    @contextlib.contextmanager
    def scheduler_stands_still(self) -> Iterator[None]:
        """It answers nobody, and its connections stand."""
        scheduler = psutil.Process(self.processes[0].pid)
        scheduler.suspend()
        try:
            yield
        finally:
            scheduler.resume()

    def start_scheduler(self) -> None:
        """Start another one at the address of the one that was killed."""
        self.processes[0] = self._scheduler("--port", self.address.rpartition(":")[2])

    def start(self) -> None:
        """Start its scheduler, wherever there is a port."""
        file = self.home.work / "scheduler.json"
        place = ("--port", "0", "--scheduler-file", str(file))
        self._begin(lambda: self._scheduler(*place))
        text = until(lambda: _text(file), _START_S, "the scheduler's file")
        self.address = json.loads(text)["address"]

    def _begin(self, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self.starts.append(start)
        self.processes.append(start())

    def _scheduler(self, *place: str) -> subprocess.Popen[bytes]:
        words = (
            "scheduler",
            "--host",
            self.host,
            "--no-dashboard",
            "--dashboard-address=:0",
            *self.words,
            *place,
        )
        return _start(self.home, *words, enter=self.enter)

    def client(self) -> Client:
        """Of its owner."""
        return Client(self.address, security=self.security, set_as_default=False, timeout=10)

    def below(self) -> set[str]:
        """Command lines of all processes below the scheduler and its workers."""
        found = set()
        for process in self.processes:
            for child in psutil.Process(process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    found.add(" ".join(child.cmdline()))
        return found


@contextlib.contextmanager
def foreign_cluster(
    home: Home,
    n_workers: int = 2,
    *,
    nanny: bool = True,
    tls: bool = True,
    host: str = "127.0.0.1",
    enter: tuple[str, ...] = (),
) -> Iterator[Foreign]:
    """Run ``dask scheduler`` and ``dask worker``, which live outside the test's home."""
    files = certificates(home.work) if tls else []
    words = ("--protocol", "tls" if tls else "tcp", *files)
    foreign = Foreign("", security_of(files), words, home, host, enter)
    try:
        foreign.start()
        if n_workers:
            foreign.add_workers(n_workers, nanny=nanny)
        yield foreign
    finally:
        for process in reversed(foreign.processes):
            process.terminate()
        for process in reversed(foreign.processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def outside(home: Home, away: Path | None = None) -> dict[str, str]:
    """The environment of processes that do not belong to the test's home."""
    mine = home.variables()
    kept = {name: value for name, value in os.environ.items() if name not in mine}
    return kept | {"JUPYTER_DDL_HOME": str(away or home.root / "elsewhere")}


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _start(
    home: Home,
    *words: str,
    enter: tuple[str, ...] = (),
    path: Path | None = None,
    away: Path | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.Popen[bytes]:
    python = (sys.executable,) if path is None else (sys.executable, "-S")
    paths = {} if path is None else {"PYTHONPATH": str(path)}
    with (home.work / "foreign.log").open("ab") as log:
        return subprocess.Popen(
            [*enter, *python, "-m", "dask", *words],
            env={**outside(home, away), **paths, **variables},
            cwd=home.work,
            stdout=log,
            stderr=log,
        )


def _packages_without_ours(home: Home) -> Path:
    """A directory with everything that is installed here but this package."""
    directory = home.work / "packages"
    directory.mkdir()
    for each in Path(distributed.__file__).parents[1].iterdir():
        if "jupyter_ddl" not in each.name:
            (directory / each.name).symlink_to(each)
    return directory


def security_of(files: list[str]) -> Security:
    """What opens a scheduler that was started with these options."""
    named: dict[str, Any] = dict(zip(files[::2], files[1::2], strict=True))
    if not named:
        return Security(require_encryption=False)
    return Security(
        require_encryption=True,
        tls_ca_file=named["--tls-ca-file"],
        tls_client_cert=named["--tls-cert"],
        tls_client_key=named["--tls-key"],
    )


def certificates(directory: Path) -> list[str]:
    """New ones in files, as options of Dask's commands."""
    security = temporary_security()
    cert, key = directory / "cert.pem", directory / "key.pem"
    cert.write_text(security.tls_client_cert)
    key.write_text(security.tls_client_key)
    return ["--tls-ca-file", str(cert), "--tls-cert", str(cert), "--tls-key", str(key)]
