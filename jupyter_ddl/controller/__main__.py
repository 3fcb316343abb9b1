"""``python -m jupyter_ddl.controller``: one detached process per cluster.

Reads a :class:`ClusterSpec` as JSON from its standard input and tells its phases as JSON lines on
its standard output until it is ready; everything after that goes through its socket.
"""

from __future__ import annotations

import gc

# Nothing that is imported is garbage, and looking for some at each start and end takes 0.2 s.
gc.disable()
from jupyter_ddl.controller.process import main  # noqa: E402

gc.freeze()
gc.enable()

if __name__ == "__main__":
    main()
