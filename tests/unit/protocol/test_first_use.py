"""Types are used for the first time by many threads at once, and no process ends of it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import jupyter_ddl

_ROOT = Path(jupyter_ddl.__file__).parent
_THREADS = """
import sys, threading
import msgspec
from jupyter_ddl.protocol.reading import converted, from_json, from_msgpack

VALUE = {f"a{k}": [{f"f{j}": 1 for j in range(20)}] for k in range(10)}
DATA = {
    from_json: msgspec.json.encode(VALUE),
    from_msgpack: msgspec.msgpack.encode(VALUE),
    converted: VALUE,
}
reads = {read.__name__: read for read in DATA}[sys.argv[1]]
sys.setswitchinterval(1e-6)
for _ in range(30):
    fields = [(f"f{j}", int | None, None) for j in range(20)]
    inner = [msgspec.defstruct("Inner", fields) for _ in range(10)]
    kind = msgspec.defstruct("Outer", [(f"a{k}", list[inner[k]] | None, None) for k in range(10)])
    together = threading.Barrier(4)

    def read():
        together.wait()
        assert reads(DATA[reads], kind).a9[0].f19 == 1

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("alive")
"""


@pytest.mark.parametrize("read", ["from_json", "from_msgpack", "converted"])
def test_threads_that_read_a_type_for_the_first_time_at_once_go_on(read: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _THREADS, read],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")


def _asks_for_a_type(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    if not name.startswith("msgspec."):
        return False
    if name.endswith(".decode"):
        return len(call.args) > 1 or any(each.arg == "type" for each in call.keywords)
    return name.endswith((".Decoder", ".convert")) and bool(call.args or call.keywords)


def test_nobody_else_asks_msgspec_for_a_type() -> None:
    found = [
        f"{path.relative_to(_ROOT)}:{node.lineno}"
        for path in sorted(_ROOT.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and _asks_for_a_type(node)
    ]
    assert {each.split(":")[0] for each in found} == {"protocol/reading.py"}, found
