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


def test_kernel_and_controller_killed_in_every_state_of_both_leave_nothing() -> None:
    """No process is left, and no file once another cluster has come and gone."""
    command = [sys.executable, "-m", "tests.soak.orphans", "--rounds", "35", "--seed", "3"]
    # How soon is a figure of a quiet machine.
    done = subprocess.run(
        [*command, "--longest-s", "120"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
