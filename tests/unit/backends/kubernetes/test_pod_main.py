"""The first process of a container begins again what ends in it, and SIGTERM ends it at once."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_ddl.backends.kubernetes import pod_main
from tests.until import until

_LIVES = """
import os, sys, time
from pathlib import Path
from jupyter_ddl.backends.kubernetes import pod_main

role, note, codes = sys.argv[1], Path(sys.argv[2]), [int(each) for each in sys.argv[3:]]
pod_main._PAUSE_S = 0.0

def live():
    with note.open("a") as file:
        file.write(f"{os.getpid()}\\n")
    number = len(note.read_text().splitlines())
    if number > len(codes):
        time.sleep(600)
    code = codes[number - 1]
    if code >= 100:  # it has served before
        os.write(1, b'{"kind": "ready"}\\n')
        code -= 100
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)

pod_main._dask = pod_main._controller = live
sys.argv[1:] = [role]
pod_main.main()
"""


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Start]:
    """Starts one whose lives end with given codes; the life after them does not end by itself."""
    processes: list[subprocess.Popen[bytes]] = []
    note = tmp_path / "note"
    note.touch()

    def start(*codes: int, role: str = "worker") -> subprocess.Popen[bytes]:
        program = [sys.executable, "-c", _LIVES, role, str(note), *map(str, codes)]
        # A group of its own: what a failing test leaves ends with all its lives.
        processes.append(subprocess.Popen(program, start_new_session=True))
        return processes[-1]

    yield start
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


@pytest.mark.parametrize(
    ("codes", "n_lives", "status"),
    [((0, 0, 3), 3, 3), ((1,), 1, 1), ((0, -9), 2, 137)],
    ids=["scheduler gone twice, then a failure", "it can't begin", "killed for its memory"],
)
def test_a_worker_begins_again_until_it_fails(
    started: Start, codes: tuple[int, ...], n_lives: int, status: int, tmp_path: Path
) -> None:
    process = started(*codes)
    assert process.wait(60) == status
    assert len((tmp_path / "note").read_text().splitlines()) == n_lives


def test_a_worker_says_that_it_knows_the_name_for_which_dask_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tls://localhost:8786")
    said: list[str] = []

    def waits() -> None:
        until(lambda: said.append(capsys.readouterr().out) or "".join(said), 30)

    monkeypatch.setattr(pod_main, "_dask", waits)
    pod_main._worker()
    assert "".join(said) == f"{pod_main.NAME_IS_KNOWN}: localhost\n"


def test_a_name_that_is_not_known_is_left_to_dask_to_tell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_name(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_name)
    pod_main._tell_name()
    assert capsys.readouterr().out == ""


def test_a_controller_that_never_served_ends_its_container(started: Start, tmp_path: Path) -> None:
    process = started(1, role="controller")
    assert process.wait(60) == 1
    assert len(_lives(tmp_path)) == 1


def test_a_controller_that_has_served_is_begun_again_however_it_ends(
    started: Start, tmp_path: Path
) -> None:
    process = started(100, -9, 1, 0, role="controller")
    until(lambda: len(_lives(tmp_path)) == 5, 60, "a fifth life")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM


@pytest.mark.parametrize("role", ["worker", "controller"])
def test_sigterm_ends_it_and_its_container(started: Start, role: str, tmp_path: Path) -> None:
    for _ in range(20):  # it comes when a life has just begun, which one try rarely meets
        (tmp_path / "note").write_text("")
        process = started(100 if role == "controller" else 0, role=role)
        while len(lives := _lives(tmp_path)) < 2:
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
        assert not any(Path(f"/proc/{pid}").exists() for pid in lives)


def _lives(folder: Path) -> list[str]:
    return (folder / "note").read_text().splitlines()
