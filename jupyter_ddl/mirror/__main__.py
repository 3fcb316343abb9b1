"""``python -m jupyter_ddl.mirror start|join|either``: one detached process per cluster.

Reads a :class:`ClusterSpec` as JSON from its standard input, and tells its phases on its standard
output, as a controller does.
"""

from __future__ import annotations

from jupyter_ddl.mirror.process import main

if __name__ == "__main__":
    main()
