"""``python -m jupyter_ddl.tracking.tensorboard RUN PARENT``: follow a run until its parent ends."""

from __future__ import annotations

import logging
import signal
import sys
import threading

from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.store.death_signal import bind_to_parent
from jupyter_ddl.tracking.tensorboard.writing import follow_run


def main() -> int:
    """Exit status: 0 when the run has ended."""
    logging.basicConfig(level=logging.INFO)
    run_id, parent = sys.argv[1:]
    bind_to_parent(int(parent))
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    try:
        follow_run(run_id, stopped)
    except JupyterDDLError as error:
        logging.getLogger(__name__).error("run %s: %s", run_id, error.message)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
