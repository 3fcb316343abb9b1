"""Interrupts that wait for a moment in which it is known what they interrupt."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

__all__ = ["interrupts_kept"]


@contextlib.contextmanager
def interrupts_kept() -> Iterator[None]:
    """An interrupt that comes within this takes effect at its end.

    What is sent within it has been sent then, and who sent it has what is to be waited for.
    """
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or before is None or before == signal.SIG_IGN:
        yield  # there is none in this thread, or none that can be put back
        return
    kept: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: kept.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if kept and callable(before):
        before(signal.SIGINT, None)
    elif kept:
        raise KeyboardInterrupt
