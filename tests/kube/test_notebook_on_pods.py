"""The lesson about Kubernetes, on one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kube.kube_tools import IMAGE, gone, kubectl
from tests.leaks import Home
from tests.nbval_run import NOTEBOOKS, check_notebook

pytestmark = [pytest.mark.kube, pytest.mark.timeout(400)]


def test_the_lesson_runs_on_pods_and_leaves_nothing(
    namespace: str, home: Home, tmp_path: Path
) -> None:
    config = json.loads(kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    config["contexts"][0]["context"]["namespace"] = namespace
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    (lesson,) = (each for each in NOTEBOOKS if each.stem == "04_kubernetes")
    check_notebook(lesson, home, KUBECONFIG=str(path), JUPYTER_IMAGE_SPEC=IMAGE)
    gone(namespace)
