"""xgboost: the evaluation of every round, and its ``TrainingCheckPoint``."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

from jupyter_ddl.ranks.frameworks.loops import Loop, telling

__all__ = ["attach"]

_NAME = "xgboost"


def attach(module: Any) -> None:
    """Have ``train``, and the estimators that call it, report every round."""
    train = module.train
    signature = inspect.signature(train)
    assert {"callbacks", "xgb_model", "num_boost_round"} <= signature.parameters.keys()

    class Reports(module.callback.TrainingCallback):  # type: ignore[misc]
        """Hears every round."""

        def __init__(self, every: int) -> None:
            self._every = every
            self.n_before = 0
            """Rounds of the booster that the training goes on from: xgboost counts anew."""

        def before_training(self, model: Any) -> Any:
            telling(_NAME, lambda loop: _see(loop, module))
            return model

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            values = {
                f"{data}-{metric}": history[-1]
                for data, metrics in evals_log.items()
                for metric, history in metrics.items()
            }
            at = epoch + self.n_before
            telling(_NAME, lambda loop: loop.report(values, at))
            if self._every and (at + 1) % self._every == 0:
                telling(_NAME, lambda loop: _save(loop, model, at))
            return False

    @functools.wraps(train)
    def train_on(*args: Any, **options: Any) -> Any:
        given = signature.bind(*args, **options)

        def add(loop: Loop) -> None:
            callbacks = [*(given.arguments.get("callbacks") or ())]
            savers = [c for c in callbacks if isinstance(c, module.callback.TrainingCheckPoint)]
            every = min((getattr(each, "_iterations", 100) for each in savers), default=0)
            reports = Reports(every)
            given.arguments["callbacks"] = [*callbacks, reports]
            state = None if given.arguments.get("xgb_model") else loop.resumed(_NAME)
            if state is not None:
                booster = module.Booster(model_file=bytearray(state["model"].tobytes()))
                n_rounds = given.arguments.get(
                    "num_boost_round", signature.parameters["num_boost_round"].default
                )
                reports.n_before = booster.num_boosted_rounds()
                given.arguments["xgb_model"] = booster
                given.arguments["num_boost_round"] = max(0, n_rounds - reports.n_before)

        telling(_NAME, add)
        return train(*given.args, **given.kwargs)

    for name in (_NAME, f"{_NAME}.training", f"{_NAME}.sklearn"):
        if getattr(sys.modules.get(name), "train", None) is train:
            sys.modules[name].train = train_on  # type: ignore[attr-defined]


def _see(loop: Loop, module: Any) -> None:
    loop.spans(
        "xgboost",
        module.collective.get_world_size(),
        "needs a communicator (xgboost.collective), or one rank",
    )


def _save(loop: Loop, model: Any, step: int) -> None:
    import numpy

    if loop.saves and loop.attempt.rank == 0:
        raw = numpy.frombuffer(model.save_raw(), dtype=numpy.uint8)
        loop.save(_NAME, step, {"model": raw})
