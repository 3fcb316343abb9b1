"""What a dead controller left is ended when the next one starts; with it, what it held of a GPU."""

from __future__ import annotations

import os
import subprocess
import sys

from jupyter_ddl.controller.process import end_leftovers
from jupyter_ddl.store.processes import OWNER_VARIABLE, this_process

_TOKEN = "from jupyter_ddl.store.processes import this_process; print(this_process().token)"


def _left_by(token: str) -> subprocess.Popen[bytes]:
    """A process in a session of its own, as a cell may start one."""
    variables = {**os.environ, OWNER_VARIABLE: token}
    return subprocess.Popen(["sleep", "600"], env=variables, start_new_session=True)


def test_a_process_whose_controller_is_gone_is_ended_and_no_other_one() -> None:
    dead = subprocess.check_output([sys.executable, "-c", _TOKEN], text=True).strip()
    left, owned, strange = _left_by(dead), _left_by(this_process().token), _left_by("not:ours")
    try:
        end_leftovers()  # or another controller of this machine has ended it just before
        assert left.wait(20) == -9
        assert owned.poll() is None
        assert strange.poll() is None
    finally:
        for process in (left, owned, strange):
            process.kill()
            process.wait()
