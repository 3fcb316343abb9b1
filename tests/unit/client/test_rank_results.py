"""What is raised in the notebook when a cell of a persistent group has failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.client.rank_results import RankResults
from jupyter_ddl.errors import RankFailedError
from jupyter_ddl.protocol.cells import CellDone, CellResult
from jupyter_ddl.protocol.events import LAST_LINES, Failure


def failed(type_name: str, message: str, traceback: str = "") -> RankResults:
    failure = Failure("exception", type_name, message, traceback, 2)
    done = CellDone(0, 1, "failed", 0.1, 0, 0, failure=failure)
    return RankResults(CellResult("g", 1, (done,)), {}, Path())


def test_a_name_that_only_the_notebook_has_is_told_with_what_sends_it() -> None:
    with pytest.raises(RankFailedError) as raised:
        failed("NameError", "name 'scale' is not defined").raise_for_failure({"scale": 3})
    assert str(raised.value) == (
        "rank 0, at line 2 of the cell: NameError: name 'scale' is not defined; the notebook has "
        "'scale': --push scale sends it first [DDL-8004]"
    )


def test_output_that_people_see_anyway_does_not_stand_in_the_failure_as_well() -> None:
    traceback = f"SystemExit: 2\n{LAST_LINES}\nusage: cell [-h]\n"
    for shows_output, expected in ((False, traceback), (True, "SystemExit: 2\n")):
        with pytest.raises(RankFailedError) as raised:
            failed("SystemExit", "2", traceback).raise_for_failure(shows_output=shows_output)
        assert raised.value.traceback == expected


@pytest.mark.parametrize(
    ("type_name", "message"),
    [
        ("NameError", "name 'other' is not defined"),
        ("KeyError", "name 'scale' is not defined"),
        ("NameError", "free variable 'scale' referenced before assignment"),
    ],
)
def test_other_failures_are_told_as_they_are(type_name: str, message: str) -> None:
    with pytest.raises(RankFailedError) as raised:
        failed(type_name, message).raise_for_failure({"scale": 3})
    assert "push" not in str(raised.value)
