"""``%load_ext jupyter_ddl`` in a fresh IPython."""

from __future__ import annotations

import sys
import time

from bench.harness import Goal, Line, Probe, Row, tell

_OURS = Probe("bench.rows.load_ext")
_KERNEL = Probe("bench.rows.load_ext", ("kernel",))

ROW = Row(
    name="load_ext",
    title="`%load_ext jupyter_ddl`",
    better="lower",
    repeats=9,
    note="IPython is up before the clock starts; a fresh process each time.",
    lines=(
        Line("in IPython", _OURS, "load_s", "s", Goal(0.3, "lower")),
        Line("after `import ipykernel, ipywidgets`, as in a kernel", _KERNEL, "load_s", "s"),
        Line("modules that it loads", _OURS, "n_modules", ""),
    ),
)


def measure(kernel: bool) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    if kernel:
        import ipywidgets  # noqa: F401 - loaded by most notebooks before

    shell = InteractiveShell.instance()
    n_before = len(sys.modules)
    started = time.perf_counter()
    shell.run_line_magic("load_ext", "jupyter_ddl")
    elapsed_s = time.perf_counter() - started
    if shell.find_line_magic("cluster") is None:
        raise RuntimeError("the extension was loaded, and %cluster is not there")
    tell({"load_s": elapsed_s, "n_modules": len(sys.modules) - n_before})


if __name__ == "__main__":
    measure(kernel="kernel" in sys.argv[1:])
