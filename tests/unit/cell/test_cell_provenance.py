"""Where a run comes from."""

import os
import subprocess
import sys

import numpy as np

from jupyter_ddl.client.submit import collect, git_state, package_versions


def git(folder, *words):
    identity = {
        f"GIT_{who}_{what}": "x@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    subprocess.run(
        ["git", *words], cwd=folder, check=True, capture_output=True, env={**os.environ, **identity}
    )


def test_versions_are_those_of_the_installed_packages():
    versions = package_versions(["numpy", "sklearn", "no_such_package"])
    assert versions["numpy"] == np.__version__
    assert "jupyter_ddl" in versions
    assert "no_such_package" not in versions


def test_a_package_is_found_under_another_distribution_name():
    assert "dateutil" in package_versions(["dateutil"])


def test_outside_git_there_is_no_revision(tmp_path):
    assert git_state(tmp_path) == (None, False)
    assert git_state(tmp_path / "missing") == (None, False)


def test_the_revision_and_changes_of_the_notebooks_folder_are_kept(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("1")
    assert git_state(tmp_path) == (None, False)
    git(tmp_path, "add", "a.py")
    git(tmp_path, "commit", "-qm", "first")
    revision, dirty = git_state(tmp_path)
    assert revision is not None
    assert len(revision) == 40
    assert not dirty
    (tmp_path / "a.py").write_text("2")
    assert git_state(tmp_path) == (revision, True)


def test_a_record_has_the_line_the_cell_and_the_host(tmp_path):
    record = collect("%%distribute map --over x", "x", tmp_path / "a.ipynb", ["numpy"])
    assert record.line == "%%distribute map --over x"
    assert record.cell == "x"
    assert record.notebook == str(tmp_path / "a.ipynb")
    assert record.host
    assert record.user
    assert record.python == ".".join(map(str, sys.version_info[:3]))
    assert record.packages["numpy"] == np.__version__
