"""The end of a process group within a test; needs torch."""

from __future__ import annotations

import gc
import time

__all__ = ["end_process_group"]

_PAUSE_S = 0.01


def end_process_group() -> None:
    """Destroy the default process group when gloo's threads are through with it.

    Right behind a collective one of them may still need the GIL, or have the last reference: torch
    then waits for it with the GIL, or it waits for itself and aborts the process.  Of loops of
    torch alone, one in some hundred ends so; nothing tells when a thread is through.
    """
    import torch.distributed as dist

    time.sleep(_PAUSE_S)  # without the GIL
    dist.destroy_process_group()
    gc.collect()  # a model in a circle of references would keep it, and what it listens at, on
