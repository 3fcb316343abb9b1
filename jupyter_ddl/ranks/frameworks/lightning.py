"""Lightning's ``Trainer``: what a module logs, and the checkpoints of the trainer."""

from __future__ import annotations

import functools
import inspect
import tempfile
from pathlib import Path
from typing import Any

from jupyter_ddl.ranks.frameworks.files import read_files, write_files
from jupyter_ddl.ranks.frameworks.loops import Loop, telling

__all__ = ["attach"]

_NAME = "lightning"
_TRAINER = "Lightning"


def attach(module: Any) -> None:
    """Have every ``Trainer`` made from now on report, and go on from a checkpoint."""
    trainer = module.Trainer
    make, fit, save = trainer.__init__, trainer.fit, trainer.save_checkpoint
    signature = inspect.signature(fit)
    assert "ckpt_path" in signature.parameters

    class Reports(module.Callback):  # type: ignore[misc]
        """Reads what was logged at the moments when it is new.

        ``callback_metrics`` keeps the values of a validation until the next one: those are
        reported when a validation ends, others behind steps and epochs.
        """

        def __init__(self) -> None:
            self._judged: set[str] = set()
            self._seen: dict[str, float] = {}

        def on_fit_start(self, trainer: Any, *_: Any) -> None:
            def see(loop: Loop) -> None:
                loop.spans(_TRAINER, trainer.world_size, "needs devices={n}")

            telling(_NAME, see)

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step % max(1, trainer.log_every_n_steps) == 0:
                telling(_NAME, lambda loop: self._report(loop, trainer, only_new=True))

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            telling(_NAME, lambda loop: self._report(loop, trainer))
            telling(_NAME, lambda loop: loop.compare(_TRAINER, module))

        def on_validation_end(self, trainer: Any, *_: Any) -> None:
            if not trainer.sanity_checking:
                telling(_NAME, lambda loop: self._report_judged(loop, trainer))

        def on_test_end(self, trainer: Any, *_: Any) -> None:
            telling(_NAME, lambda loop: self._report_judged(loop, trainer))

        def _report(self, loop: Loop, trainer: Any, *, only_new: bool = False) -> None:
            values = {
                name: float(value)
                for name, value in trainer.callback_metrics.items()
                if name not in self._judged
            }
            new = {name: each for name, each in values.items() if self._seen.get(name) != each}
            self._seen.update(values)
            if values if not only_new else new:
                told = new if only_new else values
                loop.report({**told, "epoch": trainer.current_epoch}, trainer.global_step)

        def _report_judged(self, loop: Loop, trainer: Any) -> None:
            metrics = trainer.callback_metrics
            self._judged |= metrics.keys() - self._seen.keys()
            values = {name: metrics[name] for name in metrics.keys() & self._judged}
            loop.report(values, trainer.global_step)

    @functools.wraps(make)
    def init(self: Any, *args: Any, **options: Any) -> None:
        def choose_folder(loop: Loop) -> None:
            side = loop.attempt.side_folder
            if side:  # else trials would choose the same names for their files
                folder = options.get("default_root_dir") or Path.cwd()
                options["default_root_dir"] = str(Path(folder) / side)

        telling(_NAME, choose_folder)
        make(self, *args, **options)
        # In front of what saves: a checkpoint stands behind the report of its step.
        telling(_NAME, lambda _: self.callbacks.insert(0, Reports()))

    @functools.wraps(fit)
    def fit_on(self: Any, *args: Any, **options: Any) -> Any:
        given = signature.bind(self, *args, **options)
        if given.arguments.get("ckpt_path") is not None:
            return fit(self, *args, **options)
        with tempfile.TemporaryDirectory() as folder:
            path = telling(_NAME, lambda loop: _resumed(loop, Path(folder)))
            if path is not None:
                given.arguments["ckpt_path"] = path
                if "weights_only" in signature.parameters:
                    # This run has written it itself, with whatever the module keeps.
                    given.arguments.setdefault("weights_only", False)
            return fit(*given.args, **given.kwargs)

    @functools.wraps(save)
    def save_too(self: Any, filepath: Any, weights_only: Any = None, *args: Any, **o: Any) -> None:
        save(self, filepath, weights_only, *args, **o)
        if not weights_only:
            telling(_NAME, lambda loop: _save(loop, Path(filepath), self.global_step))

    trainer.__init__, trainer.fit, trainer.save_checkpoint = init, fit_on, save_too


def _save(loop: Loop, path: Path, step: int) -> None:
    if not loop.saves or loop.attempt.rank != 0 or not path.is_file():
        return
    files = read_files(path)
    if files is None:
        loop.tell(f"{path} is larger than 4 GB: it stays there, and no attempt resumes it")
    else:
        loop.save(_NAME, step, {"files": files})


def _resumed(loop: Loop, folder: Path) -> str | None:
    state = loop.resumed(_NAME)
    if state is None:
        return None
    write_files(folder, state["files"])
    return str(folder / next(iter(state["files"])))
