"""Hugging Face's ``Trainer``: what it logs, evaluates and saves."""

from __future__ import annotations

import contextlib
import functools
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_ddl.ranks.frameworks.files import read_files, write_files
from jupyter_ddl.ranks.frameworks.loops import Loop, telling

__all__ = ["attach", "without_speed"]

_NAME = "transformers"
_TRAINER = "Hugging Face's Trainer"


def attach(module: Any) -> None:
    """Have every ``Trainer`` made from now on report, and go on from a checkpoint."""
    trainer = module.Trainer
    base = module.TrainerCallback
    folder_prefix = module.PREFIX_CHECKPOINT_DIR
    make, train = trainer.__init__, trainer.train

    class Reports(base):  # type: ignore[misc, valid-type]
        """Hears all that a Trainer does."""

        def on_train_begin(self, args: Any, *_: Any, **__: Any) -> None:
            telling(_NAME, lambda loop: loop.spans(_TRAINER, args.world_size, _WAY_OUT))

        def on_log(self, _: Any, state: Any, __: Any, logs: Any = None, **___: Any) -> None:
            telling(
                _NAME,
                lambda loop: loop.report(
                    without_speed(logs or {}, loop.attempt.objective), state.global_step
                ),
            )

        def on_epoch_end(self, *_: Any, model: Any = None, **__: Any) -> None:
            telling(_NAME, lambda loop: loop.compare(_TRAINER, model))

        def on_save(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            folder = Path(args.output_dir) / f"{folder_prefix}-{state.global_step}"
            telling(_NAME, lambda loop: _save(loop, folder, state.global_step))

    @functools.wraps(make)
    def init(self: Any, *args: Any, **options: Any) -> None:
        def begin(loop: Loop) -> None:
            # As its own searches do it: else a trial would save over another one's files.
            self.args.output_dir = str(Path(self.args.output_dir) / loop.attempt.side_folder)
            self.add_callback(Reports())

        make(self, *args, **options)
        telling(_NAME, begin)

    @functools.wraps(train)
    def train_on(self: Any, resume_from_checkpoint: Any = None, *args: Any, **options: Any) -> Any:
        folder = None
        if not resume_from_checkpoint:
            folder = telling(_NAME, _resumed)
        try:
            return train(self, folder or resume_from_checkpoint, *args, **options)
        finally:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    trainer.__init__, trainer.train = init, train_on


_SPEEDS = ("runtime", "samples_per_second", "steps_per_second", "tokens_per_second")
_WAY_OUT = "needs use_cpu=True without GPUs (ACCELERATE_USE_CPU=true)"


def without_speed(logs: Mapping[str, Any], objective: str | None = None) -> dict[str, Any]:
    """What was logged without the measured speeds, which say nothing of the model.

    A search for the speed itself keeps the one that it is after.  All of them stand in the run's
    log, where a Trainer prints what it logs.
    """
    timed = [
        name.removesuffix("runtime")
        for name in logs
        if name.endswith("_runtime") and f"{name.removesuffix('runtime')}steps_per_second" in logs
    ]
    speeds = {f"{prefix}{measure}" for prefix in timed for measure in _SPEEDS} - {objective}
    return {name: value for name, value in logs.items() if name not in speeds}


def _save(loop: Loop, folder: Path, step: int) -> None:
    if loop.saves and loop.attempt.rank == 0:
        files = read_files(folder)
        if files is None:
            loop.tell(f"{folder} is larger than 4 GB: it stays there, and no attempt resumes it")
        else:
            loop.save(_NAME, step, {"files": files})


def _resumed(loop: Loop) -> str | None:
    """A folder as ``Trainer`` has saved it; each rank has its own."""
    state = loop.resumed(_NAME)
    if state is None:
        return None
    folder = tempfile.mkdtemp(prefix="checkpoint-")
    with contextlib.ExitStack() as undo:
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        write_files(Path(folder), state["files"])
        undo.pop_all()
    return folder
