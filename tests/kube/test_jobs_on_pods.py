"""A run's program as a batch Job: executed, it computes what the run's best trial has computed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from jupyter_ddl.standalone.export import export_program
from tests.kube.kube_tools import IMAGE, apply, kubectl
from tests.unit.standalone.recorded_cells import notebook_of, record
from tests.until import until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

CELL = """import torch
from jupyter_ddl import rank, report, world_size

total = torch.tensor(float(data.sum()) * (rank() + 1))
torch.distributed.all_reduce(total)
report(step=world_size(), total=total)
assert float(total) == 18.0, f"{total} of {world_size()} ranks"
"""


def test_a_job_of_a_training_ends_well_if_its_ranks_compute_what_the_cell_asserts(
    namespace: str, tmp_path: Path
) -> None:
    run = record("ddp -n 2 --name of-two", CELL, notebook_of(data=np.arange(4.0)))
    path = tmp_path / "job.yaml"
    export_program(run.run_id, path, "job", image=IMAGE)
    apply(path.read_text(), namespace)

    def ended() -> list[str]:
        (job,) = json.loads(kubectl("get", "jobs", "-n", namespace, "-o", "json"))["items"]
        return [each["type"] for each in job.get("status", {}).get("conditions", [])]

    # Not by its log: a kubelet may drop that of a pod that has ended.
    end = until(ended, 120.0, "the Job's end")
    assert end == ["Complete"], kubectl("describe", "pods", "-n", namespace)
    kubectl("delete", "-n", namespace, "jobs,configmaps", "--selector", "jupyter-ddl/run")
