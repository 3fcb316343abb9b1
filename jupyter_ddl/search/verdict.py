"""Whether a search is hopeless: its first trials all failed, for one reason."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_ddl.events.messages import Failure

__all__ = ["hopeless", "n_failures_to_stop"]


def n_failures_to_stop(max_parallel: int) -> int:
    """How many equal failures in a row from the start end a search."""
    return max(3, 2 * max_parallel)


def hopeless(n_succeeded: int, failures: Sequence[Failure], max_parallel: int) -> Failure | None:
    """The cause for which to stop the run now, or None to go on.

    Parameters
    ----------
    n_succeeded
        Trials that ended complete or pruned: one is reason enough to go on.
    failures
        Why trials failed for good, in the order in which they ended.  Only the first
        ``n_failures_to_stop(max_parallel)`` count.

    Returns
    -------
    Failure | None
        The first failure, when all of those have the same exception at the same line.
    """
    n_needed = n_failures_to_stop(max_parallel)
    if n_succeeded or len(failures) < n_needed:
        return None
    first = failures[0]
    cause = (first.type_name, first.line)
    if all((failures[i].type_name, failures[i].line) == cause for i in range(1, n_needed)):
        return first
    return None
