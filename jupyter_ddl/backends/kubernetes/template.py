"""A pod template of the user's own, in Kubernetes' form, laid over ours.

The file is a Pod, a PodTemplate, what a Deployment has for one (``metadata``, ``spec``) or a bare
pod spec, in YAML or JSON.  Containers are merged by name, or by position where a name is not ours;
what they leave out stays as it is.
"""

from __future__ import annotations

import copy
import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.errors import ClusterError

__all__ = ["PodTemplate", "check_mounts", "dropped_fields", "merged", "read_template"]

Json = dict[str, Any]

_BY_NAME = ("volumes", "env", "initContainers", "imagePullSecrets", "envFrom")
_LISTS = ("containers", "initContainers", "volumes", "imagePullSecrets", "tolerations")
_CONTAINER_LISTS = ("env", "envFrom", "volumeMounts", "ports")
_KINDS = ("Pod", "PodTemplate")
_MAX_BYTES = 256 << 10
_QUANTITY = re.compile(r"(\d+(\.\d*)?|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?", re.ASCII)


class PodTemplate(msgspec.Struct, frozen=True):
    """What a file holds."""

    spec: str
    """Of the pod, as JSON."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


def read_template(path: str) -> PodTemplate:
    """The pod in a file.

    Raises
    ------
    ClusterError
        It is not there, not YAML (with the line), or not a pod (with the field).
    """
    where = f"--pod-template {path}"
    content = _parsed(path, where)
    if isinstance(content, dict) and content.get("kind", "Pod") not in _KINDS:
        has_pod = isinstance(content.get("spec"), dict) and "template" in content["spec"]
        hint = "; its spec.template is one: give that alone" if has_pod else ""
        raise ClusterError(f"{where} is a {content['kind']}; expected a Pod{hint}")
    if isinstance(content, dict) and content.get("kind") == "PodTemplate":
        content = content.get("template")
    spec = content.get("spec", content) if isinstance(content, dict) else None
    if not isinstance(spec, dict) or not all(isinstance(key, str) for key in spec):
        raise ClusterError(
            f"{where} has no pod; expected a Pod, or its spec alone (apiVersion: v1, kind: Pod, "
            f"spec: {{containers: […]}})"
        )
    _check_lists(spec, _LISTS, f"{where}: spec")
    for number, container in enumerate(spec.get("containers", [])):
        _check_lists(container, _CONTAINER_LISTS, f"{where}: spec.containers[{number}]")
        _check_resources(container, f"{where}: spec.containers[{number}]")
    notes = content.get("metadata") if spec is not content else None
    return PodTemplate(
        json.dumps(spec), **{key: _texts(notes, key, where) for key in ("labels", "annotations")}
    )


def _parsed(path: str, where: str) -> Any:
    import yaml

    text = _text(path, where)
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "it is not YAML"
        raise ClusterError(f"{where}{line}: {problem}") from None
    except ValueError as error:  # a date that is none
        raise ClusterError(f"{where}: {error}") from None
    except RecursionError:
        raise ClusterError(f"{where} is nested too deeply") from None
    _check_json(content, where)
    return content


def _text(path: str, where: str) -> str:
    try:
        if stat.S_ISFIFO(Path(path).stat().st_mode):
            raise ClusterError(f"{where} is a pipe; expected a file")
        with Path(path).open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise ClusterError(f"{where}: {error.strerror}") from None
    except ValueError:
        raise ClusterError(f"{where} is not UTF-8 text; expected YAML or JSON") from None
    if len(data) > _MAX_BYTES:
        raise ClusterError(
            f"{where} is larger than {_MAX_BYTES >> 10} KiB; expected a pod, or its spec alone"
        )
    return text


def _check_json(content: Any, where: str) -> None:
    """Refuse what JSON has not, and a few lines of aliases that stand for gigabytes."""
    n_chars = 0
    try:
        for part in json.JSONEncoder(allow_nan=False).iterencode(content):
            n_chars += len(part)
            if n_chars > _MAX_BYTES:
                raise ClusterError(
                    f"{where} is larger than {_MAX_BYTES >> 10} KiB when what its aliases (*NAME) "
                    f"stand for is written out"
                )
    except (TypeError, ValueError) as error:
        raise ClusterError(
            f"{where} holds a value that Kubernetes can't be sent ({error}); a date is text in "
            f"quotes there"
        ) from None


def _check_lists(owner: Json, fields: tuple[str, ...], where: str) -> None:
    for field in fields:
        value = owner.get(field, [])
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise ClusterError(f"{where}.{field} is {value!r:.60}, not a list of objects")


def _check_resources(container: Json, where: str) -> None:
    """Quantities, as text: of a DaskCluster Kubernetes takes any text, and no number."""
    resources = container.get("resources", {})
    for kind in ("limits", "requests"):
        wanted = resources.get(kind, {}) if isinstance(resources, dict) else None
        if not isinstance(wanted, dict):
            raise ClusterError(f"{where}.resources is {resources!r:.60}; see `kubectl explain pod`")
        for key, value in wanted.items():
            if not _QUANTITY.fullmatch(str(value)):
                raise ClusterError(
                    f"{where}.resources.{kind}.{key} is {value!r:.40}; expected a quantity such as "
                    "2, 500m or 16Gi"
                )
            wanted[key] = str(value)


def _texts(metadata: Any, key: str, where: str) -> dict[str, str]:
    """Labels or annotations; nothing else of a pod's metadata is the user's to say."""
    found = metadata.get(key) or {} if isinstance(metadata, dict) else {}
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ClusterError(f"{where}: metadata.{key} is {found!r:.60}; expected NAME: 'TEXT'")
    return found


def dropped_fields(sent: Any, kept: Any, path: str = "spec") -> Iterator[str]:
    """Fields that the API server does not know, and has silently left out."""
    if isinstance(sent, dict):
        for key, value in sent.items():
            if not isinstance(kept, dict) or key not in kept:
                if value not in (None, {}, []):
                    yield f"{path}.{key}"
            else:
                yield from dropped_fields(value, kept[key], f"{path}.{key}")
    elif isinstance(sent, list) and isinstance(kept, list):
        for number, (value, there) in enumerate(zip(sent, kept, strict=False)):
            yield from dropped_fields(value, there, f"{path}[{number}]")


_OF_WORKERS = frozenset(
    {"volumes", "initContainers", "serviceAccountName", "serviceAccount"}
    | {"automountServiceAccountToken", "shareProcessNamespace"}
)


def merged(pod: Json, template: Json, *, container_fields: bool = True) -> Json:
    """``template`` laid over ``pod``.

    Parameters
    ----------
    container_fields : bool
        False for the scheduler: resources, commands and volumes are meant for workers, where
        they run (nodes, users, priorities) is meant for both.  Whom pods act as is not: the
        controller has an account of its own, and no other container there comes near its token.
    """
    result = copy.deepcopy(pod)
    for key, value in template.items():
        if key == "containers":
            if container_fields:
                result[key] = _containers(result[key], value)
        elif container_fields or key not in _OF_WORKERS:
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
