"""``%runs export RUN FILE --as katib``: a search as an Experiment of Katib.

Katib writes each trial's values into the command of a Job, reads the metric from what it prints,
and proposes the next ones (https://www.kubeflow.org/docs/components/katib/).  The fields are those
of ``kubeflow.org/v1beta1`` in Katib 0.19.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from jupyter_ddl.backends.kubernetes.jobs import job_command, job_spec
from jupyter_ddl.backends.kubernetes.programs import ClusterProgram, Json, metadata, n_parallel
from jupyter_ddl.errors import OptionError
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.sampling import StudySpec
from jupyter_ddl.protocol.space import (
    Choice,
    Distribution,
    RandInt,
    Uniform,
    grid_values,
    n_values,
    when_text,
)
from jupyter_ddl.standalone.options import Option
from jupyter_ddl.standalone.script import Script, refused

__all__ = ["Experiment", "metric_filter"]

_ALGORITHMS = {
    "grid": "grid",
    "random": "random",
    "tpe": "tpe",
    "cmaes": "cmaes",
    "gp": "bayesianoptimization",
    "qmc": "sobol",
}
"""Of Katib, by the names that samplers have here."""
_ALGORITHM = "random"
"""In the place of samplers that Katib does not have."""
_KEEPS_LOG = frozenset({"grid", "random", "tpe"})
"""Algorithms that draw from a parameter's own distribution; others may draw evenly."""
_TRIAL = "trial-name"
"""No option's field: it has a hyphen."""
_MAX_LISTED = 1000
_UNSAFE = re.compile(r"""['"\\\x00-\x1f\x7f]|\$\(""")
"""What Katib would put unescaped into a quoted word, in a text of JSON; and a variable of a pod."""


class Experiment(ClusterProgram):
    """An Experiment that searches the run's space by trials that are Jobs of its program."""

    # Katib's own container reads what a trial prints, and prints it.
    log_option: ClassVar[str] = " --container metrics-logger-and-collector"

    def check(self, spec: RunSpec) -> None:
        study = spec.verb.study
        if study is None:
            why = f"{spec.verb.word} has no search space; expected a run of search, or --as job"
            raise _no_experiment(spec, why)
        for name, found in study.space.items():
            if found.when:
                raise _no_experiment(
                    spec,
                    f"{name} is there only if {when_text(found.when)}, and Katib has no "
                    f"conditions; --as job has the best trial",
                )
            _check_values(spec, name, found)

    def executed_by(self, script: Script, folder: Path, image: str) -> Json:
        spec, study = script.spec, _study(script.spec)
        made: Json = {
            "objective": {
                "type": "minimize" if study.mode == "min" else "maximize",
                "objectiveMetricName": study.metric,
                # Katib's own choice would be the best value that a trial has reported.
                "metricStrategies": [{"name": study.metric, "value": "latest"}],
            },
            "algorithm": {"algorithmName": _ALGORITHMS.get(study.sampler.name, _ALGORITHM)},
            "parallelTrialCount": n_parallel(spec),
            "maxTrialCount": study.n_trials,
            "parameters": [*map(_parameter, script.options.values())],
            "metricsCollectorSpec": {
                "collector": {"kind": "StdOut"},
                "source": {"filter": {"metricsFormat": [metric_filter(study.metric)]}},
            },
            "trialTemplate": _template(script, folder, image),
        }
        if study.pruner.name == "median":
            made["earlyStopping"] = _median_stop(study.pruner.options)
        return {
            "apiVersion": "kubeflow.org/v1beta1",
            "kind": "Experiment",
            "metadata": metadata(spec),
            "spec": made,
        }

    def notes(self, script: Script) -> tuple[str, ...]:
        return (*super().notes(script), *_differences(_study(script.spec)))


def _no_experiment(spec: RunSpec, why: str) -> OptionError:
    return OptionError(refused(spec, why, what="a Katib Experiment"))


def _study(spec: RunSpec) -> StudySpec:
    found = spec.verb.study
    assert found is not None  # see `check`
    return found


# -- the space ---------------------------------------------------------------------------------


