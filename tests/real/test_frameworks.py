"""What frameworks tell by themselves does what ``report`` and ``checkpoint`` would have done."""

from __future__ import annotations

import ast

import pytest

from tests.live_kernel import CellOutput, LiveKernel
from tests.real.harness import PROGRAMS, Program

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

_TIMEOUT_S = 300.0


def _run(kernel: LiveKernel, name: str, line: str, replace: dict[str, str] | None = None) -> str:
    """Run a program's cell under another line, after changing its text; what was shown."""
    program = Program.read(PROGRAMS / f"{name}.py")
    program.require()
    kernel.run("%reset -f")
    for cell in program.before:
        kernel.run(cell, _TIMEOUT_S).check()
    cell = program.cells[-1]
    for old, new in (replace or {}).items():
        assert old in cell
        cell = cell.replace(old, new)
    shown: CellOutput = kernel.run(f"%%distribute {line}\n{cell}", _TIMEOUT_S)
    return " ".join(shown.everything.split())  # sentences are wrapped


def _value(kernel: LiveKernel, expression: str) -> object:
    return ast.literal_eval(kernel.value(expression))


# Rank 0 dies in its first attempt, in the middle of a training that has saved.
_DIE = """
import os
from pathlib import Path
def die_once(name):
    flag = Path(f"died-{name}")
    if not flag.exists() and os.environ.get("RANK", "0") == "0":
        flag.touch()
        os._exit(9)
"""
_DYING = {
    "hf_trainer": {
        "trainer.train()": f"""{_DIE}
from transformers import TrainerCallback
class Dies(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 18:
            die_once("hf")
trainer.add_callback(Dies())
trainer.train()"""
    },
    "lightning_module": {
        "trainer = L.Trainer(": f"""{_DIE}
class Dies(L.Callback):
    def on_train_batch_start(self, trainer, *args):
        if trainer.global_step == 26:
            die_once("lightning")
trainer = L.Trainer(callbacks=[Dies()],"""
    },
    "keras_torch": {
        "history = model.fit(": f"""{_DIE}
class Dies(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 5:
            die_once("keras")
saver = keras.callbacks.ModelCheckpoint("model.weights.h5", save_weights_only=True)
history = model.fit(callbacks=[saver, Dies()],""",
        "x, y, validation_split": "x=x, y=y, validation_split",
    },
    "xgboost_classifier": {
        "early_stopping_rounds=5,": """early_stopping_rounds=50,
    callbacks=[xgb.callback.TrainingCheckPoint("boosters", interval=5), Dies()],""",
        "model = xgb": f"""{_DIE}
os.makedirs("boosters", exist_ok=True)
class Dies(xgb.callback.TrainingCallback):
    def after_iteration(self, model, epoch, evals_log):
        if epoch == 22:
            die_once("xgboost")
        return False
model = xgb""",
    },
}


@pytest.mark.parametrize(
    ("name", "line", "saved", "last"),
    [
        ("hf_trainer", "ddp -n 2", 16, 24),
        ("lightning_module", "ddp -n 2", 24, 32),
        ("keras_torch", "search --grid units=16 --metric val_loss --mode min", 4, 7),
        (
            "xgboost_classifier",
            "search --grid max_depth=2 --metric validation_0-logloss --mode min",
            19,
            39,
        ),
    ],
)
def test_a_training_that_dies_goes_on_from_what_its_framework_saved(
    real_kernel: LiveKernel, name: str, line: str, saved: int, last: int
) -> None:
    shown = _run(real_kernel, name, line, _DYING[name])
    assert real_kernel.value("_run.state") == "'complete'", shown
    mine = "_run.metrics[_run.metrics.get('rank', 0) == 0]" if "ddp" in line else "_run.metrics"
    steps = _value(
        real_kernel, f"{{int(n): rows.step.tolist() for n, rows in {mine}.groupby('attempt')}}"
    )
    assert isinstance(steps, dict)
    assert set(steps) == {1, 2}
    assert max(steps[1]) >= saved
    assert saved < min(steps[2])
    assert last in steps[2]


