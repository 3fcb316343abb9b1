"""A file is replaced as a whole or stays as it was."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from jupyter_ddl.store.atomic import replacing, write_whole


def test_a_reader_sees_the_former_content_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")
    with replacing(path) as file:
        file.write(b"new, but not all of it ")
        file.flush()
        assert path.read_bytes() == b"old"
        file.write(b"yet")
    assert path.read_bytes() == b"new, but not all of it yet"
    assert list(tmp_path.iterdir()) == [path]


def test_after_an_error_the_former_content_stands_and_nothing_lies_beside_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")

    def interrupted() -> None:
        with replacing(path) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_of_one_path_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with replacing(path) as first:
        with replacing(path) as second:
            first.write(b"first")
            second.write(b"2nd")
        assert path.read_bytes() == b"2nd"
    assert path.read_bytes() == b"first"


def test_a_file_is_private_unless_it_is_meant_for_others(tmp_path: Path) -> None:
    write_whole(tmp_path / "own", b"")
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "given", b"", mode=0o666)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"own": 0o600, "given": 0o640}


@pytest.mark.parametrize("is_synced", [True, False])
def test_what_is_to_survive_a_crash_is_on_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_synced: bool
) -> None:
    calls: list[str] = []
    sync, replace = os.fsync, Path.replace

    def fsync(fd: int) -> None:
        calls.append(f"sync {os.fstat(fd).st_size}")
        sync(fd)

    def renamed(path: Path, target: Path) -> Path:
        calls.append("name")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", renamed)
    with replacing(tmp_path / "file", is_synced=is_synced) as file:
        file.write(b"12345")
    assert calls == (["sync 5", "name"] if is_synced else ["name"])
