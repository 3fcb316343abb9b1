"""Logs of ranks as a notebook shows them."""

from __future__ import annotations

from pathlib import Path

from jupyter_ddl.client.group import MAX_SHOWN_BYTES, RankLogs, read_text


def test_output_of_a_cell_is_what_lies_between_its_bytes(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_text("before|the cell|after")
    assert read_text(log, 7, 15) == "the cell"


def test_a_log_that_does_not_exist_yet_is_empty(tmp_path: Path) -> None:
    assert read_text(tmp_path / "rank-0.log", 0) == ""


def test_the_middle_of_a_long_output_is_left_out_and_told(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_text("a" * MAX_SHOWN_BYTES + "b" * MAX_SHOWN_BYTES)
    shown = read_text(log, 0)
    assert shown.startswith("a" * 100)
    assert shown.endswith("b" * 100)
    assert f"{MAX_SHOWN_BYTES:,} bytes left out, all of it is in {log}" in shown
    assert len(shown) < MAX_SHOWN_BYTES + 1000


def test_a_log_is_told_again_only_when_it_has_grown(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_text("old|")
    beside = tmp_path / "current.json"
    logs = RankLogs({0: (log, 4)}, beside)
    assert logs.poll() is None
    log.write_text("old|new")
    assert logs.poll() == {0: "new"}
    assert logs.poll() is None
    beside.write_text("a figure")
    assert logs.poll() == {0: "new"}
    assert logs.poll() is None


def test_a_character_that_is_cut_in_two_breaks_nothing(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_bytes("ä".encode()[:1])
    assert read_text(log, 0) == "�"
