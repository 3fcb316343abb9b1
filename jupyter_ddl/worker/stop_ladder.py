"""The stop ladder: SIGTERM, a time of grace, SIGKILL of the whole process group."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from jupyter_ddl.worker.rank_process import RankProcess

__all__ = ["descend"]

_POLL_S = 0.01


async def descend(rank: RankProcess, is_running: Callable[[], bool], grace_s: float) -> None:
    """End what a rank is executing; returns when it has ended, or the kernel can't end it.

    Parameters
    ----------
    is_running : callable
        Whether what is to end still runs.  The rank itself may go on with its next trial.
    grace_s : float
        Seconds between SIGTERM and SIGKILL.
    """
    # A stopped process acts on no signal but these two.
    rank.signal_group(signal.SIGCONT, signal.SIGTERM)
    deadline_s = asyncio.get_running_loop().time() + grace_s
    while is_running() and not rank.ended.done():
        if asyncio.get_running_loop().time() >= deadline_s:
            rank.kill("stop", f"it did not stop within {grace_s:.0f} s of SIGTERM")
            # Done at the latest when the rank is given up as unkillable.
            await asyncio.wait({rank.ended})
            return
        await asyncio.sleep(_POLL_S)
