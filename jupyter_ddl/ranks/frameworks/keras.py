"""Keras: the logs of every epoch, and the model's state where the cell saves models."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from jupyter_ddl.ranks.frameworks.loops import Loop, telling

__all__ = ["attach"]

_NAME = "keras"
_WAY_OUT = (
    "does not share fit() between ranks with {backend} below it; wrap the model in "
    "DistributedDataParallel, or use keras.distribution with JAX"
)


def attach(module: Any) -> None:
    """Have every ``fit`` report, and go on from a checkpoint."""
    model_class = module.Model
    fit = model_class.fit
    signature = inspect.signature(fit)
    assert {"callbacks", "initial_epoch"} <= signature.parameters.keys()
    savers = (module.callbacks.ModelCheckpoint, module.callbacks.BackupAndRestore)

    class Reports(module.callbacks.Callback):  # type: ignore[misc]
        """Hears every epoch; saves behind those callbacks that save."""

        def __init__(self, saves: bool, state: dict[str, Any] | None) -> None:
            super().__init__()
            self._saves = saves
            self._state = state

        def on_train_begin(self, logs: Any = None) -> None:
            if self._state is not None:
                telling(_NAME, lambda _: _restore(self.model, self._state))

            def see(loop: Loop) -> None:
                if module.distribution.distribution() is None:
                    way_out = _WAY_OUT.replace("{backend}", module.backend.backend())
                    loop.spans("Keras", 1, way_out)

            telling(_NAME, see)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            telling(_NAME, lambda loop: loop.report(logs or {}, epoch))
            if self._saves:
                telling(_NAME, lambda loop: loop.save(_NAME, epoch, _state(self.model, epoch)))

    @functools.wraps(fit)
    def fit_on(self: Any, *args: Any, **options: Any) -> Any:
        given = signature.bind(self, *args, **options)

        def add(loop: Loop) -> None:
            callbacks = given.arguments.get("callbacks")
            if isinstance(callbacks, module.callbacks.CallbackList):
                listed = callbacks.callbacks
            else:
                listed = [callbacks] if callable(getattr(callbacks, "set_model", None)) else None
                listed = [*(callbacks or ())] if listed is None else listed
                given.arguments["callbacks"] = listed
            state = None
            if not given.arguments.get("initial_epoch"):
                state = loop.resumed(_NAME)
            if state is not None:
                given.arguments["initial_epoch"] = int(state["epoch"]) + 1
            listed.append(Reports(any(isinstance(each, savers) for each in listed), state))

        telling(_NAME, add)
        return fit(*given.args, **given.kwargs)

    model_class.fit = fit_on


def _state(model: Any, epoch: int) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "weights": list(model.get_weights()),
        "optimizer": [each.numpy() for each in model.optimizer.variables],
    }


def _restore(model: Any, state: Any) -> None:
    model.set_weights(state["weights"])
    model.optimizer.build(model.trainable_variables)
    for variable, value in zip(model.optimizer.variables, state["optimizer"], strict=True):
        variable.assign(value)
