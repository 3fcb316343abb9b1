"""The soak in small: what ``make soak`` does a thousand times."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1800)]


def test_two_dozen_kills_of_every_kind_break_no_promise() -> None:
    """No trial lost or doubled, nobody stuck or left over, no descriptor and no memory kept."""
    command = [sys.executable, "-m", "tests.soak", "--kills", "24", "--seed", "3"]
    # How soon is a figure of a quiet machine.
    done = subprocess.run([*command, "--p95-s", "inf"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
