"""A search as an Experiment of Katib: validated against its published fields, not executed there.

The package with Katib's classes pins a protobuf that other packages here do not work with, so their
fields stand in ``katib_experiment.json``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from kubeflow_trainer_api import models

from jupyter_ddl.backends.kubernetes.experiments import metric_filter
from jupyter_ddl.errors import OptionError
from jupyter_ddl.standalone.export import export_program
from tests.leaks import Home
from tests.unit.standalone.recorded_cells import (
    IMAGE,
    exported,
    is_of,
    notebook_of,
    record,
    reports,
)

SCHEMA = json.loads(Path(__file__).with_name("katib_experiment.json").read_text())
CELL = """from jupyter_ddl import report
lr = loguniform(1e-5, 1e-1)
drop = uniform(0, 0.5)
units = randint(1, 9, step=4)
depth = randint(1, 64, log=True)
layers = choice((8,), (8, 4))
bias = choice(True, None)
for step in range(3):
    report(step=step, loss=2.0, acc=-lr * step * len(layers))
"""
PARAMS = {"lr": 0.5, "drop": 0.1, "units": 5, "depth": 2, "layers": "(8, 4)", "bias": True}
LINE = "search --metric acc --mode min --trials 12 --max-parallel 2 --sampler tpe --name Find"


def experiment(path: Path, run_id: str) -> dict[str, Any]:
    """The object beside the ConfigMap; refuses what Katib's own would refuse."""
    _, made = exported(path, run_id, "katib")
    jsonschema.validate(made, SCHEMA)
    is_of(models.IoK8sApiBatchV1Job, made["spec"]["trialTemplate"]["trialSpec"])
    return made


def test_a_search_is_an_experiment_over_its_space(home: Home, tmp_path: Path) -> None:
    run = record(LINE, CELL, None, PARAMS)
    made = experiment(tmp_path / "find.yaml", run.run_id)
    spec = made["spec"]
    assert made["metadata"]["name"] == "find"
    assert spec["objective"] == {
        "type": "minimize",
        "objectiveMetricName": "acc",
        "metricStrategies": [{"name": "acc", "value": "latest"}],
    }
    assert spec["algorithm"] == {"algorithmName": "tpe"}
    assert (spec["maxTrialCount"], spec["parallelTrialCount"]) == (12, 2)
    spaces = {
        each["name"]: (each["parameterType"], each["feasibleSpace"]) for each in spec["parameters"]
    }
    assert spaces == {
        "lr": ("double", {"min": "1e-05", "max": "0.1", "distribution": "logUniform"}),
        "drop": ("double", {"min": "0.0", "max": "0.5"}),
        "units": ("discrete", {"list": ["1", "5", "9"]}),
        "depth": ("int", {"min": "1", "max": "64", "distribution": "logUniform"}),
        "layers": ("categorical", {"list": ["(8,)", "(8, 4)"]}),
        "bias": ("categorical", {"list": ["True", "None"]}),
    }
    assert "earlyStopping" not in spec


def test_a_trial_takes_katibs_values_and_prints_what_katib_collects(
    home: Home, tmp_path: Path
) -> None:
    run = record(LINE, CELL, None, PARAMS)
    config, made = exported(tmp_path / "find.yaml", run.run_id, "katib")
    template = made["spec"]["trialTemplate"]
    values = {"lr": "1e-05", "drop": "0.25", "units": "9", "depth": "64", "layers": "(8, 4)"}
    values |= {"bias": "None", "${trialSpec.Name}": "find-x7k"}
    # As Katib does it: values go unescaped into the template's JSON, and what a shell is to run is
    # followed by where it prints to.
    text = json.dumps(template["trialSpec"])
    for each in template["trialParameters"]:
        text = text.replace(f"${{trialParameters.{each['name']}}}", values[each["reference"]])
    assert "trialParameters" not in text
    (container,) = json.loads(text)["spec"]["template"]["spec"]["containers"]
    assert container["name"] == template["primaryContainerName"]
    shell, option, command = container["command"]
    (tmp_path / "program.py").write_text(config["data"]["program.py"])
    here = command.replace("/program/", f"{tmp_path}/").replace("/output/", f"{tmp_path}/")
    here = here.replace("python ", f"{sys.executable} ", 1)
    wrapped = f"{here} 1>metrics.log 2>&1 && echo completed >done"
    subprocess.run([shell, option, wrapped], cwd=tmp_path, env={**os.environ}, check=False)
    printed = (tmp_path / "metrics.log").read_text()
    assert (tmp_path / "done").exists(), printed
    reported = reports(tmp_path / "find-x7k")
    assert [each["step"] for each in reported] == [0, 1, 2], "in a folder of the trial's own"
    (wanted,) = made["spec"]["metricsCollectorSpec"]["source"]["filter"]["metricsFormat"]
    found = [re.findall(wanted, line) for line in printed.splitlines()]
    assert [each for line in found for each in line] == [
        ("acc", "-0"),
        ("acc", "-2e-05"),
        ("acc", "-4e-05"),
    ]


