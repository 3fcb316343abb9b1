"""``python -m jupyter_ddl.tensorboard RUN PARENT``: follow a run; ends with its parent process."""

from __future__ import annotations

import logging
import signal
import sys
import threading

from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.tensorboard.writing import follow_run
from jupyter_ddl.worker.deathsig import bind_to_parent


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
