"""Text as a terminal shows it."""

from __future__ import annotations

import io

import pytest
from tqdm.std import tqdm

from jupyter_ddl.store.printed import bars_of, settled


@pytest.mark.parametrize(
    ("printed", "seen"),
    [
        ("a\nb\n", "a\nb\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("10%\r20%\rend\n", "end\n"),
        ("long line\rshort\n", "shortline\n"),
        ("gone    \r        \rnext", "next"),
        ("one\ntwo\n\x1b[A\x1b[Aup\rUP\n", "UPe\ntwo\n"),
        ("\x1b[31mred\x1b[0m\rdone", "done"),
        ("rest of it\r\x1b[Kclear", "clear"),
        ("\x1b[31mred\x1b[0m stays\n", "\x1b[31mred\x1b[0m stays\n"),
    ],
)
def test_what_was_written_over_is_gone(printed: str, seen: str) -> None:
    assert settled(printed) == seen


def test_bars_below_each_other_are_as_many_lines_as_there_are_bars() -> None:
    file = io.StringIO()
    for _ in tqdm(range(30), file=file, mininterval=0, desc="epochs"):
        for _ in tqdm(range(20), file=file, mininterval=0, desc="batches", leave=False, position=1):
            pass
    raw = file.getvalue()
    assert raw.count("\n") > 30

    lines = [line for line in settled(raw).split("\n") if line]

    assert len(lines) == 1
    assert lines[0].startswith("epochs: 100%")


def test_bars_are_told_from_other_text() -> None:
    assert bars_of("hello\n") == ""
    assert bars_of("hello\n 10%\r 20%") == " 20%"
    assert bars_of(" 10%\r 20%\nthen a line\n") == ""
    assert bars_of("hello\n\r 1/2\r 2/2\n\r 3/9\r 4/9\x1b[A") == " 2/2\n 4/9"