def test_a_search_of_trainings_on_two_ranks(real_kernel: LiveKernel) -> None:
    line = "search --ranks-per-trial 2 --grid learning_rate=0.0005,0.005 --metric eval_loss"
    shown = _run(real_kernel, "hf_trainer", f"{line} --mode min --bring eval_accuracy")
    assert real_kernel.value("_run.state") == "'complete'", shown
    assert _value(real_kernel, "_run.best.params['learning_rate']") == 0.005
    assert "separately" not in shown
    folders = "sorted(path.name for path in __import__('pathlib').Path('bert-out').glob('trial-*'))"
    assert _value(real_kernel, folders) == ["trial-0", "trial-1"]
    # Both ranks have half the batches of 128 sequences: 24 steps of 16, not 48 of 8.
    assert _value(real_kernel, "int(_run.metrics.step.max())") == 24
    speeds = "[name for name in _run.metrics if name.endswith(('runtime', 'per_second'))]"
    assert _value(real_kernel, speeds) == []


def test_hopeless_trials_are_pruned_by_what_the_framework_logs(real_kernel: LiveKernel) -> None:
    # The pruner waits for five complete trials.
    line = "search --grid learning_rate=0.3,0.25,0.2,0.15,0.1,0.0001 --metric valid_0-l2 --mode min"
    shown = _run(
        real_kernel,
        "lightgbm_regressor",
        f"{line} --pruner median --max-parallel 1 --seed 1",
        {
            "num_leaves = 15": "learning_rate = 0.1\nnum_leaves = 15",
            '"learning_rate": 0.1': '"learning_rate": learning_rate',
            "lgb.early_stopping(10)": "lambda env: __import__('time').sleep(0.02)",
        },
    )
    assert real_kernel.value("_run.state") == "'complete'", shown
    states = _value(real_kernel, "dict(zip(_run.trials.learning_rate, _run.trials.state))")
    assert isinstance(states, dict)
    assert states[0.0001] == "pruned", shown


@pytest.mark.parametrize(
    ("name", "replace", "told"),
    [
        (
            "lightning_module",
            {'accelerator="cpu"': 'accelerator="cpu", devices=1'},
            "2 ranks train separately: Lightning needs devices=2",
        ),
        (
            "lightning_module",
            {
                "trainer = L.Trainer(": """class Apart(L.Callback):
    def on_train_batch_end(self, trainer, module, *args):
        for parameter in module.parameters():
            parameter.data.add_(0.01 * trainer.global_rank)
trainer = L.Trainer(callbacks=[Apart()],"""
            },
            "2 ranks trained separately: after the first epoch of Lightning their parameters",
        ),
        ("keras_torch", {}, "2 ranks train separately: Keras does not share fit()"),
        ("xgboost_classifier", {}, "2 ranks train separately: xgboost needs a communicator"),
        ("lightgbm_regressor", {}, "2 ranks train separately: lightgbm needs machines="),
    ],
)
def test_ranks_that_train_separately_are_told(
    real_kernel: LiveKernel, name: str, replace: dict[str, str], told: str
) -> None:
    assert told in _run(real_kernel, name, "ddp -n 2", replace)


def test_a_missing_metric_names_those_that_were_logged(real_kernel: LiveKernel) -> None:
    shown = _run(real_kernel, "lightgbm_regressor", "search --grid num_leaves=4 --metric l2")
    assert "no value named 'l2' was reported or assigned" in shown
    assert "valid_0-l2" in shown


def test_no_callbacks_reports_nothing(real_kernel: LiveKernel) -> None:
    line = "search --no-callbacks --grid num_leaves=4 --metric rmse --mode min"
    _run(real_kernel, "lightgbm_regressor", line)
    assert real_kernel.value("_run.state, len(_run.metrics)") == "('complete', 0)"


def test_a_loop_that_can_not_be_followed_goes_on(real_kernel: LiveKernel) -> None:
    line = "search --grid num_leaves=4 --metric rmse --mode min"
    broken = {"params = {": "from jupyter_ddl.ranks.frameworks.loops import Loop\n"
              "def refuse(*_): raise ValueError('not today')\n"
              "Loop.report = refuse\nparams = {"}  # fmt: skip
    shown = _run(real_kernel, "lightgbm_regressor", line, broken)
    assert real_kernel.value("_run.state") == "'complete'"
    assert shown.count("reporting by itself failed: ValueError: not today") == 1
