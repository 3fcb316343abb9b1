"""A controller's log has a bound; whoever writes to it goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_ddl.controller import process


def test_a_large_log_is_begun_anew_and_its_end_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MAX_LOG_BYTES", 1000)
    monkeypatch.setattr(process, "KEPT_LOG_BYTES", 100)
    path = tmp_path / "local.log"
    process.keep_log_small(path)
    assert not path.exists()
    writer = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(writer, b"x" * 990 + b"last\n")
    process.keep_log_small(path)
    assert path.stat().st_size == 995
    os.write(writer, b"now it is too much\n")
    process.keep_log_small(path)
    os.write(writer, b"and on\n")
    os.close(writer)
    assert path.read_bytes() == b"and on\n"
    kept = path.with_suffix(".log.1")
    assert kept.read_bytes().endswith(b"xlast\nnow it is too much\n")
    assert kept.stat().st_size == 100
    assert kept.stat().st_mode & 0o777 == 0o600
