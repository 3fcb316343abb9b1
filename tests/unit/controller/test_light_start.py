"""Several processes may start a lost controller again at once; one of them gets its name."""

from __future__ import annotations

import subprocess
import sys

_WAITS = """
import sys
from jupyter_ddl.controller import process

class Waits(Exception):
    pass

def hold_name(*_):
    raise Waits(" ".join(name for name in ("distributed", "dask") if name in sys.modules))

process.hold_name = hold_name
process.main()
"""


def test_who_waits_for_the_name_has_not_imported_dask() -> None:
    spec = b'{"name": "a"}'
    done = subprocess.run(
        [sys.executable, "-c", _WAITS], input=spec, capture_output=True, timeout=120, check=False
    )
    assert done.stderr.decode().splitlines()[-1] == "Waits"
