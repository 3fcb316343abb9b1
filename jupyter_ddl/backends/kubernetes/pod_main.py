"""The first process of a pod's container: Dask's command, which SIGTERM ends from the start.

Linux keeps from the first process of a container what it has no handler for, and Dask has one only
after a second or two of imports.  A pod that was deleted meanwhile would last for its whole grace:
as workers are that start over because their scheduler went before them.
"""

from __future__ import annotations

import os
import signal

__all__ = ["main"]

_EXIT = 128 + signal.SIGTERM


def main() -> None:
    """Act as ``dask`` on the command line does."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(_EXIT))
    from dask.__main__ import main as dask

    dask()


if __name__ == "__main__":
    main()
