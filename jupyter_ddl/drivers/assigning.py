"""What the driver of a fit shares with its controller's other runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jupyter_ddl.driving.assignments import RunContext as _RunContext
from jupyter_ddl.driving.assignments import make_assignment
from jupyter_ddl.driving.dispatcher import Dispatcher

__all__ = ["RunContext", "make_assignment"]


@dataclass(frozen=True, kw_only=True)
class RunContext(_RunContext):
    """The context of every run, and the way to the workers."""

    dispatcher: Dispatcher
    wake_all: Callable[[], None]
    """Tells every run that a slot may have become free."""
