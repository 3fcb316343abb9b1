"""``--secret-env``: a secret's value is in no object and no file of ours; in clear it is told."""

from __future__ import annotations

import json
import logging

import msgspec
import pytest

from jupyter_ddl.backends.base import backend_plugin
from jupyter_ddl.backends.kubernetes.manifest import worker_pod
from jupyter_ddl.backends.kubernetes.settings import KubeSettings, kube_settings
from jupyter_ddl.commands.cluster import CLUSTER
from jupyter_ddl.protocol.cluster import ClusterSpec


def spec_of(*words: str) -> ClusterSpec:
    """What ``%cluster start kube`` makes of its options."""
    _, values = CLUSTER.parse(["start", "kube", "--env", "base:1", *words])
    own = {name: values[name] for name in ("image", "env", "secret_env", "pod_template")}
    settings = backend_plugin("kube").settings(**own)
    return ClusterSpec("kube", "kube", settings=msgspec.to_builtins(settings))


def prepared(spec: ClusterSpec, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        backend_plugin("kube").prepare(spec, lambda _: None)
    return [record.getMessage() for record in caplog.records]


def test_a_variable_comes_from_a_secret_and_nothing_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spec = spec_of("--secret-env", "HF_TOKEN=hub:token", "--set-env", "TOKENIZERS_PARALLELISM=0")
    assert kube_settings(spec).secret_env == {"HF_TOKEN": "hub:token"}
    variables = worker_pod(spec, "kube-1", "ns")["containers"][0]["env"]
    assert [each for each in variables if each["name"] == "HF_TOKEN"] == [
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    ]
    assert prepared(spec, caplog) == []


def test_a_secret_in_clear_is_told_by_its_name_alone(
    caplog: pytest.LogCaptureFixture, tmp_path: object
) -> None:
    told = prepared(spec_of("--set-env", "HF_TOKEN=canary", "--set-env", "A=1"), caplog)
    assert len(told) == 1
    assert told[0].startswith("HF_TOKEN of the pods will stand in clear")
    assert "--secret-env HF_TOKEN=SECRET:KEY" in told[0]
    assert "canary" not in told[0]
    template = {"containers": [{"env": [{"name": "DB_PASSWORD", "value": "canary"}]}]}
    settings = KubeSettings(image="base:1", pod_template=json.dumps(template))
    spec = ClusterSpec("kube", "kube", settings=msgspec.to_builtins(settings))
    assert [text.partition(" ")[0] for text in prepared(spec, caplog)] == ["DB_PASSWORD"]
