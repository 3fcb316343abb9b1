"""Blobs by content: whole or absent, one copy per host, private to whoever writes into one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from jupyter_ddl.errors import CapacityError
from jupyter_ddl.store import blobs as blobs_module
from jupyter_ddl.store.blobs import (
    LARGE_BYTES,
    BlobMissingError,
    copy_to_disk,
    digest_of,
    find_blob,
    keep_blobs,
    map_blob,
    put_blob,
    read_blob,
    trim_blobs,
)

LARGE = np.arange(LARGE_BYTES // 8 + 1).data.cast("B")


@pytest.fixture
def dirs(tmp_path: Path) -> tuple[Path, Path]:
    """Shared memory, and a disk."""
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    return memory, disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB, most of it taken."""
    disk = tmp_path / "small"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, timeout=10).returncode:
        pytest.skip("mounting a small disk is refused here")
    (disk / "ballast").write_bytes(bytes(40_000))
    yield disk
    subprocess.run(["umount", str(disk)], check=True, timeout=10)


def _forget() -> None:
    """Know as much as a process that has just begun."""
    blobs_module._intact.clear()


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
    told = r"storing a captured value of 80 bytes failed.*7 bytes free"
    with pytest.raises(CapacityError, match=told):
        put_blob(b"y" * 80, [small, gone])
    assert list(small.iterdir()) == []


def test_trimming_keeps_what_is_wanted_or_was_used_lately(tmp_path: Path) -> None:
    old, wanted, recent = (put_blob(text, [tmp_path]) for text in (b"old", b"wanted", b"recent"))
    for digest in (old, wanted):
        os.utime(tmp_path / digest, (0, time.time() - 100))
    freed = trim_blobs([tmp_path], frozenset({wanted}), older_than_s=50)
    assert freed == len(b"old")
    assert {path.name for path in tmp_path.iterdir()} == {wanted, recent}


def test_small_blobs_that_last_lie_on_disk_and_large_ones_in_memory(
    dirs: tuple[Path, Path],
) -> None:
    memory, disk = dirs
    small, large = digest_of(b"small"), digest_of(LARGE)
    put_blob(b"small", dirs)  # for a cell of a group: in memory alone, and not enough for a run
    keep_blobs([(small, b"small"), (large, LARGE)], dirs)
    assert (disk / small).exists()
    assert (memory / large).exists()
    assert not (disk / large).exists()


def test_each_content_is_written_and_synced_once(
    dirs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name.split("-")[0])
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    wanted = [(digest_of(data), data) for data in (b"one", b"two", b"three")]
    keep_blobs(wanted, dirs)
    assert synced == [".partial"] * 3 + ["disk"]  # the contents, then all names at once
    before = {path: path.stat().st_mtime_ns for path in dirs[1].iterdir()}
    keep_blobs(wanted, dirs)
    assert len(synced) == 4
    assert {path: path.stat().st_mtime_ns for path in dirs[1].iterdir()} == before


@pytest.mark.parametrize("data", [b"x" * 1000, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_blob_is_nobodys_and_makes_room_for_a_whole_one(
    dirs: tuple[Path, Path], data: bytes, damage: str
) -> None:
    _, disk = dirs
    digest = put_blob(data, (disk,))
    path = disk / digest
    whole = path.read_bytes()
    broken = {"flip": whole[:500] + b"?" + whole[501:], "cut": whole[:-1], "empty": b""}[damage]
    path.write_bytes(broken)
    with pytest.raises(BlobMissingError, match=digest):
        map_blob(digest, dirs)
    assert not path.exists()
    put_blob(data, (disk,))
    assert read_blob(digest, dirs) == whole


def test_a_whole_copy_serves_where_another_is_damaged(dirs: tuple[Path, Path]) -> None:
    memory, disk = dirs
    digest = put_blob(LARGE, dirs)
    copy_to_disk(digest, dirs, lambda: False)
    (memory / digest).write_bytes(b"no")
    assert find_blob(digest, dirs) == disk / digest


def test_a_large_blob_is_hashed_once_per_host_and_start(
    dirs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[Path] = []
    real = blobs_module._digest_of_file

    def digest_of_file(path: Path) -> str:
        hashed.append(path)
        return real(path)

    monkeypatch.setattr(blobs_module, "_digest_of_file", digest_of_file)
    digest = put_blob(LARGE, dirs)  # whoever wrote it knows
    put_blob(LARGE, dirs)
    _forget()
    map_blob(digest, dirs)
    map_blob(digest, dirs)
    assert hashed == []
    monkeypatch.setattr(blobs_module, "boot_id", lambda: "the next one")
    for _ in range(3):
        _forget()
        map_blob(digest, dirs)
    assert hashed == [dirs[0] / digest]


def test_ranks_share_what_one_of_them_has_found_out(dirs: tuple[Path, Path]) -> None:
    digest = put_blob(LARGE, dirs)
    (dirs[0] / f"{digest}.intact").unlink()
    check = "import sys, pathlib; from jupyter_ddl.store.blobs import find_blob; " + (
        "assert find_blob(sys.argv[2], [pathlib.Path(sys.argv[1])])"
    )
    subprocess.run([sys.executable, "-c", check, str(dirs[0]), digest], check=True, timeout=120)
    assert (dirs[0] / f"{digest}.intact").exists()


def test_a_copy_that_is_given_up_leaves_nothing(dirs: tuple[Path, Path]) -> None:
    digest = put_blob(LARGE, dirs)
    copy_to_disk(digest, dirs, lambda: True)
    assert list(dirs[1].iterdir()) == []


def test_a_full_disk_refuses_blobs_and_copies_and_keeps_nothing_of_them(
    dirs: tuple[Path, Path], small_disk: Path
) -> None:
    with pytest.raises(CapacityError, match=r"30,000 bytes failed.*No space left on device"):
        keep_blobs([(digest_of(b"y" * 30_000), b"y" * 30_000)], (dirs[0], small_disk))
    digest = put_blob(LARGE, dirs)
    with pytest.raises(CapacityError, match="No space left on device"):
        copy_to_disk(digest, (dirs[0], small_disk), lambda: False)
    assert [path.name for path in small_disk.iterdir()] == ["ballast"]
    (small_disk / "ballast").unlink()
    keep_blobs([(digest_of(b"y" * 30_000), b"y" * 30_000)], (dirs[0], small_disk))


def test_using_a_blob_again_keeps_it_from_being_trimmed_and_known_as_whole(
    dirs: tuple[Path, Path],
) -> None:
    digest = put_blob(LARGE, dirs)
    path = dirs[0] / digest
    changed_at = path.stat().st_mtime_ns - 100 * 10**9
    os.utime(path, ns=(0, changed_at))
    put_blob(LARGE, dirs)
    assert path.stat().st_mtime_ns == changed_at
    assert trim_blobs(dirs, frozenset(), older_than_s=50) == 0
    assert path.exists()
