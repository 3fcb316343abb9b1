"""What a run keeps of failures, and when it gives a trial up that others keep losing."""

from __future__ import annotations

import msgspec

from jupyter_ddl.events.messages import AttemptFinished, Failure
from jupyter_ddl.events.run_state import RunState

__all__ = ["MAX_UNMET", "kept_failure", "lost_too_often", "shortened"]

MAX_UNMET = 10
"""Rounds in a row whose ranks never met, until a ddp run is given up."""
_N_FULL_FAILURES = 20
_MAX_TRACEBACK = 4096
_MAX_MESSAGE = 1000
_SHORT_MESSAGE = 200


def kept_failure(state: RunState, failure: Failure) -> Failure:
    """The first failures in full, the others without traceback: thousands are often alike."""
    if state.n_failures_kept < _N_FULL_FAILURES:
        state.n_failures_kept += 1
        return msgspec.structs.replace(
            failure,
            message=shortened(failure.message, _MAX_MESSAGE),
            traceback=_ending(failure.traceback, _MAX_TRACEBACK),
        )
    message = shortened(failure.message, _SHORT_MESSAGE)
    return msgspec.structs.replace(failure, message=message, traceback="")


def lost_too_often(
    event: AttemptFinished, n_evictions: int, max_evictions: int, n_unmet: int
) -> Failure | None:
    """Why an evicted trial is given up; None: it is tried again.

    Parameters
    ----------
    n_evictions
        Losses of this trial, this one included.
    n_unmet
        Rounds in a row, this one included, whose ranks never met.
    """
    cause = "" if event.failure is None else f"; the last time: {event.failure.message}"
    if n_unmet >= MAX_UNMET:
        text = f"the ranks could not be brought together {n_unmet} times in a row{cause}"
    elif n_evictions > max_evictions:
        text = f"the trial lost its worker {n_evictions} times, the limit is {max_evictions}{cause}"
    else:
        return None
    kind = "crash" if event.failure is None else event.failure.kind
    return Failure(kind, "Evicted", shortened(text, _MAX_MESSAGE))


def shortened(text: str, limit: int) -> str:
    """The beginning of a text that is longer than ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _ending(text: str, limit: int) -> str:
    """The end of a traceback: the innermost frames and the message."""
    return text if len(text) <= limit else "…" + text[1 - limit :]
