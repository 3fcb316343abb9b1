"""A training as a TrainJob: validated with the classes of Kubeflow Trainer, not executed there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kubeflow_trainer_api import models

from jupyter_ddl.errors import OptionError
from tests.leaks import Home
from tests.unit.standalone.recorded_cells import IMAGE, exported, is_of, notebook_of, record

TRAINING = """import torch
from jupyter_ddl import checkpoint, resume

state = resume() or {"step": -1}
for step in range(state["step"] + 1, epochs):
    checkpoint(step=step)
"""


def test_a_training_is_a_trainjob_with_a_pod_for_each_rank(home: Home, tmp_path: Path) -> None:
    run = record("ddp -n 3 --gpus-per-rank 2 --name Net", TRAINING, notebook_of("epochs = 2"))
    config, job = exported(tmp_path / "net.yaml", run.run_id, "trainjob")
    is_of(models.IoK8sApiCoreV1ConfigMap, config)
    is_of(models.TrainerV1alpha1TrainJob, job)
    assert (job["apiVersion"], job["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    assert job["metadata"]["name"] == config["metadata"]["name"] == "net"
    spec, trainer = job["spec"], job["spec"]["trainer"]
    assert spec["runtimeRef"] == {"name": "torch-distributed"}
    assert (trainer["image"], trainer["numNodes"], trainer["numProcPerNode"]) == (IMAGE, 3, 1)
    assert trainer["resourcesPerNode"] == {"limits": {"nvidia.com/gpu": "2"}}
    launched = "python -m torch.distributed.run /program/program.py --output-dir /output"
    assert trainer["command"] == ["sh", "-c", f"cd /output && exec {launched}"]


def test_the_pods_of_its_runtime_have_the_program_and_give_up_what_others_do(
    home: Home, tmp_path: Path
) -> None:
    run = record("ddp -n 2", TRAINING, notebook_of("epochs = 2"))
    config, job = exported(tmp_path / "net.yaml", run.run_id, "trainjob")
    _, batch = exported(tmp_path / "job.yaml", run.run_id, "job")
    (patch,) = job["spec"]["runtimePatches"]
    (replicated,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    template = replicated["template"]["spec"]["template"]
    assert template["metadata"]["labels"] == {"jupyter-ddl/run": run.run_id}
    pod = template["spec"]
    (container,) = pod["containers"]
    assert (replicated["name"], container["name"]) == ("node", "node"), "as the runtime has them"
    of_job = batch["spec"]["template"]["spec"]
    assert pod["volumes"] == of_job["volumes"]
    assert pod["volumes"][0]["configMap"]["name"] == config["metadata"]["name"]
    assert pod["securityContext"] == of_job["securityContext"]
    for key in ("volumeMounts", "securityContext"):
        assert container[key] == of_job["containers"][0][key]
    assert job["spec"]["trainer"]["env"] == of_job["containers"][0]["env"]
    assert "resourcesPerNode" not in job["spec"]["trainer"]


def test_what_trains_on_no_group_is_no_trainjob(home: Home, tmp_path: Path) -> None:
    runs = [
        record("map --over n in [1, 2]", "n + 1"),
        record("search --metric acc", "x = uniform(0, 1)\nacc = x", None, {"x": 0.5}),
    ]
    for run in runs:
        expected = (
            rf"{run.run_id} can't be a TrainJob: its {run.verb.word} trains on no group .*ddp"
        )
        with pytest.raises(OptionError, match=expected):
            exported(tmp_path / "job.yaml", run.run_id, "trainjob")
    assert [*tmp_path.iterdir()] == []


def test_trials_that_are_groups_are_trainjobs(home: Home, tmp_path: Path) -> None:
    cell = "x = uniform(0, 1)\nfrom jupyter_ddl import report\nreport(acc=x)"
    run = record("search --metric acc --ranks-per-trial 2", cell, None, {"x": 0.5})
    _, job = exported(tmp_path / "job.yaml", run.run_id, "trainjob")
    assert job["spec"]["trainer"]["numNodes"] == 2


# -- hosts that share no files -----------------------------------------------------------------


def test_a_program_shares_the_checkpoint_only_where_it_goes_on_from_one(
    home: Home, tmp_path: Path
) -> None:
    texts = []
    for name, cell in (("a", TRAINING), ("b", "import torch\nfrom jupyter_ddl import checkpoint")):
        run = record("ddp -n 2", cell, notebook_of("epochs = 2"))
        config, _ = exported(tmp_path / f"{name}.yaml", run.run_id, "trainjob")
        texts.append(config["data"]["program.py"])
    assert "\n_meet()\n_share_checkpoint()\n" in texts[0]
    assert "_share_checkpoint" not in texts[1]


_HOST = """
import os, sys
import torch
from pathlib import Path
from jupyter_ddl.standalone import pieces

rank, store = int(sys.argv[1]), sys.argv[2]
os.environ["LOCAL_WORLD_SIZE"] = "1"
pieces._RANK, pieces._WORLD_SIZE, pieces._LOCAL_RANK = rank, 2, 0
pieces._OUTPUT = Path(sys.argv[3])
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{store}", rank=rank, world_size=2
)
path = pieces._OUTPUT / "checkpoint.pt"
pieces._share_checkpoint()
print(path.read_text())
if rank == 0:
    path.unlink()
pieces._share_checkpoint()
print(path.exists(), len([*pieces._OUTPUT.iterdir()]))
"""


def test_hosts_that_share_no_files_go_on_from_the_first_ranks_checkpoint(tmp_path: Path) -> None:
    hosts = []
    for rank, held in enumerate(("of step 3", "an older one, of step 1")):
        folder = tmp_path / f"host{rank}"
        folder.mkdir()
        (folder / "checkpoint.pt").write_text(held)
        command = [sys.executable, "-c", _HOST, str(rank), str(tmp_path / "store"), str(folder)]
        hosts.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    try:
        printed = [host.communicate(timeout=600)[0] for host in hosts]
    finally:
        for host in hosts:  # one that waits for another that has failed
            host.kill()
            host.wait()
    assert printed == ["of step 3\nFalse 0\n"] * 2
