"""``python -m jupyter_ddl.controller``: one detached process per cluster.

Reads a :class:`ClusterSpec` as JSON from its standard input and tells its phases as JSON lines on
its standard output until it is ready; everything after that goes through its socket.

``python -m jupyter_ddl.controller FOLDER PORT``: one that no client of its host has started.  The
folder has the spec, and the keys of the port at which it lets mirrors in.
"""

from __future__ import annotations

import sys

from jupyter_ddl.controller.process import Post, main

if __name__ == "__main__":
    main(Post.of(sys.argv[1:]))
