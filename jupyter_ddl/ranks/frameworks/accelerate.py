"""accelerate: what ``log`` is given; the loop is the user's own."""

from __future__ import annotations

import functools
from typing import Any

from jupyter_ddl.ranks.frameworks.loops import telling

__all__ = ["attach"]

_NAME = "accelerate"


def attach(module: Any) -> None:
    """Have every ``Accelerator`` report what it logs, with trackers and without."""
    accelerator = module.Accelerator
    make, log = accelerator.__init__, accelerator.log

    @functools.wraps(make)
    def init(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        telling(_NAME, lambda loop: loop.spans("accelerate", self.num_processes, _WAY_OUT))

    @functools.wraps(log)
    def log_too(self: Any, values: Any, step: Any = None, *args: Any, **options: Any) -> None:
        log(self, values, step, *args, **options)
        telling(_NAME, lambda loop: loop.report(values, step))

    accelerator.__init__, accelerator.log = init, log_too


_WAY_OUT = "needs Accelerator(cpu=True) without GPUs (ACCELERATE_USE_CPU=true)"
