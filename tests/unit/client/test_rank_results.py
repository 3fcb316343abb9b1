"""What is raised in the notebook when a cell of a persistent group has failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.client.rank_results import RankResults
from jupyter_ddl.errors import RankFailedError
from jupyter_ddl.protocol.cells import CellDone, CellResult
from jupyter_ddl.protocol.events import Failure


def failed(type_name: str, message: str) -> RankResults:
    failure = Failure("user_code", type_name, message, "", 2)
    done = CellDone(0, 1, "failed", 0.1, 0, 0, failure=failure)
    return RankResults(CellResult("g", 1, (done,)), {}, Path())


def test_a_name_that_only_the_notebook_has_is_told_with_what_sends_it() -> None:
    with pytest.raises(RankFailedError) as raised:
        failed("NameError", "name 'scale' is not defined").raise_for_failure({"scale": 3})
    assert str(raised.value) == (
        "rank 0: NameError: name 'scale' is not defined at line 2 of the cell; the notebook has "
        "'scale': --push scale sends it first [DDL-8004]"
    )


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
