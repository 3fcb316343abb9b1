"""Directories of runs are removed when nobody is at them any more."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from jupyter_ddl.errors import LedgerBusyError
from jupyter_ddl.ledger.removal import remove_directory
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import RunFinished
from jupyter_ddl.store.paths import LEDGER
from tests.unit.ledger.event_makers import started, submitted


def test_a_run_that_is_over_waits_for_who_is_still_at_its_files(tmp_path: Path) -> None:
    """A driver that closes, or a mirror that brings the last files: it told of the end before."""
    directory = tmp_path / "r1"
    directory.mkdir()
    with LedgerWriter.open(directory / LEDGER, create=True) as writer:
        writer.append([submitted(), started(), RunFinished(1009.0, "complete")])
        with pytest.raises(LedgerBusyError, match="run r1 is still active"):
            remove_directory(directory, 0.0)
        remover = threading.Thread(target=remove_directory, args=(directory,))
        remover.start()
        time.sleep(0.2)
        assert directory.exists()
    remover.join(10)
    assert not directory.exists()


def test_a_run_that_goes_on_is_refused_at_once(tmp_path: Path) -> None:
    directory = tmp_path / "r1"
    directory.mkdir()
    with LedgerWriter.open(directory / LEDGER, create=True) as writer:
        writer.append([submitted(), started()])
        with pytest.raises(LedgerBusyError, match="run r1 is still active"):
            remove_directory(directory, 3600.0)
    remove_directory(directory)
    assert not directory.exists()
