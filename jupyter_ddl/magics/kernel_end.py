"""Knows when this kernel is being ended, so that its end is not taken for a wish to stop a run.

Who restarts or shuts down a kernel interrupts it first, and asks it to leave a moment later.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["is_kernel_ending", "watch_kernel_end"]

_PATIENCE_S = 0.5
"""From the interrupt to the request: milliseconds, unless the machine is busy."""

_ending = threading.Event()


def watch_kernel_end(ipython: Any) -> None:
    """Listen to requests to shut down; without effect outside a kernel, and the second time."""
    kernel = getattr(ipython, "kernel", None)
    handlers: dict[str, Callable[..., Awaitable[None]]] = getattr(kernel, "control_handlers", {})
    handler = handlers.get("shutdown_request")
    if handler is None or getattr(handler, "tells_jupyter_ddl", False):
        return

    async def listening(*args: Any) -> None:
        _ending.set()
        await handler(*args)

    listening.tells_jupyter_ddl = True  # type: ignore[attr-defined]
    handlers["shutdown_request"] = listening


def is_kernel_ending() -> bool:
    """Whether an interrupt that has just come is the beginning of the kernel's end.

    Raises
    ------
    KeyboardInterrupt
        Another interrupt came meanwhile.
    """
    return _ending.wait(_PATIENCE_S)
