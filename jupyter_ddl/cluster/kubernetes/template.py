"""A pod template of the user's own, in Kubernetes' form, laid over ours.

The file is a Pod, a PodTemplateSpec (``metadata``, ``spec``) or a bare pod spec, in YAML or JSON.
Containers are merged by name, or by position where a name is not ours; what they leave out stays
as it is.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from jupyter_ddl.errors import ClusterError

__all__ = ["check_mounts", "merged", "read_template"]

Json = dict[str, Any]

_BY_NAME = ("volumes", "env", "initContainers", "imagePullSecrets", "envFrom")


def read_template(path: str) -> str:
    """The pod spec in a file, as JSON.

    Raises
    ------
    ClusterError
        It is not there, not YAML (with the line), or not a pod.
    """
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise ClusterError(f"--pod-template {path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "it is not YAML"
        raise ClusterError(f"--pod-template {path}{where}: {problem}") from None
    spec = content.get("spec", content) if isinstance(content, dict) else None
    if not isinstance(spec, dict) or not all(isinstance(key, str) for key in spec):
        raise ClusterError(
            f"--pod-template {path} holds no pod; a Pod, or its spec alone, is expected "
            f"(apiVersion: v1, kind: Pod, spec: {{containers: […]}})"
        )
    containers = spec.get("containers", [])
    if not isinstance(containers, list) or not all(isinstance(c, dict) for c in containers):
        raise ClusterError(f"--pod-template {path}: spec.containers is not a list of containers")
    return json.dumps(spec)


def merged(pod: Json, template: Json, *, container_fields: bool = True) -> Json:
    """``template`` laid over ``pod``.

    Parameters
    ----------
    container_fields : bool
        False for the scheduler: resources, commands and volumes are meant for workers, where
        they run (nodes, users, priorities) is meant for both.
    """
    result = copy.deepcopy(pod)
    for key, value in template.items():
        if key == "containers":
            if container_fields:
                result[key] = _containers(result[key], value)
        elif container_fields or key not in ("volumes", "initContainers"):
            result[key] = _laid_over(result.get(key), value, key)
    return result


def check_mounts(pod: Json) -> None:
    """Refuse a mount of a volume that is not there: the operator alone would be told of it.

    Raises
    ------
    ClusterError
        Names the field.
    """
    volumes = {volume.get("name") for volume in pod.get("volumes", [])}
    for container in pod["containers"]:
        for mount in container.get("volumeMounts", []):
            if mount.get("name") not in volumes:
                raise ClusterError(
                    f"--pod-template: spec.containers[{container['name']}].volumeMounts names "
                    f"volume {mount.get('name')!r}, which spec.volumes does not have; add it there"
                )


def _containers(ours: list[Json], theirs: list[Json]) -> list[Json]:
    names = [container["name"] for container in ours]
    result = list(ours)
    for position, container in enumerate(theirs):
        name = container.get("name")
        if name in names or position == 0:
            index = names.index(name) if name in names else 0
            fields = {key: value for key, value in container.items() if key != "name"}
            result[index] = _laid_over(result[index], fields, "container")
        else:
            result.append(container)
    return result


def _laid_over(ours: Any, theirs: Any, key: str) -> Any:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        both = dict(ours)
        for name, value in theirs.items():
            both[name] = _laid_over(both.get(name), value, name)
        return both
    if isinstance(ours, list) and isinstance(theirs, list):
        identity = "mountPath" if key == "volumeMounts" else "name"
        if key in (*_BY_NAME, "volumeMounts"):
            mine = [each for each in ours if each.get(identity) not in _names(theirs, identity)]
            return [*mine, *theirs]
        if key == "tolerations":
            return [*ours, *theirs]
    return copy.deepcopy(theirs)


def _names(items: list[Any], identity: str) -> set[Any]:
    return {each.get(identity) for each in items if isinstance(each, dict)}
