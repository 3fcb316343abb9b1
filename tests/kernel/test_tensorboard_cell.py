"""``--tensorboard`` in a notebook, up to TensorBoard's own page."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from pathlib import Path

import pytest

from tests.kernel.cells import QUICK
from tests.live_kernel import LiveKernel
from tests.until import until

pytest.importorskip("tensorboard")
pytestmark = pytest.mark.kernel


def runs_served(port: int) -> list[str]:
    with urllib.request.urlopen(f"http://localhost:{port}/data/runs", timeout=10) as reply:
        found: list[str] = json.loads(reply.read())
    return found


def test_the_line_that_a_cell_prints_opens_its_curves(
    attached_kernel: LiveKernel, tmp_path: Path
) -> None:
    kernel = attached_kernel
    line = "%%distribute search --metric val_acc --trials 2 --tensorboard\n"
    out = kernel.run(line + QUICK, timeout_s=60).check()
    printed = [each.removeprefix("Curves:").strip() for each in out.text.splitlines()]
    lines = [each for each in printed if each.startswith("%")]
    directory = kernel.value("str(_run.directory / 'tensorboard')").strip("'")
    assert lines == ["%load_ext tensorboard", f"%tensorboard --logdir {directory}"]

    # TensorBoard notes what it has started in the directory for temporary files.
    kernel.run(f"%env TMPDIR={tmp_path}\nimport tempfile\ntempfile.tempdir = None").check()
    kernel.run(lines[0]).check()
    kernel.run(f"{lines[1]} --port 0", timeout_s=90).check()
    started = kernel.value(
        "[(m.pid, m.port) for m in __import__('tensorboard.manager').manager.get_all()]"
    )
    (pid, port), *others = eval(started)
    try:
        assert others == []
        wanted = {".", "trial-0000", "trial-0001"}
        until(lambda: wanted <= set(runs_served(port)), 30.0, "the runs on the page")
    finally:
        os.kill(pid, signal.SIGTERM)
