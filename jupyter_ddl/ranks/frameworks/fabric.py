"""Fabric: what ``log`` and ``log_dict`` are given; the loop is the user's own."""

from __future__ import annotations

import functools
from typing import Any

from jupyter_ddl.ranks.frameworks.loops import telling

__all__ = ["attach"]

_NAME = "fabric"


def attach(module: Any) -> None:
    """Have every ``Fabric`` report what it logs."""
    fabric = module.Fabric
    make, log_dict = fabric.__init__, fabric.log_dict

    @functools.wraps(make)
    def init(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        telling(_NAME, lambda loop: loop.spans("Fabric", self.world_size, "needs devices={n}"))

    @functools.wraps(log_dict)
    def log_too(self: Any, metrics: Any, step: Any = None) -> None:
        log_dict(self, metrics, step)
        telling(_NAME, lambda loop: loop.report(metrics, step))

    fabric.__init__, fabric.log_dict = init, log_too
