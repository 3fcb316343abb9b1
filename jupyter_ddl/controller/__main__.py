"""``python -m jupyter_ddl.controller``: one detached process per cluster.

Reads a :class:`ClusterSpec` as JSON from its standard input and tells its phases as JSON lines on
its standard output until it is ready; everything after that goes through its socket.
"""

from __future__ import annotations

from jupyter_ddl.controller.process import main

if __name__ == "__main__":
    main()
