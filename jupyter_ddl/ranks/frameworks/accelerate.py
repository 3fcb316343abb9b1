"""accelerate: what ``log`` is given; the loop is the user's own."""

from __future__ import annotations

import functools
from typing import Any

from jupyter_ddl.ranks.frameworks.loops import Loop, telling

__all__ = ["attach"]

_NAME = "accelerate"


def attach(module: Any) -> None:
    """Have every ``Accelerator`` report what it logs, with trackers and without."""
    accelerator = module.Accelerator
    make, log = accelerator.__init__, accelerator.log
    states = (module.AcceleratorState, module.GradientState)
    seen: list[Loop] = []

    def begin(loop: Loop) -> None:
        """Let no trial find the settings of the one before it in its process."""
        if seen and seen[0] is not loop:
            for state in states:
                state._reset_state()
        seen[:] = [loop]

    @functools.wraps(make)
    def init(self: Any, *args: Any, **options: Any) -> None:
        telling(_NAME, begin)
        make(self, *args, **options)
        telling(_NAME, lambda loop: loop.spans("accelerate", self.num_processes, _WAY_OUT))

    @functools.wraps(log)
    def log_too(self: Any, values: Any, step: Any = None, *args: Any, **options: Any) -> None:
        log(self, values, step, *args, **options)
        telling(_NAME, lambda loop: loop.report(values, step))

    accelerator.__init__, accelerator.log = init, log_too


_WAY_OUT = "needs Accelerator(cpu=True) without GPUs (ACCELERATE_USE_CPU=true)"
