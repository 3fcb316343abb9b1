"""``%cluster start kube --env …``: refused in one line before anything is created."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.backends.kubernetes.settings import KubeSettings, with_image
from jupyter_ddl.client.clusters import examine_cluster
from jupyter_ddl.commands.cluster import CLUSTER
from jupyter_ddl.errors import EnvironmentFileError, ImageError


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JUPYTER_IMAGE_SPEC", raising=False)
    monkeypatch.delenv("JUPYTER_IMAGE", raising=False)


def test_the_notebooks_own_image_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_IMAGE", "hub.example/lecture:v3")
    assert with_image(KubeSettings()).image == "hub.example/lecture:v3"
    assert with_image(KubeSettings(image="auto")).image == "hub.example/lecture:v3"
    assert with_image(KubeSettings(image="other:1")).image == "other:1"


def test_without_one_it_is_said_what_to_pass() -> None:
    with pytest.raises(ImageError, match="pass --env IMAGE or --env PATH"):
        with_image(KubeSettings())


def test_a_registry_is_of_no_use_where_nothing_is_built() -> None:
    with pytest.raises(ImageError, match="--env team/base:1 builds none; leave it out"):
        with_image(KubeSettings(image="team/base:1", registry="registry.example/team"))


def test_a_directory_is_built_only_where_it_can_be_pushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("repo2docker")
    (tmp_path / "requirements.txt").write_text("jupyter_ddl\nnumpy\n")
    said: list[str] = []
    with pytest.raises(ImageError, match="pass --registry HOST/PATH, or start with a base image"):
        with_image(KubeSettings(image="."), said.append)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match="no container engine can build"):
        with_image(KubeSettings(image=".", registry="registry.example/team"), said.append)
    (tmp_path / "requirements.txt").write_text("numpy>>1\n")
    with pytest.raises(EnvironmentFileError, match=r"requirements\.txt, line 1"):
        with_image(KubeSettings(image="."), said.append)
    assert said == []


def _doctor(*words: str) -> dict[str, str]:
    """What is broken, by what was looked at."""
    _, values = CLUSTER.parse(["doctor", "kube", *words])
    report = examine_cluster(values.pop("backend"), memory_bytes=values.pop("memory"), **values)
    return {each.what: each.text for each in report.findings if each.verdict == "broken"}


def test_the_doctor_looks_at_all_without_an_image_and_takes_the_options_of_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("kr8s")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    found = _doctor()
    assert "pass --env IMAGE" in found["image"]
    assert "KUBECONFIG" in found["API server"]
    (tmp_path / "environment.yml").write_text("dependencies:\n  - numpy\n - scipy\n")
    assert "environment.yml, line 3" in _doctor("--env", ".")["image"]
    assert _doctor("--env", "x:1", "--gpus", "99").keys() == {"options"}
    assert "No such file" in _doctor("--env", "x:1", "--pod-template", "absent.yaml")["options"]
