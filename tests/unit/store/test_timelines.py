"""Timelines in a home: what was kept is read, and what was not, or is none, is nothing."""

from __future__ import annotations

import os

import pytest

from jupyter_ddl.store import timelines
from jupyter_ddl.store.atomic import replacing
from jupyter_ddl.store.paths import home_dir
from jupyter_ddl.store.timelines import keep_timeline, read_timeline
from tests.leaks import Home


def test_what_was_kept_is_read_by_its_digest_as_long_as_it_is_whole(home: Home) -> None:
    digest = keep_timeline(b"some bytes")
    assert keep_timeline(b"some bytes") == digest
    assert read_timeline(digest) == b"some bytes"
    for none in ("", "0" * 64, f"../timelines/{digest}", digest.upper(), f"{digest}\n"):
        assert read_timeline(none) is None, none
    (home_dir() / "timelines" / digest).write_bytes(b"other bytes")
    assert read_timeline(digest) is None


def test_the_oldest_go_where_there_are_too_many(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timelines, "MAX_KEPT_BYTES", 25)
    digests = []
    for n in range(4):
        digests.append(keep_timeline(bytes([n]) * 10))
        os.utime(home_dir() / "timelines" / digests[-1], (n, n))
    kept = [digest for digest in digests if read_timeline(digest) is not None]
    assert kept == digests[-2:]
    # One that is too large by itself is played all the same.
    assert read_timeline(keep_timeline(b"x" * 99)) == b"x" * 99


def test_what_another_one_is_writing_is_left_to_him(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timelines, "MAX_KEPT_BYTES", 25)
    keep_timeline(b"some bytes")
    other = home_dir() / "timelines" / ("e" * 64)
    with replacing(other) as file:
        file.write(b"x" * 99)
        file.flush()
        assert read_timeline(keep_timeline(b"more bytes")) is not None
    assert other.read_bytes() == b"x" * 99
