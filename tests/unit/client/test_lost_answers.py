"""The answer to a cell of a group that is lost on its way: what is told of the group."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_ddl.client.group import CellWait
from jupyter_ddl.errors import ControllerError, GroupLostError, JupyterDDLError
from jupyter_ddl.protocol.replies import CellResult, Result
from jupyter_ddl.protocol.requests import Body


class Session:
    """A connection that breaks while a cell is executed."""

    def __init__(self, answer: Result | JupyterDDLError) -> None:
        self._answer = answer

    def begin(self, *_: Any) -> Future[Result]:
        broken: Future[Result] = Future()
        broken.set_exception(ControllerError("whether it was done is not known"))
        return broken

    def ask(self, _: str, __: Body, ___: float = 0.0) -> Result:
        if isinstance(self._answer, JupyterDDLError):
            raise self._answer
        return self._answer


def _waited(answer: Result | JupyterDDLError) -> None:
    request: Any = SimpleNamespace(group_id="g1")
    session: Any = Session(answer)
    logs: Any = None
    CellWait(session, "far", request, logs).run(None)


def test_a_group_that_lives_on_is_not_said_to_be_lost() -> None:
    with pytest.raises(ControllerError, match="g1 lives on with its variables") as caught:
        _waited(CellResult("g1", 1, ()))
    assert not isinstance(caught.value, GroupLostError)


def test_one_that_has_ended_with_its_cluster_is() -> None:
    with pytest.raises(GroupLostError, match="its variables are gone"):
        _waited(ControllerError("nobody answers"))
