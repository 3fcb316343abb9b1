"""Stands beside a zygote while that can't hear signals, and ends what it would leave.

A zygote that imports a package may be in C for seconds.  It is killed when its worker dies then,
and its ranks with it; a program that a rank has started in a session of its own would go on.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from typing import NoReturn

from jupyter_ddl.worker.deathsig import request_death_signal
from jupyter_ddl.worker.leftovers import ZYGOTE_VARIABLE, kill_leftovers

__all__ = ["guard_zygote"]

_TIMEOUT_S = 30.0
_POLL_S = 0.02
_LOOK_S = 1.0


def guard_zygote(zygote_pid: int, inherited: Iterable[int]) -> NoReturn:
    """Called in a fresh fork of the zygote, with SIGTERM blocked; ends after it, or by its SIGKILL.

    Parameters
    ----------
    inherited
        File descriptors of the zygote: who waits for their end must not wait for this process.
    """
    exit_code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCONT, signal.SIG_DFL)
        for fd in inherited:
            os.close(fd)
        request_death_signal(signal.SIGTERM)
        while os.getppid() == zygote_pid:
            # SIGTERM is still blocked.  Not for ever: the parent may have died just before.
            signal.sigtimedwait((signal.SIGTERM,), _LOOK_S)
        _end_all(os.environ.get(ZYGOTE_VARIABLE, ""))
        exit_code = 0
    finally:
        os._exit(exit_code)


def _end_all(zygote_id: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while zygote_id and kill_leftovers(ZYGOTE_VARIABLE, zygote_id) and time.monotonic() < deadline:
        time.sleep(_POLL_S)  # what was being started meanwhile is found by the next look
