"""An error behind which a limit of the host stands tells the limit, its use, and what raises it."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_ddl.store import exhaustion
from jupyter_ddl.store.exhaustion import used_up
from tests.namespaces import apart

_NO_FILES = """
import errno, os, resource, sys
from jupyter_ddl.store.exhaustion import used_up
resource.setrlimit(resource.RLIMIT_NOFILE, (16, 64))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    told = used_up(error)
os.write(1, told.encode())
"""


def test_a_process_without_a_descriptor_can_still_say_so() -> None:
    done = subprocess.run([sys.executable, "-c", _NO_FILES], capture_output=True, check=True)
    assert "may have 16 files and sockets open" in done.stdout.decode()
    assert "ulimit -n" in done.stdout.decode()


def test_the_group_that_has_no_process_to_spare_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, outer = tmp_path / "outer" / "inner", tmp_path / "outer"
    inner.mkdir(parents=True)
    for group, limit in ((inner, "max"), (outer, "100")):
        (group / "pids.max").write_text(f"{limit}\n")
        (group / "pids.current").write_text("99\n")
    monkeypatch.setattr(exhaustion, "_groups", lambda: iter((inner, outer)))
    for error in (OSError(errno.EAGAIN, "again"), RuntimeError("can't start new thread")):
        told = used_up(error)
        assert told == " (99 of 100 processes and threads are in use: the container's limit)"
    (outer / "pids.max").write_text("1000\n")
    assert "container" not in used_up(OSError(errno.EAGAIN, "again"))


def test_a_disk_with_room_and_no_inode_is_told_from_a_full_one(tmp_path: Path) -> None:
    script = """
import sys, itertools
from pathlib import Path
from jupyter_ddl.store.exhaustion import used_up
try:
    for n in itertools.count():
        Path(sys.argv[1], str(n)).touch()
except OSError as error:
    print(n, used_up(error), used_up(OSError(28, "full"), "/"))
"""
    mounting = 'mount -t tmpfs -o size=1m,nr_inodes=10 tmpfs "$1" && shift && exec "$@"'
    command = [*apart("--mount"), "sh", "-c", mounting, "sh", str(tmp_path)]
    told = subprocess.check_output(
        [*command, sys.executable, "-c", script, str(tmp_path)], text=True
    )
    assert told == f"9  (no inode is left of 10 at {tmp_path}: remove files there) \n"


def test_other_errors_are_left_as_they_are() -> None:
    assert used_up(OSError(errno.EACCES, "denied")) == ""
    assert used_up(OSError(errno.ENOSPC, "full")) == ""
    assert used_up(RuntimeError("something else")) == ""
