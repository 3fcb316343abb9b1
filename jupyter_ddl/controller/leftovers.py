"""Ends processes that a controller which no longer exists left behind.

Every process below a controller carries its token.  PR_SET_PDEATHSIG already ends them with their
parent; what escapes (a user's own subprocess that outlived its rank) is found here.
"""

from __future__ import annotations

import contextlib
import logging

import psutil

from jupyter_ddl.store.processes import ProcessIdentity, boot_id, is_alive, owned_processes

__all__ = ["end_leftovers", "owner_token"]

log = logging.getLogger(__name__)


def owner_token(process: ProcessIdentity) -> str:
    """The token of a controller: its pid and start time."""
    return f"{process.pid}:{process.started_at_s:.2f}"


def end_leftovers() -> int:
    """Kill processes whose controller is gone; returns how many."""
    n_ended = 0
    for token, processes in owned_processes().items():
        if _owner_alive(token):
            continue
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
                n_ended += 1
        log.warning("ended %d processes of the lost controller %s", len(processes), token)
    return n_ended


def _owner_alive(token: str) -> bool:
    pid, _, started = token.partition(":")
    try:
        return is_alive(ProcessIdentity(int(pid), float(started), boot_id()))
    except ValueError:
        return True  # not a token of ours: not ours to judge
