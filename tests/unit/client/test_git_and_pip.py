"""Git and pip look at a notebook's folder, and run nothing that lies in it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl.client.submit import git_state
from jupyter_ddl.environment import wheels


@pytest.fixture
def touched(tmp_path: Path) -> Path:
    return tmp_path / "touched"


def test_a_repository_that_was_unpacked_runs_no_program(
    tmp_path: Path, touched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lecture"
    folder.mkdir()
    git = ("git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@example.org")
    (folder / "a.txt").write_text("a")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "one")):
        subprocess.run([*git, *words], check=True)
    hook = tmp_path / "hook.sh"
    hook.write_text(f"#!/bin/sh\ntouch {touched}\n")
    hook.chmod(0o755)
    subprocess.run([*git, "config", "core.fsmonitor", str(hook)], check=True)
    subprocess.run([*git, "status"], check=True, capture_output=True)
    assert touched.exists(), "this is what git itself does"
    touched.unlink()
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    revision, is_dirty = git_state(folder)
    assert revision is not None
    assert len(revision) == 40
    assert not is_dirty
    assert not touched.exists()


def test_filters_of_a_repository_that_was_unpacked_do_not_run(
    tmp_path: Path, touched: Path
) -> None:
    folder = tmp_path / "lecture"
    folder.mkdir()
    git = ("git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@example.org")
    (folder / "a.txt").write_text("a")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "one")):
        subprocess.run([*git, *words], check=True)
    filters = {"clean": f"touch {touched} && cat", "process": f"touch {touched}"}
    for name, kind in (("one", "clean"), ("two=three", "clean"), ("four", "process")):
        key = f"filter.{name}.{kind}"
        subprocess.run([*git, "config", key, filters[kind]], check=True)
        subprocess.run([*git, "config", f"filter.{name}.required", "true"], check=True)
    included = folder / ".git" / "more"
    included.write_text(f'[filter "five"]\n\tclean = touch {touched}\n\trequired\n')
    subprocess.run([*git, "config", "include.path", "more"], check=True)
    attributes = folder / ".git" / "info" / "attributes"
    for second, name in enumerate(("one", "two=three", "four", "five")):
        attributes.write_text(f"*.txt filter={name}\n")
        os.utime(folder / "a.txt", (second, second))  # git has to read it
        subprocess.run([*git, "status"], check=False, capture_output=True)
        assert touched.exists(), "this is what git itself does"
        touched.unlink()
        os.utime(folder / "a.txt", (100 + second, 100 + second))
        revision, is_dirty = git_state(folder)
        assert revision is not None
        assert not is_dirty
        assert not touched.exists()
    (folder / "a.txt").write_text("b")
    assert git_state(folder)[1]


def test_git_is_started_no_more_often_than_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    run = subprocess.run

    def noted(command: list[str], **options: Any) -> Any:
        started.append(command[1])
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", noted)
    assert (git_state(tmp_path), started) == ((None, False), [])
    run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "below").mkdir()
    git_state(tmp_path / "below")
    assert started == ["status"]
    for text in ('[Filter "x"]\n', "[include]\n", "[extensions]\n\tworktreeConfig = true\n"):
        started.clear()
        with (tmp_path / ".git" / "config").open("a") as file:
            file.write(text)
        git_state(tmp_path)
        assert started == ["config", "status"], text


def test_a_module_beside_the_notebook_is_not_pip(
    tmp_path: Path, touched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pip.py").write_text(f"open({str(touched)!r}, 'w').close()\n")
    wheels._pip(["--help"], tmp_path)
    assert not touched.exists()
