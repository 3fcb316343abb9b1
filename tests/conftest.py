"""Fixtures for all tests: a private home, the check for leftovers, a real kernel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from jupyter_ddl.store.log_space import bound_logs
from tests.leaks import Home, end_processes, leftovers_of, new_home

if TYPE_CHECKING:
    from tests.live_kernel import LiveKernel

_REAL = ("integration", "kernel", "kube", "notebooks")

# A shell starts what it puts in the background with SIGINT ignored, and Python leaves that so;
# tests of interrupts would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# How long one example takes is the machine's doing.
settings.register_profile("here", deadline=None)
settings.load_profile("here")

_ALONE = "JUPYTER_DDL_TEST_ALONE"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test marked ``forks`` runs in a fresh process, which has no thread but its own.

    This process has had clusters and kernels: what their threads held at the moment of a fork
    is held forever in the child.
    """
    if pyfuncitem.get_closest_marker("forks") is None or _ALONE in os.environ:
        return None
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", pyfuncitem.nodeid],
        cwd=pyfuncitem.config.rootpath,
        env={**os.environ, _ALONE: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"alone in its process:\n{done.stdout}{done.stderr}", pytrace=False)
    return True


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Home]:
    """Directories and environment of this test alone; the client's session starts afresh."""
    with new_home() as found:
        for name, value in found.variables().items():
            monkeypatch.setenv(name, value)
        if request.node.get_closest_marker("notebooks") is None:
            # Tests import torch here and hardly any of them in a rank: 5 s of CPU per cluster.
            monkeypatch.setenv("JUPYTER_DDL_PREWARM", "")
        monkeypatch.setattr("jupyter_ddl.client.session._session", None)
        yield found
        _close_session()


@pytest.fixture
def holes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where the file system gives no part of a file back."""
    folder = tmp_path_factory.mktemp("holes")
    (folder / "log").write_bytes(bytes([1]) * (1 << 20))
    try:
        bound_logs(folder, 1)
    except OSError as error:
        pytest.skip(f"no part of a file can be given back in {folder}: {error}")


@pytest.fixture(autouse=True)
def no_settings_of_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells compiled in this process leave here what pytest has set in it (filters, handlers)."""
    monkeypatch.setattr("jupyter_ddl.cell.settings.LIBRARIES", ())


@pytest.fixture(autouse=True)
def no_leftovers(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a test with real processes, none of them is left, nor are their files and threads."""
    if not any(request.node.get_closest_marker(name) for name in _REAL):
        yield
        _end_client_loop()
        return
    home: Home = request.getfixturevalue("home")
    yield
    _close_session()
    _end_client_loop()  # what was called without a session has none that would end it
    found = leftovers_of(home)
    end_processes(home)
    if found:
        pytest.fail("left behind:\n" + "\n".join(found), pytrace=False)


@pytest.fixture
def kernel(home: Home) -> Iterator[LiveKernel]:
    """A real ipykernel in the test's home with the extension loaded.

    Its own clusters are stopped after the test.
    """
    from tests.live_kernel import LiveKernel

    live = LiveKernel(home)
    live.run("%load_ext jupyter_ddl").check()
    yield live
    live.close()


def _close_session() -> None:
    from jupyter_ddl.client import session

    if session._session is not None:
        session._session.close()


def _end_client_loop() -> None:
    """What a test has called may have started it; the next one's threads are counted."""
    if link := sys.modules.get("jupyter_ddl.client.link"):
        link.close_client_loop()
