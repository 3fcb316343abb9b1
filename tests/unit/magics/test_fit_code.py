"""The code of a fit cell, which runs in the notebook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from jupyter_ddl.magics.fit_cell import _compiled


@pytest.fixture
def shell() -> Iterator[Any]:
    made = InteractiveShell()
    yield made
    made.history_manager.end_session()


def test_it_takes_from_the_future_what_the_notebook_has_taken(shell: Any) -> None:
    cell = "def f(x: int): ...\nf.__annotations__"
    for first, expected in (("", {"x": int}), ("from __future__ import annotations", {"x": "int"})):
        shell.run_cell(first)
        body, last = _compiled(shell, cell, 3)
        exec(body, shell.user_ns)
        assert eval(last, shell.user_ns) == expected
