"""The Binder image: what repo2docker makes of ``binder/``, and its steps in a fresh environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_BASE_IMAGE = ("ipykernel==7.0.1", "jupyterlab==4.4.9")
"""What the lock of repo2docker's base image brings; that ipykernel drops what threads publish."""
_CHECK = """
import importlib.metadata as metadata
assert metadata.version("ipykernel") != "7.0.1", "the broken ipykernel is still there"
import dask_ml.cluster, jupyter_ddl, sklearn, torch  # what the notebooks need
assert not torch.version.cuda, torch.__version__
print("ready")
"""


def test_repo2docker_reads_the_folder_and_nothing_else() -> None:
    command = [sys.executable, "-m", "repo2docker", "--no-build", "--debug", str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    text = done.stdout + done.stderr
    assert 'pip install --no-cache-dir -r "binder/requirements.txt"' in text
    assert "RUN ./binder/postBuild" in text
    assert "python-3.12" in (ROOT / "binder" / "runtime.txt").read_text()
    assert "constraints.txt ${REPO_DIR}" not in text  # nothing at the root is read


def test_what_runs_in_the_build_is_executable() -> None:
    assert os.access(ROOT / "binder" / "postBuild", os.X_OK)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_steps_of_the_build_work_in_a_fresh_environment(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(checkout)], check=True, timeout=60)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True, timeout=120)
    bin_dir = tmp_path / "env" / "bin"
    path = os.pathsep.join([str(bin_dir), *_without_conda(os.environ["PATH"])])
    env = {**os.environ, "PATH": path, "HOME": str(tmp_path), "VIRTUAL_ENV": str(bin_dir.parent)}
    for arguments in (
        ["install", "-q", *_BASE_IMAGE],
        ["install", "-q", "--no-cache-dir", "-r", "binder/requirements.txt"],
    ):
        _run([str(bin_dir / "pip"), *arguments], checkout, env)
    _run(["./binder/postBuild"], checkout, env)
    assert "ready" in _run([str(bin_dir / "python"), "-c", _CHECK], tmp_path, env)


def _without_conda(path: str) -> list[str]:
    """The directories of a PATH in which there is no mamba."""
    return [folder for folder in path.split(os.pathsep) if not shutil.which("mamba", path=folder)]


def _run(command: list[str], folder: Path, env: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout
