"""A run's program as objects of Kubernetes: its files in a ConfigMap, and a pod that executes it.

What the pod needs is in the file, so ``kubectl apply --server-side -f FILE`` is enough, and it
needs no right of its own.  :class:`ClusterProgram` is the form of such a file; `jobs`, `trainjobs`
and `experiments` have what stands in it beside the ConfigMap.
"""

from __future__ import annotations

import base64
import re
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import yaml

from jupyter_ddl.backends.kubernetes.hardening import container_security, pod_security
from jupyter_ddl.errors import OptionError
from jupyter_ddl.formats import format_bytes
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.standalone.forms import ProgramForm
from jupyter_ddl.standalone.script import Script

__all__ = [
    "OUTPUT",
    "ClusterProgram",
    "Json",
    "command_of",
    "container_of",
    "environment",
    "gpu_limits",
    "labels",
    "metadata",
    "mounts",
    "n_parallel",
    "pod_template",
    "volumes",
]

Json = dict[str, Any]
OUTPUT = "/output"
"""Where programs write; an emptyDir, unless people put a claim there."""
_PROGRAM = "/program"
_MAX_BYTES = 1 << 20
_PARALLEL = 8
_MAX_NAME = 40
"""Of 63: names of pods, and of what Katib makes for an algorithm, end in more."""


class ClusterProgram(ProgramForm):
    """A file for ``kubectl``: the program in a ConfigMap, and an object that executes it."""

    suffixes: ClassVar[tuple[str, ...]] = (".yaml", ".yml")
    wants_image: ClassVar[bool] = True
    log_option: ClassVar[str] = ""
    """What leads ``kubectl logs`` to another container than the first one."""

    @abstractmethod
    def executed_by(self, script: Script, folder: Path, image: str) -> Json:
        """The object beside the ConfigMap."""

    def text(self, script: Script, folder: Path, image: str) -> str:
        return _written([_config_map(script, folder), self.executed_by(script, folder, image)])

    def notes(self, script: Script) -> tuple[str, ...]:
        reads = script.spec.program.data
        return (
            *((f"there that is {OUTPUT}: mount it in the pods",) if reads else ()),
            # Without --server-side kubectl puts a copy into an annotation, which holds 256 KiB.
            "start it by `kubectl apply --server-side -f` on the file",
            f"`kubectl logs --selector jupyter-ddl/run={script.spec.run_id} --prefix --tail -1"
            f"{self.log_option}` has what it prints",
            f"what it writes goes with its pod: put a claim in the place of the volume of {OUTPUT} "
            f"to keep it",
        )


def metadata(spec: RunSpec) -> Json:
    """The name that a run's objects have, a DNS label that begins with a letter, and the run."""
    plain = re.sub(r"[^a-z0-9]+", "-", (spec.name or spec.run_id).lower()).strip("-")
    if not plain[:1].isalpha():
        plain = f"run-{plain}"
    return {"name": plain[:_MAX_NAME].strip("-"), "labels": labels(spec)}


def labels(spec: RunSpec) -> dict[str, str]:
    """What all objects and pods of a run's program are found by."""
    return {"jupyter-ddl/run": spec.run_id}


def n_parallel(spec: RunSpec) -> int:
    """How many of a run's trials are executed at once."""
    return min(spec.n_trials, spec.verb.max_parallel or _PARALLEL)


def _config_map(script: Script, folder: Path) -> Json:
    """The program and the files that it finds beside it.

    Raises
    ------
    OptionError
        They are larger than Kubernetes takes.
    """
    files = _files(folder)
    sizes = {path: path.stat().st_size for path in files}
    total = len(script.text.encode()) + sum(sizes.values())
    if total > _MAX_BYTES:
        largest = max(sizes, key=lambda path: sizes[path], default=None)
        named = f" ({largest.name}: {format_bytes(sizes[largest])})" if largest else ""
        raise OptionError(
            f"run {script.spec.run_id}: its program with the notebook's values is "
            f"{format_bytes(total)}{named}, and a ConfigMap holds {format_bytes(_MAX_BYTES)}; load "
            f"large values inside the cell, or put --as script and its folder on a volume"
        )
    made: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(script.spec),
        "data": {"program.py": script.text},
    }
    if files:
        made["binaryData"] = {
            f"file-{number}": base64.b64encode(path.read_bytes()).decode()
            for number, path in enumerate(files)
        }
    return made


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def command_of(launcher: Iterable[str], inside: str = "") -> list[str]:
    """What a container executes.

    Parameters
    ----------
    launcher : iterable of str
        Python, or what starts several processes of it.
    inside : str
        Folder for what it writes, where others may write besides: of a claim that pods share.
    """
    output = f"{OUTPUT}/{inside}" if inside else OUTPUT
    return [*launcher, f"{_PROGRAM}/program.py", "--output-dir", output]


def container_of(image: str, command: list[str], gpus: int) -> Json:
    """A container with nothing but the program, and ``gpus`` whole GPUs."""
    made: Json = {
        "name": "program",
        "image": image,
        "command": command,
        "workingDir": OUTPUT,
        "env": environment(),
        "volumeMounts": mounts(),
        **container_security(),
    }
    if gpus:
        made["resources"] = gpu_limits(gpus)
    return made


def environment() -> list[Json]:
    """Variables of a container whose root file system is read-only."""
    return [
        {"name": "HOME", "value": "/tmp"},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
    ]


def gpu_limits(gpus: int) -> Json:
    """Resources: ``gpus`` whole GPUs, as a quantity."""
    return {"limits": {"nvidia.com/gpu": str(gpus)}}


def mounts() -> list[Json]:
    """Where a container has the volumes of :func:`volumes`."""
    return [
        {"name": "program", "mountPath": _PROGRAM, "readOnly": True},
        {"name": "output", "mountPath": OUTPUT},
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]


def volumes(script: Script, folder: Path) -> list[Json]:
    """The program, and room to write."""
    items = [{"key": "program.py", "path": "program.py"}]
    for number, path in enumerate(_files(folder)):
        inside = path.relative_to(folder).as_posix()
        items.append({"key": f"file-{number}", "path": f"{script.folder}/{inside}"})
    return [
        {"name": "program", "configMap": {"name": metadata(script.spec)["name"], "items": items}},
        {"name": "output", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]


def pod_template(script: Script, folder: Path, container: Json) -> Json:
    """Pods of a container that executes the program once."""
    pod = {
        "restartPolicy": "Never",
        **pod_security(),
        "containers": [container],
        "volumes": volumes(script, folder),
    }
    return {"metadata": {"labels": labels(script.spec)}, "spec": pod}


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # yaml has no types
    """Writes texts of several lines as such."""


def _text(dumper: yaml.SafeDumper, text: str) -> Any:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _written(objects: Iterable[Json]) -> str:
    """Objects as one file for ``kubectl apply``."""
    text: str = yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100
    )
    return text