def test_only_reports_are_taken_for_the_metric() -> None:
    wanted = metric_filter("acc")
    bar = " 40%|####      | 2/5 [00:01<00:01]step=2 loss=0.25 acc=0.5"
    assert re.findall(wanted, bar) == [("acc", "0.5")], "behind what has no end of line"
    assert re.findall(wanted, "step=-1 acc=1.5e+06 loss=2") == [("acc", "1.5e+06")]
    for line in ("acc=0.5", "step=1 val_acc=0.5", "step=1 acc=nan", "step=1 acc_2=0.5"):
        assert re.findall(wanted, line) == [], line
    assert re.findall(metric_filter("val.a"), "step=1 valxa=1 val.a=2") == [("val.a", "2")]


def test_ranks_of_a_trial_are_processes_of_its_pod(home: Home, tmp_path: Path) -> None:
    cell = "from jupyter_ddl import report\nx = uniform(0, 1)\nreport(acc=x)"
    line = "search --metric acc --ranks-per-trial 2 --gpus-per-trial 2"
    run = record(line, cell, None, {"x": 0.5})
    made = experiment(tmp_path / "find.yaml", run.run_id)
    pod = made["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert "--nproc-per-node 2 /program/program.py" in container["command"][2]
    assert pod["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"


REFUSED = {
    "map --over n in [1, 2]": ("n + 1", "map has no search space; expected a run of search"),
    "ddp -n 2": ("print(1)", "ddp has no search space"),
    "search --metric acc": (
        "model = choice('svm', 'knn')\nacc = 1\nif model == 'svm':\n    C = uniform(0, 1)",
        r"C is there only if model = svm, and Katib has no conditions; --as job has",
    ),
    "search --metric acc --trials 2": (
        "act = choice(('relu', 1), 'tanh')\nacc = 1",
        r"into a command as they are, and \"\('relu', 1\)\" of act has a quote",
    ),
    "search --metric acc --trials 3": (
        "x = uniform(0, 1, step=1e-4)\nacc = x",
        "x has 10001 values with its step, and a list of them holds 1000 at most; take",
    ),
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_katib_can_not_express_is_refused_by_name(
    home: Home, tmp_path: Path, line: str
) -> None:
    cell, expected = REFUSED[line]
    run = record(line, cell, None, {"x": 0.5})
    with pytest.raises(OptionError, match=rf"^run {run.run_id} can't be a Katib Exp.*{expected}"):
        exported(tmp_path / "find.yaml", run.run_id, "katib")
    assert [*tmp_path.iterdir()] == []


def test_what_katib_does_in_another_way_is_told(home: Home, tmp_path: Path) -> None:
    cell = "from jupyter_ddl import report\nlr = loguniform(1e-3, 1)\nreport(step=0, acc=lr)"

    def told(options: str) -> tuple[str, str]:
        run = record(f"search --metric acc {options}", cell, notebook_of(), {"lr": 0.5})
        path = tmp_path / "find.yaml"
        answer = export_program(run.run_id, path, "katib", image=IMAGE, overwrite=True)
        _, made = yaml.safe_load_all(path.read_text())
        return answer, made["spec"]["algorithm"]["algorithmName"]

    answer, algorithm = told("--sampler de --pruner asha")
    assert "Katib has no sampler de: its algorithm is random" in answer
    assert "Katib has no pruner asha: no trial is stopped early" in answer
    assert "evenly" not in answer
    assert "--tail -1 --container metrics-logger-and-collector` has what it prints" in answer
    assert algorithm == "random"
    answer, _ = told("--sampler qmc")
    assert "Katib's sobol may draw lr evenly; random and tpe keep the log scale" in answer


def test_the_median_pruner_is_katibs_median_rule(home: Home, tmp_path: Path) -> None:
    cell = "from jupyter_ddl import report\nlr = loguniform(1e-3, 1)\nreport(step=0, acc=lr)"
    run = record("search --metric acc --pruner median", cell, None, {"lr": 0.5})
    made = experiment(tmp_path / "find.yaml", run.run_id)
    settings = [
        {"name": "min_trials_required", "value": "5"},
        {"name": "start_step", "value": "1"},
    ]
    assert made["spec"]["earlyStopping"] == {
        "algorithmName": "medianstop",
        "algorithmSettings": settings,
    }
