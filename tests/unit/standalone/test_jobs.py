"""A run as a batch Job: what Kubernetes gets; `tests/kube` has one executed."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from jupyter_ddl.errors import ImageError, OptionError
from jupyter_ddl.standalone.export import export_program
from tests.leaks import Home
from tests.unit.standalone.recorded_cells import notebook_of, record

IMAGE = "registry.example/team/train:1"
CELL = "x = uniform(0, 1)\nacc = x + X.sum()"


def exported(path: Path, run_id: str, kind: str = "job", **options: Any) -> list[dict[str, Any]]:
    """The objects in the file."""
    export_program(run_id, path, kind, **{"image": IMAGE, **options})
    return [*yaml.safe_load_all(path.read_text())]


def test_a_job_has_the_program_and_its_values(home: Home, tmp_path: Path) -> None:
    namespace = notebook_of(X=np.arange(3.0))
    run = record("search --metric acc --name 'My Run'", CELL, namespace, {"x": 0.5})
    path = tmp_path / "job.yaml"
    told = export_program(run.run_id, path, "job", image=IMAGE)
    assert "kubectl apply --server-side -f" in told, "else 256 KiB are too many"
    objects: list[dict[str, Any]] = [*yaml.safe_load_all(path.read_text())]
    config, job = objects
    assert [*tmp_path.iterdir()] == [path], "all of it is in the file"
    assert "data:\n  program.py: |\n" in path.read_text(), "and the program can be read there"
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert job["metadata"]["name"] == config["metadata"]["name"] == "my-run"
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    program = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}["/program"]
    volume = {each["name"]: each for each in pod["volumes"]}[program]["configMap"]
    contents = {**config["data"], **config["binaryData"]}
    placed = {each["path"]: contents[each["key"]] for each in volume["items"]}
    assert volume["name"] == config["metadata"]["name"]
    assert sorted(placed) == ["job_data/X.npy", "program.py"]
    assert "'job_data'" in placed["program.py"], "which is where the program looks"
    array = np.load(io.BytesIO(base64.b64decode(placed["job_data/X.npy"])))
    assert array.tolist() == [0.0, 1.0, 2.0]
    assert container["image"] == IMAGE
    assert container["command"] == ["python", "/program/program.py", "--output-dir", "/output"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["restartPolicy"] == "Never"


def test_ranks_are_processes_of_one_pod_with_all_their_gpus(home: Home, tmp_path: Path) -> None:
    run = record("ddp -n 3 --gpus-per-rank 2", "import torch\nprint(rank())")
    _, job = exported(tmp_path / "job.yaml", run.run_id)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    launcher = "python -m torch.distributed.run --standalone --nproc-per-node 3 /program/program.py"
    assert " ".join(container["command"]).startswith(launcher)
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 6}}


def test_a_map_has_a_pod_for_each_element(home: Home, tmp_path: Path) -> None:
    run = record(
        "map --over n in numbers --max-parallel 2", "n + 1", notebook_of("numbers=[1,2,3]")
    )
    _, job = exported(tmp_path / "job.yaml", run.run_id)
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 2)
    (container,) = spec["template"]["spec"]["containers"]
    assert container["command"][-2:] == ["--item", "$(JOB_COMPLETION_INDEX)"]


def test_the_image_is_the_workers_or_the_notebooks(home: Home, tmp_path: Path) -> None:
    run = record("search --metric acc", "x = uniform(0, 1)\nacc = x", None, {"x": 0.5})

    def image(**options: Any) -> str:
        _, job = exported(tmp_path / "job.yaml", run.run_id, overwrite=True, image="", **options)
        found: str = job["spec"]["template"]["spec"]["containers"][0]["image"]
        return found

    assert image(environ={"JUPYTER_IMAGE": "hub/notebook:3"}) == "hub/notebook:3"
    with pytest.raises(
        OptionError, match="was in no image, and this notebook's is not known; give"
    ):
        image(environ={})
    with pytest.raises(ImageError, match="is not an image reference"):
        exported(tmp_path / "b.yaml", run.run_id, image="No Image")


def test_values_that_are_too_large_are_named(home: Home, tmp_path: Path) -> None:
    namespace = notebook_of(X=np.zeros(200_000))
    run = record("search --metric acc", CELL, namespace, {"x": 0.5})
    with pytest.raises(OptionError, match=r"is 1\.5 MiB \(X.npy: 1\.5 MiB\), and a Con"):
        exported(tmp_path / "job.yaml", run.run_id)
    assert [*tmp_path.iterdir()] == []
