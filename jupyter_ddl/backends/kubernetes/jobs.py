"""``%runs export RUN FILE --as job``: a run's program as a batch Job."""

from __future__ import annotations

from pathlib import Path

from jupyter_ddl.backends.kubernetes.programs import (
    ClusterProgram,
    Json,
    command_of,
    container_of,
    metadata,
    n_parallel,
    pod_template,
)
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.standalone.script import Script

__all__ = ["BatchJob", "job_command", "job_spec"]

_BACKOFF = 3


def job_command(spec: RunSpec, inside: str = "") -> list[str]:
    """What a Job's container executes, as `command_of`; ranks are processes of it."""
    launcher = ["python"]
    if spec.verb.ranks.is_group:
        launcher += ["-m", "torch.distributed.run", "--standalone"]
        launcher += ["--nproc-per-node", str(spec.n_ranks)]
    return command_of(launcher, inside)


def job_spec(script: Script, folder: Path, image: str, command: list[str]) -> Json:
    """The spec of a Job whose pod executes a command with all GPUs of the run's ranks."""
    ranks = script.spec.verb.ranks
    container = container_of(image, command, ranks.gpus_per_rank * ranks.n_ranks)
    return {"backoffLimit": _BACKOFF, "template": pod_template(script, folder, container)}


class BatchJob(ClusterProgram):
    """A Job with the program in a ConfigMap: one pod, or one for each element of a map.

    The ranks of a training are processes of its pod.
    """

    def executed_by(self, script: Script, folder: Path, image: str) -> Json:
        is_map = script.spec.verb.items is not None
        make = _map_spec if is_map else _once_spec
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata(script.spec),
            "spec": make(script, folder, image),
        }


def _once_spec(script: Script, folder: Path, image: str) -> Json:
    return job_spec(script, folder, image, job_command(script.spec))


def _map_spec(script: Script, folder: Path, image: str) -> Json:
    number = "$(JOB_COMPLETION_INDEX)"
    command = [*job_command(script.spec, inside=number), "--item", number]
    spec = job_spec(script, folder, image, command)
    # Tries are counted for each element: one that fails for good ends no other.
    spec["backoffLimitPerIndex"] = spec.pop("backoffLimit")
    return {
        "completionMode": "Indexed",
        "completions": script.spec.n_trials,
        "parallelism": n_parallel(script.spec),
        **spec,
    }
