"""A short pass over everything that reads what others wrote; a long one is ``make fuzz``."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from jupyter_ddl.errors import ProtocolError
from jupyter_ddl.testing import fuzz

N_CASES = {"recording": 150, "ledger": 300, "lines": 400}
"""Of those that take milliseconds each; 1,000 of all others."""


@pytest.mark.parametrize("kind", sorted(fuzz.GENERATORS))
def test_only_errors_of_this_package_come_out_and_nothing_is_kept(
    kind: str, tmp_path: Path
) -> None:
    n_cases = N_CASES.get(kind, 1000)
    ends = fuzz.play(kind, range(n_cases), tmp_path)
    assert sum(ends.values()) == n_cases
    assert ends["read"] > 20  # what is always refused shows little
    if kind != "views":  # they are refused by a count, not by an error
        assert sum(ends.values()) - ends["read"] > 20


def test_what_breaks_the_rule_is_told_with_its_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bytes] = []

    def raising(rng: Random) -> None:
        if rng.random() < 0.1:
            raise KeyError("this is no error of the package")
        raise ProtocolError("this is one")

    def spinning(_: Random) -> None:
        while True:
            pass

    def hiding(rng: Random) -> None:
        try:
            spinning(rng)
        except Exception as error:
            raise ProtocolError("what it reads can't be read") from error

    def growing(rng: Random) -> None:
        kept.append(rng.randbytes(1000))

    monkeypatch.setattr(fuzz, "_CASE_S", 0.05)
    for case, told in (
        (raising, r"the case of seed \d+ let out KeyError"),
        (spinning, r"the case of seed 0 hung: no end within 0.05 s of CPU time"),
        (hiding, r"the case of seed 0 hung: no end within 0.05 s of CPU time"),
        (growing, r"cases that are read again keep [5-9]\d\d,\d\d\d bytes"),
    ):
        monkeypatch.setitem(fuzz.GENERATORS, "ours", lambda _, case=case: case)
        with pytest.raises(fuzz.FuzzError, match=told):
            fuzz.play("ours", range(600), tmp_path)
