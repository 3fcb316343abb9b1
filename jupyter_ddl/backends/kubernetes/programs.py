"""A run's program as objects of Kubernetes: its files in a ConfigMap, and a pod that executes it.

What the pod needs is in the file, so ``kubectl apply --server-side -f FILE`` is enough, and it
needs no right of its own.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from jupyter_ddl.backends.kubernetes.hardening import container_security, pod_security
from jupyter_ddl.errors import OptionError
from jupyter_ddl.formats import format_bytes
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.standalone.script import Script

__all__ = [
    "OUTPUT",
    "Json",
    "command_of",
    "config_map",
    "container_of",
    "pod_of",
    "program_name",
    "written",
]

Json = dict[str, Any]
OUTPUT = "/output"
"""Where programs write; an emptyDir, unless people put a claim there."""
_PROGRAM = "/program"
_MAX_BYTES = 1 << 20
_MAX_NAME = 52
"""Names of pods end in more."""


def program_name(spec: RunSpec) -> str:
    """A name of objects, from the run's: a DNS label."""
    plain = re.sub(r"[^a-z0-9]+", "-", (spec.name or spec.run_id).lower()).strip("-")
    return plain[:_MAX_NAME].strip("-") or "run"


def config_map(script: Script, folder: Path) -> Json:
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
        "metadata": _metadata(script.spec),
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


def _metadata(spec: RunSpec) -> Json:
    return {"name": program_name(spec), "labels": {"jupyter-ddl/run": spec.run_id}}


def command_of(launcher: Iterable[str]) -> list[str]:
    """What a container executes: Python, or what starts several processes of it."""
    return [*launcher, f"{_PROGRAM}/program.py", "--output-dir", OUTPUT]


def container_of(image: str, command: list[str], gpus: int) -> Json:
    """A container with nothing but the program, and ``gpus`` whole GPUs."""
    made: Json = {
        "name": "program",
        "image": image,
        "command": command,
        "workingDir": OUTPUT,
        "env": [
            {"name": "HOME", "value": "/tmp"},  # the root file system is read-only
            {"name": "PYTHONUNBUFFERED", "value": "1"},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
        ],
        "volumeMounts": mounts(),
        **container_security(),
    }
    if gpus:
        made["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return made


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
        {"name": "program", "configMap": {"name": program_name(script.spec), "items": items}},
        {"name": "output", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]


def pod_of(script: Script, folder: Path, container: Json) -> Json:
    """The pod of a container that executes the program once."""
    return {
        "restartPolicy": "Never",
        **pod_security(),
        "containers": [container],
        "volumes": volumes(script, folder),
    }


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # yaml has no types
    """Writes texts of several lines as such."""


def _text(dumper: yaml.SafeDumper, text: str) -> Any:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def written(objects: Iterable[Json]) -> str:
    """Objects as one file for ``kubectl apply``."""
    text: str = yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100
    )
    return text