def _check_values(spec: RunSpec, name: str, found: Distribution) -> None:
    for text in _texts(found) if isinstance(found, Choice) else ():
        if _UNSAFE.search(text):
            raise _no_experiment(
                spec,
                f"Katib puts values into a command as they are, and {text!r} of {name} has a "
                f"quote, a backslash, a control character or $(; give it a plain name in the "
                f"cell, and run that once",
            )
    if _is_stepped(found) and n_values(name, found) > _MAX_LISTED:
        raise _no_experiment(
            spec,
            f"{name} has {n_values(name, found)} values with its step, and a list of them holds "
            f"{_MAX_LISTED} at most; take a larger step or none, and run that once",
        )


def _texts(found: Choice) -> list[str]:
    return [*dict.fromkeys(map(str, found.values))]


def _is_stepped(found: Distribution) -> bool:
    if isinstance(found, RandInt):
        return found.step != 1
    return isinstance(found, Uniform) and found.step is not None


def _parameter(option: Option) -> Json:
    found = option.found
    name = {"name": option.field}
    if isinstance(found, Choice):
        space: Json = {"list": _texts(found)}
        return {**name, "parameterType": "categorical", "feasibleSpace": space}
    if _is_stepped(found):
        # Some of Katib's algorithms take multiples of a step from 0 on, wherever the range begins.
        space = {"list": [str(value) for value in grid_values(option.name, found)]}
        return {**name, "parameterType": "discrete", "feasibleSpace": space}
    kind = "int" if isinstance(found, RandInt) else "double"
    space = {"min": str(found.low), "max": str(found.high)}
    if found.log:
        space["distribution"] = "logUniform"
    return {**name, "parameterType": kind, "feasibleSpace": space}


# -- a trial -----------------------------------------------------------------------------------


def _template(script: Script, folder: Path, image: str) -> Json:
    options = script.options.values()
    parameters = [{"name": each.field, "reference": each.field} for each in options]
    parameters.append({"name": _TRIAL, "reference": "${trialSpec.Name}"})
    words = [f"{each.flag}=${{trialParameters.{each.field}}}" for each in options]
    # Katib joins a command's words by spaces for a shell, unless that is what they are already:
    # then quotes keep a value one word.
    program = job_command(script.spec, inside=f"${{trialParameters.{_TRIAL}}}")
    command = ["sh", "-c", shlex.join([*program, *words])]
    job = job_spec(script, folder, image, command)
    # A mesh's proxy beside the program would never end, and the trial neither.
    job["template"]["metadata"]["labels"]["sidecar.istio.io/inject"] = "false"
    return {
        "primaryContainerName": "program",
        "successCondition": 'status.conditions.#(type=="Complete")#|#(status=="True")#',
        "failureCondition": 'status.conditions.#(type=="Failed")#|#(status=="True")#',
        "trialParameters": parameters,
        "trialSpec": {"apiVersion": "batch/v1", "kind": "Job", "spec": job},
    }


def metric_filter(metric: str) -> str:
    """What finds a metric's name and value in the lines that a program prints of its reports."""
    value = r"[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
    return rf"step=-?\d+ (?:\S+=\S+ )*?({re.escape(metric)})=({value})(?:\s|$)"


def _median_stop(options: Mapping[str, object]) -> Json:
    """Katib's early stopping by the median, with what the pruner has been told."""
    given = {
        "min_trials_required": options.get("n_startup_trials", 5),
        "start_step": options.get("n_warmup_steps") or 1,
    }
    settings = [{"name": name, "value": str(value)} for name, value in given.items()]
    return {"algorithmName": "medianstop", "algorithmSettings": settings}


def _differences(study: StudySpec) -> Iterable[str]:
    """Where Katib does something else than the run."""
    sampler, pruner = study.sampler.name, study.pruner.name
    algorithm = _ALGORITHMS.get(sampler, _ALGORITHM)
    if sampler not in _ALGORITHMS:
        yield f"Katib has no sampler {sampler}: its algorithm is {algorithm}"
    if study.sampler.options:
        yield f"options of its sampler ({', '.join(study.sampler.options)}) are not in it"
    if pruner not in ("none", "median"):
        yield f"Katib has no pruner {pruner}: no trial is stopped early"
    evenly = [
        name
        for name, found in study.space.items()
        if not isinstance(found, Choice) and found.log
        if _is_stepped(found) or algorithm not in _KEEPS_LOG
    ]
    if evenly:
        yield (
            f"Katib's {algorithm} may draw {', '.join(evenly)} evenly; random and tpe keep the log "
            f"scale of ranges without a step"
        )
