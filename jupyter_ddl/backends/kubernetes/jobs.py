"""``%runs export RUN FILE --as job``: a run's program as a batch Job."""

from __future__ import annotations

from pathlib import Path

from jupyter_ddl.backends.kubernetes.programs import (
    OUTPUT,
    Json,
    command_of,
    config_map,
    container_of,
    pod_of,
    program_name,
    written,
)
from jupyter_ddl.standalone.forms import ProgramForm
from jupyter_ddl.standalone.script import Script

__all__ = ["BatchJob", "job_spec"]

_BACKOFF = 3
_PARALLEL_ITEMS = 8


def job_spec(script: Script, folder: Path, image: str, *more: str) -> Json:
    """The spec of a Job that executes the program once; ``more`` are words on its line."""
    ranks = script.spec.verb.ranks
    launcher = ["python"]
    if ranks.is_group:
        launcher += ["-m", "torch.distributed.run", "--standalone"]
        launcher += ["--nproc-per-node", str(ranks.n_ranks)]
    command = [*command_of(launcher), *more]
    container = container_of(image, command, ranks.gpus_per_rank * ranks.n_ranks)
    return {
        "backoffLimit": _BACKOFF,
        "template": {"spec": pod_of(script, folder, container)},
    }


class BatchJob(ProgramForm):
    """A Job with the program in a ConfigMap: one pod, or one for each element of a map.

    The ranks of a training are processes of its pod.
    """

    suffixes = (".yaml", ".yml")
    wants_image = True

    def text(self, script: Script, folder: Path, image: str) -> str:
        items = script.spec.verb.items
        indexed = [] if items is None else ["--item", "$(JOB_COMPLETION_INDEX)"]
        spec = job_spec(script, folder, image, *indexed)
        if items is not None:
            n_items = script.spec.n_trials
            parallel = min(n_items, script.spec.verb.max_parallel or _PARALLEL_ITEMS)
            spec = {
                "completionMode": "Indexed",
                "completions": n_items,
                "parallelism": parallel,
                **spec,
            }
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": program_name(script.spec),
                "labels": {"jupyter-ddl/run": script.spec.run_id},
            },
            "spec": spec,
        }
        return written([config_map(script, folder), job])

    def notes(self, script: Script) -> tuple[str, ...]:
        return (
            # Without --server-side kubectl puts a copy into an annotation, which holds 256 KiB.
            "start it by `kubectl apply --server-side -f` on the file",
            f"what it writes goes with its pod: put a claim in the place of the volume of {OUTPUT} "
            f"to keep it",
        )
