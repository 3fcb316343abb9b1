"""A run as a batch Job: what Kubernetes gets; `tests/kube` has one executed."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from kubeflow_trainer_api import models

from jupyter_ddl.errors import ImageError, OptionError
from jupyter_ddl.standalone.export import export_program
from tests.leaks import Home
from tests.unit.standalone.recorded_cells import IMAGE, exported, is_of, notebook_of, record

CELL = "x = uniform(0, 1)\nacc = x + X.sum()"


def test_a_job_has_the_program_and_its_values(home: Home, tmp_path: Path) -> None:
    namespace = notebook_of(X=np.arange(3.0))
    run = record("search --metric acc --name 'My Run'", CELL, namespace, {"x": 0.5})
    path = tmp_path / "job.yaml"
    told = export_program(run.run_id, path, "job", image=IMAGE)
    assert "kubectl apply --server-side -f" in told, "else 256 KiB are too many"
    objects: list[dict[str, Any]] = [*yaml.safe_load_all(path.read_text())]
    config, job = objects
    is_of(models.IoK8sApiCoreV1ConfigMap, config)
    is_of(models.IoK8sApiBatchV1Job, job)
    assert [*tmp_path.iterdir()] == [path], "all of it is in the file"
    assert "data:\n  program.py: |\n" in path.read_text(), "and the program can be read there"
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert job["metadata"]["name"] == config["metadata"]["name"] == "my-run"
    template = job["spec"]["template"]
    assert template["metadata"]["labels"] == job["metadata"]["labels"]
    assert f"kubectl logs --selector jupyter-ddl/run={run.run_id} " in told
    pod = template["spec"]
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
    _, job = exported(tmp_path / "job.yaml", run.run_id, "job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    launcher = "python -m torch.distributed.run --standalone --nproc-per-node 3 /program/program.py"
    assert " ".join(container["command"]).startswith(launcher)
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "6"}}


def test_a_map_has_a_pod_for_each_element(home: Home, tmp_path: Path) -> None:
    run = record(
        "map --over n in numbers --max-parallel 2", "n + 1", notebook_of("numbers=[1,2,3]")
    )
    _, job = exported(tmp_path / "job.yaml", run.run_id, "job")
    is_of(models.IoK8sApiBatchV1Job, job)
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 2)
    (container,) = spec["template"]["spec"]["containers"]
    number = "$(JOB_COMPLETION_INDEX)"
    assert container["command"][-4:] == ["--output-dir", f"/output/{number}", "--item", number], (
        "what one writes is not lost to another where they share a claim"
    )
    assert spec["backoffLimitPerIndex"] == 3, "one that fails ends no other"
    assert "backoffLimit" not in spec


def test_files_beside_the_notebook_are_to_be_mounted(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("1\n2\n")
    cell = "x = uniform(0, 1)\nacc = x * len(open('rows.csv').read())"
    run = record("search --metric acc", cell, None, {"x": 0.5})
    answer = export_program(run.run_id, tmp_path / "job.yaml", "job", image=IMAGE)
    where = "it reads rows.csv, relative to where it is started; there that is /output: mount it"
    assert where in answer


@pytest.mark.parametrize("line", ["fit", "run -n 2"])
def test_what_a_notebook_feeds_is_no_job(home: Home, tmp_path: Path, line: str) -> None:
    run = record(line, "print(1)")
    with pytest.raises(OptionError, match=rf"feeds {line.split()[0]} as it goes on; expected a"):
        exported(tmp_path / "job.yaml", run.run_id, "job")


def test_the_image_is_the_workers_or_the_notebooks(home: Home, tmp_path: Path) -> None:
    run = record("search --metric acc", "x = uniform(0, 1)\nacc = x", None, {"x": 0.5})

    def image(**options: Any) -> str:
        given = {"image": "", "overwrite": True, **options}
        _, job = exported(tmp_path / "job.yaml", run.run_id, "job", **given)
        found: str = job["spec"]["template"]["spec"]["containers"][0]["image"]
        return found

    assert image(environ={"JUPYTER_IMAGE": "hub/notebook:3"}) == "hub/notebook:3"
    with pytest.raises(
        OptionError, match="was in no image, and this notebook's is not known; give"
    ):
        image(environ={})
    with pytest.raises(ImageError, match="is not an image reference"):
        exported(tmp_path / "b.yaml", run.run_id, "job", image="No Image")


def test_names_of_objects_begin_with_a_letter_and_leave_room_for_what_follows(
    home: Home, tmp_path: Path
) -> None:
    wanted = {"50 Epochs!": "run-50-epochs", "--": "run", "Long " * 20: ("long-" * 8)[:-1]}
    for number, (name, made) in enumerate(wanted.items()):
        run = record(
            "search --metric acc", "x = uniform(0, 1)\nacc = x", None, {"x": 0.5}, name=name
        )
        objects = exported(tmp_path / f"{number}.yaml", run.run_id, "job")
        assert {each["metadata"]["name"] for each in objects} == {made}


@pytest.mark.parametrize("kind", ["job", "katib"])
def test_values_that_are_too_large_are_named(home: Home, tmp_path: Path, kind: str) -> None:
    namespace = notebook_of(X=np.zeros(200_000))
    run = record("search --metric acc", CELL, namespace, {"x": 0.5})
    with pytest.raises(OptionError, match=r"is 1\.5 MiB \(X.npy: 1\.5 MiB\), and a Con"):
        exported(tmp_path / "job.yaml", run.run_id, kind)
    assert [*tmp_path.iterdir()] == []
