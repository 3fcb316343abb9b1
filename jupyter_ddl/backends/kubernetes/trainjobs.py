"""``%runs export RUN FILE --as trainjob``: a training as a TrainJob of Kubeflow Trainer.

The fields are those of ``trainer.kubeflow.org/v1alpha1`` since Trainer 2.2
(https://www.kubeflow.org/docs/components/trainer/).
"""

from __future__ import annotations

import shlex
from pathlib import Path

from jupyter_ddl.backends.kubernetes.hardening import container_security, pod_security
from jupyter_ddl.backends.kubernetes.programs import (
    OUTPUT,
    ClusterProgram,
    Json,
    command_of,
    environment,
    gpu_limits,
    labels,
    metadata,
    mounts,
    volumes,
)
from jupyter_ddl.errors import OptionError
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.standalone.script import Script, refused

__all__ = ["TrainJob"]

_RUNTIME = "torch-distributed"
_NODE = "node"
"""What this runtime calls its Job, and the container in it."""


class TrainJob(ClusterProgram):
    """A TrainJob for the runtime ``torch-distributed``: a pod for each rank.

    The runtime tells torchrun how many there are and where they meet, so both numbers can be
    changed in the file.
    """

    def check(self, spec: RunSpec) -> None:
        if not spec.is_grouped:
            why = f"its {spec.verb.word} trains on no group of ranks; expected ddp, or --as job"
            raise OptionError(refused(spec, why, what="a TrainJob"))

    def executed_by(self, script: Script, folder: Path, image: str) -> Json:
        ranks = script.spec.verb.ranks
        launched = shlex.join(command_of(["python", "-m", "torch.distributed.run"]))
        trainer: Json = {
            "image": image,
            # A TrainJob names no working directory, and that of the image is read-only.
            "command": ["sh", "-c", f"cd {OUTPUT} && exec {launched}"],
            "numNodes": ranks.n_ranks,
            "numProcPerNode": 1,
            "env": environment(),
        }
        if ranks.gpus_per_rank:
            trainer["resourcesPerNode"] = gpu_limits(ranks.gpus_per_rank)
        return {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": metadata(script.spec),
            "spec": {
                "runtimeRef": {"name": _RUNTIME},
                "trainer": trainer,
                "runtimePatches": [_patch(script, folder)],
            },
        }


def _patch(script: Script, folder: Path) -> Json:
    """What the runtime's pods have besides: the program, and room to write."""
    pod: Json = {
        "securityContext": pod_security()["securityContext"],
        "volumes": volumes(script, folder),
        "containers": [{"name": _NODE, "volumeMounts": mounts(), **container_security()}],
    }
    template = {"metadata": {"labels": labels(script.spec)}, "spec": pod}
    job: Json = {"name": _NODE, "template": {"spec": {"template": template}}}
    return {
        "manager": "jupyter-ddl/export",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}},
    }
