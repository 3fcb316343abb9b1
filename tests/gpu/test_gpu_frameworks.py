"""Programs of other frameworks, as people paste them, find the GPU of their rank."""

from __future__ import annotations

import math

import pytest

from jupyter_ddl import train
from tests.real.harness import PROGRAMS, Program

pytestmark = [pytest.mark.gpu, pytest.mark.integration]

_OF_TORCH = "torch.cuda.max_memory_allocated() > 0"
_OF_JAX = "jax.devices()[0].platform == 'gpu'"


@pytest.mark.parametrize(
    ("name", "is_on_gpu"),
    [("lightning_module", _OF_TORCH), ("hf_trainer", _OF_TORCH), ("jax_regression", _OF_JAX)],
)
def test_a_program_trains_on_the_gpu_of_its_rank(
    cluster: object, name: str, is_on_gpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or it takes most of the memory
    program = Program.read(PROGRAMS / f"{name}.py")
    program.require()
    cell = "\n".join([*program.before, *program.cells]).replace('"cpu"', '"gpu"')
    cell += f"\n[{is_on_gpu}, {program.settings['result']}]"
    ((on_gpu, result),) = train(cell, 1, namespace={}, gpus_per_rank=1).values
    assert on_gpu
    assert math.isfinite(result)
