"""Blobs by content: whole or absent, one copy per host, private to whoever writes into one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from jupyter_ddl.errors import CapacityError
from jupyter_ddl.store.blobs import (
    BlobMissingError,
    digest_of,
    find_blob,
    map_blob,
    put_blob,
    read_blob,
    trim_blobs,
)


def test_equal_bytes_are_stored_once(tmp_path: Path) -> None:
    digest = put_blob(b"hello", [tmp_path])
    assert digest == digest_of(b"hello") == put_blob(b"hello", [tmp_path])
    assert [path.name for path in tmp_path.iterdir()] == [digest]
    assert read_blob(digest, [tmp_path]) == b"hello"
    assert read_blob(put_blob(b"", [tmp_path]), [tmp_path]) == b""


def test_a_blob_is_found_in_any_directory_and_missed_in_none(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    digest = put_blob(b"x", [two])
    assert find_blob(digest, [one, two]) == two / digest
    with pytest.raises(BlobMissingError, match=digest):
        map_blob(digest, [one])


def test_who_writes_into_a_blob_changes_only_its_own_pages(tmp_path: Path) -> None:
    data = np.arange(10_000)
    digest = put_blob(data.data, [tmp_path])
    mine = np.frombuffer(map_blob(digest, [tmp_path]), dtype=data.dtype)
    theirs = np.frombuffer(map_blob(digest, [tmp_path]), dtype=data.dtype)
    mine[:] = -1
    assert (theirs == data).all()
    assert read_blob(digest, [tmp_path]) == data.tobytes()


def test_a_directory_without_room_is_passed_over_and_the_last_one_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.mkdir()
    large.mkdir()
    free = {small: 100, large: 10_000}
    monkeypatch.setattr("jupyter_ddl.store.blobs._free_bytes", free.__getitem__)
    digest = put_blob(b"x" * 80, [small, large])
    assert find_blob(digest, [small, large]) == large / digest
    gone = tmp_path / "gone"
    free[gone] = 7
    with pytest.raises(CapacityError, match=r"of 80 bytes failed.*7 bytes free"):
        put_blob(b"y" * 80, [small, gone])
    assert list(small.iterdir()) == []


def test_trimming_keeps_what_is_wanted_or_was_used_lately(tmp_path: Path) -> None:
    old, wanted, recent = (put_blob(text, [tmp_path]) for text in (b"old", b"wanted", b"recent"))
    for digest in (old, wanted):
        os.utime(tmp_path / digest, (0, time.time() - 100))
    freed = trim_blobs([tmp_path], frozenset({wanted}), older_than_s=50)
    assert freed == len(b"old")
    assert {path.name for path in tmp_path.iterdir()} == {wanted, recent}
