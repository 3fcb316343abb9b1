"""The end of a process group within a test; needs torch."""

from __future__ import annotations

import gc
from typing import Any

__all__ = ["end_process_group"]

_latest: list[Any] = []


def end_process_group() -> None:
    """Destroy the default process group, and let go of it when it has been idle for long.

    A thread of gloo may have the last reference right behind a collective, and then waits for
    itself, or aborts the process: of loops of torch alone, one in some hundred.
    """
    import torch.distributed as dist

    _latest[:] = [dist.group.WORLD]
    dist.destroy_process_group()
    gc.collect()  # a model in a circle of references would keep it, and what it listens at, on
