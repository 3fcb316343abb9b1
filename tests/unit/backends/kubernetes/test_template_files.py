"""Files of ``--pod-template``: what is read, and what is refused in one line, at once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jupyter_ddl.backends.kubernetes.template import read_template
from jupyter_ddl.errors import ClusterError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("spec:\n  containers: []\n   bad", "line 3"),
        ("just words", "has no pod"),
        ("spec: {containers: {a: 1}}", r"spec\.containers is \{'a': 1\}, not a list"),
        ("containers:", "spec.containers is None, not a list"),
        ("spec: {volumes: [3]}", "spec.volumes is .3., not a list of objects"),
        ("containers: [{volumeMounts: 3}]", r"spec\.containers\[0\]\.volumeMounts is 3"),
        (
            "containers: [{resources: {limits: {memory: 16Gb}}}]",
            "limits.memory is '16Gb'; expected a quant",
        ),
        ("containers: [{resources: {limits: 3}}]", r"\[0\]\.resources is \{'limits': 3\}"),
        ("kind: Service\nspec: {}", r"is a Service; expected a Pod \["),
        ("kind: Deployment\nspec: {template: {}}", "its spec.template is one"),
        (
            "metadata: {labels: {a: 1}}\nspec: {}",
            r"metadata\.labels is \{'a': 1\}; expected NAME: 'TEXT'",
        ),
        ("\x00", "it is not YAML"),
        ("spec: {startTime: 2026-01-01}", "Object of type date .* a date is text in quotes"),
        ("spec: {startTime: 2026-99-99}", "month must be in"),
        ("spec: {a: .nan}", "a value that Kubernetes can't be sent"),
        ("spec: &a {b: *a}", "can't be sent .Circular reference"),
        ("[" * 10_000, "nested too deeply"),
        ("# " + "x" * (256 << 10), "is larger than 256 KiB; expected a pod"),
        (
            "a: &a0 [lol, lol]\n" + "".join(f"a{n}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(40)),
            "larger than 256 KiB when what its aliases .* stand for is written out",
        ),
    ],
)
def test_a_template_that_is_none_is_refused_in_one_line(
    tmp_path: Path, text: str, expected: str
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(text)
    with pytest.raises(ClusterError, match=expected) as caught:
        read_template(str(path))
    assert "\n" not in caught.value.message


def test_a_template_is_a_pod_or_its_spec(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("kind: Pod\nspec: {nodeName: a}\n")
    assert json.loads(read_template(str(path)).spec) == {"nodeName": "a"}
    path.write_text("nodeName: a\n")
    assert json.loads(read_template(str(path)).spec) == {"nodeName": "a"}
    path.write_text("kind: PodTemplate\ntemplate: {spec: {nodeName: a}}\n")
    assert json.loads(read_template(str(path)).spec) == {"nodeName": "a"}
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ClusterError, match="not UTF-8 text"):
        read_template(str(path))
    with pytest.raises(ClusterError, match="No such file"):
        read_template(str(tmp_path / "none.yaml"))
    with pytest.raises(ClusterError, match="Is a directory"):
        read_template(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ClusterError, match="is a pipe; expected a file"):
        read_template(str(tmp_path / "pipe"))
