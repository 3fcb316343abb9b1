"""Logs within their budget: what is cut, what is kept, what is read of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from jupyter_ddl.errors import OptionError
from jupyter_ddl.store.log_space import bound_logs, log_budget, read_span, water_level

pytestmark = pytest.mark.usefixtures("holes")
MIB = 1 << 20


def flood(path: Path, n_bytes: int, letter: str = "x") -> int:
    """Numbered lines of 64 bytes, as a rank would append them; the file's size."""
    with path.open("ab") as file:
        at = file.tell() // 64
        lines = range(at, at + n_bytes // 64)
        file.write("".join(f"{n:08d} {letter * 54}\n" for n in lines).encode())
        return file.tell()


def held(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir())


def test_within_the_budget_nothing_is_touched(tmp_path: Path) -> None:
    flood(tmp_path / "a.log", MIB)
    assert bound_logs(tmp_path, 2 * MIB) == 0
    assert bound_logs(tmp_path / "none", 0) == 0
    assert b"\0" not in (tmp_path / "a.log").read_bytes()


def test_the_longest_are_cut_in_the_middle_and_keep_their_positions(tmp_path: Path) -> None:
    long, short = tmp_path / "long.log", tmp_path / "short.log"
    size, n_short = flood(long, 16 * MIB), flood(short, MIB // 4)
    assert bound_logs(tmp_path, 4 * MIB) > 12 * MIB
    assert held(tmp_path) <= 4 * MIB
    assert (long.stat().st_size, short.stat().st_size) == (size, n_short)
    assert b"\0" not in short.read_bytes()
    kept = read_span(long, 0).decode()
    first, told, last = kept.partition("\n… ")[0], kept.count("JUPYTER_DDL_LOG_BYTES"), kept[-64:]
    assert (first[:8], told, last[:8]) == ("00000000", 1, f"{size // 64 - 1:08d}")
    assert "MiB of output were not kept here: the logs of a run may take 4 MiB" in kept
    assert "\0" not in kept
    assert read_span(long, size - 640, size - 576).decode()[:8] == f"{size // 64 - 10:08d}"


def test_what_is_printed_on_is_cut_again_and_told_once(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    for _ in range(5):
        size = flood(path, 4 * MIB)
        bound_logs(tmp_path, 2 * MIB)
        assert held(tmp_path) <= 2 * MIB
    kept = read_span(path, 0).decode()
    assert kept.count("not kept") == 1
    assert kept.endswith(f"{size // 64 - 1:08d} {'x' * 54}\n")


def test_an_output_that_was_cut_as_a_whole_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    flood(path, 16 * MIB)
    bound_logs(tmp_path, 2 * MIB)
    assert read_span(path, 8 * MIB, 8 * MIB + 64).decode() == "… 64 B of output were not kept …\n"
    assert read_span(path, 0, 64).decode()[:8] == "00000000"


def test_an_output_that_ends_or_begins_beside_the_line_about_the_cut_has_no_zeros(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.log"
    flood(path, 16 * MIB)
    bound_logs(tmp_path, 2 * MIB)
    told = path.read_bytes().index("… ".encode()) + 1024  # zeros, up to the end of this block
    before = read_span(path, told - 2048, told).decode()
    assert before.endswith("(JUPYTER_DDL_LOG_BYTES) …\n")
    for n_bytes, text in ((64, "64 B"), (8192, "8 KiB")):
        found = read_span(path, told, told + n_bytes).decode()
        assert found == f"… {text} of output were not kept …\n"
    found = read_span(path, told).decode()
    assert found.startswith("… 14")
    assert "MiB of output were not kept …\n" in found[:40]


def test_bytes_that_are_zero_and_were_printed_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"a\0\0b\0")
    assert read_span(path, 0) == b"a\0\0b\0"
    assert read_span(path, 1, 3) == b"\0\0"
    assert read_span(path, 9) == b""


def test_a_directory_that_can_t_be_read_now_is_not_over_its_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flood(tmp_path / "a.log", 2 * MIB)

    def refused(_path: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as without_files:
        without_files.setattr("os.scandir", refused)
        assert bound_logs(tmp_path, MIB) == 0
    assert bound_logs(tmp_path, MIB) > 0


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    folder, other = tmp_path / "logs", tmp_path / "other"
    folder.mkdir()
    flood(other, 4 * MIB)
    (folder / "a.log").symlink_to(other)
    assert bound_logs(folder, MIB) == 0
    assert b"\0" not in other.read_bytes()


def test_room_is_shared_by_those_that_need_it() -> None:
    assert water_level([1, 50, 70], 81) == 40
    assert water_level([10, 10], 100) == 80
    assert water_level([5, 5, 5], 9) == 3
    assert water_level([], 9) == 9
    sizes = [3, 9, 4, 100, 7]
    assert all(sum(min(s, water_level(sizes, room)) for s in sizes) <= room for room in range(200))


def test_the_budget_is_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert log_budget() == 1 << 30
    monkeypatch.setenv("JUPYTER_DDL_LOG_BYTES", "20MB")
    assert log_budget() == 20 * 10**6
    monkeypatch.setenv("JUPYTER_DDL_LOG_BYTES", "much")
    with pytest.raises(OptionError, match="JUPYTER_DDL_LOG_BYTES: 'much' is not a size"):
        log_budget()


def test_who_prints_goes_on_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    size = flood(path, 4 * MIB)
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    bound_logs(tmp_path, MIB)
    os.write(file, b"the end\n")
    os.close(file)
    assert read_span(path, size) == b"the end\n"
