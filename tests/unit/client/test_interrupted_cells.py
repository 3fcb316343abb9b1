"""An interrupt of a wait for a persistent group's cell is passed on, wherever it comes."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from jupyter_ddl.client.group import CellWait
from jupyter_ddl.client.interrupts import interrupts_kept
from jupyter_ddl.protocol.cells import CellResult
from jupyter_ddl.protocol.requests import CloseGroup, ExecuteCell, InterruptCell, PollCell

_RESULT = CellResult("g", 1, ())


class Session:
    """A controller whose cell goes on until it is interrupted."""

    def __init__(self) -> None:
        self.future: Future[Any] = Future()
        self.asked: list[type] = []

    def begin(self, _cluster: str, _request: ExecuteCell) -> Future[Any]:
        return self.future

    def ask(self, _cluster: str, body: InterruptCell | CloseGroup | PollCell, _s: float) -> Any:
        self.asked.append(type(body))
        if isinstance(body, InterruptCell):
            self.future.set_result(_RESULT)
        return None


class Logs:
    def poll(self) -> dict[int, str]:
        return {0: "begun"}


@contextmanager
def interrupted_at(line: int) -> Iterator[list[int]]:
    """`KeyboardInterrupt` at a line of the wait, counted from the first look at the cell."""
    seen: list[int] = []

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        if frame.f_code.co_filename != sys.modules[CellWait.__module__].__file__:
            return None
        if event == "line" and len(seen) < line and (seen or frame.f_code.co_name == "_tell"):
            seen.append(len(seen) + 1)
            if len(seen) == line:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield seen
    finally:
        sys.settrace(before)


class SlowSession(Session):
    """An interrupt comes when the cell was sent, before anybody waits for it."""

    def begin(self, cluster: str, request: ExecuteCell) -> Future[Any]:
        found = super().begin(cluster, request)
        signal.raise_signal(signal.SIGINT)
        return found


def test_an_interrupt_of_a_cell_that_was_just_sent_is_passed_on() -> None:
    request: Any = ExecuteCell("g", None)  # type: ignore[arg-type]
    session = SlowSession()
    wait = CellWait(session, "c", request, Logs())  # type: ignore[arg-type]
    assert wait.run(None) is _RESULT
    assert session.asked == [InterruptCell]


def test_kept_interrupts_take_effect_as_they_would_have() -> None:
    with pytest.raises(KeyboardInterrupt), interrupts_kept():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        with interrupts_kept():
            signal.raise_signal(signal.SIGINT)
            assert seen == []
        assert seen == [signal.SIGINT]
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with interrupts_kept():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_of_a_cell_is_passed_on_wherever_it_comes() -> None:
    request: Any = ExecuteCell("g", None)  # type: ignore[arg-type]
    for line in range(1, 30):
        session = Session()
        wait = CellWait(session, "c", request, Logs())  # type: ignore[arg-type]
        with interrupted_at(line) as seen:
            try:
                assert wait.run(lambda _texts, _done: None) is _RESULT
            except KeyboardInterrupt:
                pytest.fail(f"the interrupt at line {line} of the wait was not passed on")
        assert seen[-1] == line
        assert session.asked.count(InterruptCell) == 1
