"""How far locks reach, by what is mounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.store import mounts
from jupyter_ddl.store.mounts import file_system_of


@pytest.mark.parametrize(
    ("kind", "options", "is_shared", "reach_all"),
    [
        ("ext4", "rw,relatime", False, True),
        ("tmpfs", "rw", False, True),
        ("overlay", "rw,lowerdir=/a", False, True),
        ("fuseblk", "rw", False, True),
        ("nfs4", "rw,vers=4.2,local_lock=none", True, True),
        ("nfs", "rw,vers=3,local_lock=none", True, True),
        ("nfs", "rw,vers=3,nolock,local_lock=all", True, False),
        ("nfs", "rw,vers=3,local_lock=flock", True, False),
        ("nfs", "rw,vers=3,local_lock=posix", True, True),
        ("lustre", "rw,flock,lazystatfs", True, True),
        ("lustre", "rw,localflock", True, False),
        ("lustre", "rw", True, False),
        ("ceph", "rw", True, True),
        ("gpfs", "rw", True, True),
        ("cifs", "rw", True, False),
        ("9p", "rw", True, False),
        ("fuse.sshfs", "rw", True, False),
        ("fuse.glusterfs", "rw", True, True),
    ],
)
def test_locks_reach_as_far_as_mount_and_options_say(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    options: str,
    is_shared: bool,
    reach_all: bool,
) -> None:
    table = tmp_path / "mounts"
    home = str(tmp_path / "a home").replace(" ", "\\040")
    table.write_text(
        f"/dev/sda / btrfs rw 0 0\nserver:/export {home} {kind} {options} 0 0\n"
        f"none {tmp_path}/a tmpfs rw 0 0\n"
    )
    monkeypatch.setattr(mounts, "_MOUNTS", table)
    found = file_system_of(tmp_path / "a home" / "not" / "yet")
    assert str(found) == f"{kind} at {tmp_path}/a home"
    assert (found.is_shared, found.locks_reach_all) == (is_shared, reach_all)
    assert file_system_of(tmp_path / "a homestead").kind == "btrfs"


def test_of_two_mounts_at_one_place_the_last_is_seen_and_links_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "there")
    table = tmp_path / "mounts"
    table.write_text(f"a {tmp_path}/there ext4 rw 0 0\nb {tmp_path}/there nfs4 rw 0 0\n")
    monkeypatch.setattr(mounts, "_MOUNTS", table)
    assert file_system_of(tmp_path / "link" / "x").kind == "nfs4"
    monkeypatch.setattr(mounts, "_MOUNTS", tmp_path / "none")
    assert file_system_of(tmp_path).kind == "unknown"


def test_this_host_tells_what_is_mounted() -> None:
    assert file_system_of(Path("/proc/self")).kind == "proc"
