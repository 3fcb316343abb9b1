"""lightgbm: the evaluation of every round.  It saves nothing by itself."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

from jupyter_ddl.ranks.frameworks.loops import Loop, telling

__all__ = ["attach"]

_NAME = "lightgbm"
_BEFORE_EARLY_STOPPING = 20


def attach(module: Any) -> None:
    """Have ``train``, and the estimators that call it, report every round."""
    train = module.train
    signature = inspect.signature(train)
    assert "callbacks" in signature.parameters

    def report(environment: Any) -> None:
        values = {
            f"{each[0]}-{each[1]}": each[2] for each in environment.evaluation_result_list or ()
        }
        telling(_NAME, lambda loop: loop.report(values, environment.iteration))

    report.order = _BEFORE_EARLY_STOPPING  # type: ignore[attr-defined]

    @functools.wraps(train)
    def train_on(*args: Any, **options: Any) -> Any:
        given = signature.bind(*args, **options)

        def add(loop: Loop) -> None:
            given.arguments["callbacks"] = [*(given.arguments.get("callbacks") or ()), report]
            params = given.arguments["params"]
            n_machines = params.get("num_machines") or params.get("machines", "x").count(",") + 1
            loop.spans("lightgbm", int(n_machines), "needs machines= and num_machines={n}")

        telling(_NAME, add)
        return train(*given.args, **given.kwargs)

    for name in (_NAME, f"{_NAME}.engine", f"{_NAME}.sklearn"):
        if getattr(sys.modules.get(name), "train", None) is train:
            sys.modules[name].train = train_on  # type: ignore[attr-defined]
