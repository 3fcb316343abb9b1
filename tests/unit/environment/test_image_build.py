"""An image is built once, out loud, or not at all: with repo2docker itself, as far as it goes."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from jupyter_ddl.environment.binder import read_configuration
from jupyter_ddl.environment.image import (
    build_image,
    explain_failure,
    find_engine,
    lacks_worker,
    plan_build,
    step_in,
    tail_of,
)
from jupyter_ddl.environment.requirements import Configuration
from jupyter_ddl.errors import ImageError
from tests.until import until

_REGISTRY = "registry.example/team"


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    (tmp_path / "binder").mkdir()
    (tmp_path / "binder" / "requirements.txt").write_text("numpy\njupyter_ddl\nddl-absent==1.0\n")
    (tmp_path / "binder" / "runtime.txt").write_text("python-3.12")
    return read_configuration(tmp_path)


def test_repo2docker_makes_a_dockerfile_of_what_we_have_read(configuration: Configuration) -> None:
    pytest.importorskip("repo2docker")
    plan = plan_build(configuration, _REGISTRY)
    command = [each for each in plan.command if each not in ("--json-logs", "--no-run", "--push")]
    command[3:3] = ["--no-build", "--debug"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    dockerfile = done.stdout + done.stderr
    # The same buildpack, files and Python that our reading has.
    assert 'pip install --no-cache-dir -r "binder/requirements.txt"' in dockerfile
    assert "Building conda environment for python=3.12" in dockerfile


def test_the_command_names_the_image_by_the_digest(configuration: Configuration) -> None:
    plan = plan_build(configuration, _REGISTRY)
    tag = configuration.digest[:40]
    assert str(plan.image) == f"{_REGISTRY}/jupyter-ddl-env:{tag}"
    assert plan.command[-3:] == ("--image-name", str(plan.image), configuration.directory)
    assert {"--no-run", "--push", "--json-logs"} < set(plan.command)
    with pytest.raises(ImageError, match=r"pass --registry HOST/PATH, or start with a base image"):
        plan_build(configuration, "")


def test_an_image_that_workers_could_not_run_in_is_not_built(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy\n")
    plain = read_configuration(tmp_path)
    assert lacks_worker(plain)
    with pytest.raises(ImageError, match="does not ask for jupyter_ddl"):
        plan_build(plain, _REGISTRY)
    (tmp_path / "postBuild").write_text("#!/bin/bash\npip install ./wheels/*\n")
    assert not lacks_worker(read_configuration(tmp_path))  # only a build could tell
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    assert not lacks_worker(read_configuration(tmp_path))


def test_without_an_engine_nothing_is_built_and_the_way_out_is_told(
    configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("repo2docker")
    monkeypatch.setenv("PATH", str(tmp_path))
    said: list[str] = []
    with pytest.raises(ImageError) as refused:
        build_image(plan_build(configuration, _REGISTRY), said.append)
    assert "there is no docker command" in refused.value.message
    assert "%cluster env sync" in refused.value.message
    assert said == []
    with pytest.raises(ImageError, match="there is no podman command"):
        find_engine({"DOCKER_HOST": "unix:///run/podman/podman.sock"})


@pytest.mark.skipif(shutil.which("docker") is None, reason="no docker command")
def test_an_engine_that_does_not_answer_is_told_in_its_own_words(
    configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("repo2docker")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    with pytest.raises(ImageError, match=r"no container engine.*nobody\.sock"):
        build_image(plan_build(configuration, _REGISTRY), lambda _: None)


@pytest.mark.skipif(shutil.which("docker") is None, reason="no docker command")
def test_a_failing_build_of_repo2docker_is_one_line_and_a_tail(
    configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The engine answers our question and has gone when repo2docker asks it.
    pytest.importorskip("repo2docker")
    engine = tmp_path / "bin" / "docker"
    engine.parent.mkdir()
    real = shutil.which("docker")
    answered = tmp_path / "answered"
    engine.write_text(
        f'#!/bin/sh\n[ -e {answered} ] || {{ touch {answered}; exit 0; }}\nexec {real} "$@"\n'
    )
    engine.chmod(engine.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{engine.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    said: list[str] = []
    with pytest.raises(ImageError) as failed:
        build_image(plan_build(configuration, _REGISTRY), said.append)
    assert "\n" not in failed.value.message
    assert f"building the image of {configuration.directory} failed" in failed.value.message
    assert "nobody.sock" in failed.value.log
    assert said[0].startswith("looking for registry.example/team/jupyter-ddl-env:")
    assert said[1].startswith("building registry.example/team/jupyter-ddl-env:")


_ENGINE = """#!/bin/sh
# What a container engine does with repo2docker's context: its step that runs pip, for real.
case "$1 $2" in
"image inspect") exit 1 ;;
"buildx build") [ -e {hangs} ] && echo $$ > {hangs} && exec sleep 600 ;;
esac
case "$1 $2" in
"manifest inspect") exec test -e {pushed} ;;
"buildx build") ;;
*) exit 0 ;;
esac
for context; do :; done
cd "$context/src" || exit 9
echo '#12 [8/9] RUN pip install --no-cache-dir -r "binder/requirements.txt"'
{python} -m pip install --no-index --dry-run -r binder/requirements.txt > {log} 2>&1
status=$?
sed 's/^/#12 0.31 /' {log}
[ $status = 0 ] && exec touch {pushed}
echo 'ERROR: failed to build: failed to solve: process "/bin/sh -c pip" did not complete'
exit 1
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container engine whose pip finds nothing but what is installed here."""
    path = tmp_path / "engine" / "docker"
    path.parent.mkdir()
    names = {"pushed": tmp_path / "pushed", "log": tmp_path / "pip.log", "python": sys.executable}
    names["hangs"] = tmp_path / "hangs"
    path.write_text(_ENGINE.format(**names))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("DOCKER_HOST", raising=False)


def test_a_package_that_is_missing_in_the_build_is_told_with_its_file_and_line(
    configuration: Configuration, engine: None
) -> None:
    """From repo2docker's own log, in which pip's lines stand between its own and the engine's."""
    pytest.importorskip("repo2docker")
    said: list[str] = []
    with pytest.raises(ImageError) as failed:
        build_image(plan_build(configuration, _REGISTRY), said.append)
    assert (failed.value.file, failed.value.line) == ("binder/requirements.txt", 3)
    assert "binder/requirements.txt, line 3: " in failed.value.message
    assert "ddl-absent==1.0" in failed.value.message
    assert "\n" not in failed.value.message
    assert any("No matching distribution" in line for line in failed.value.log.splitlines())
    assert said[2] == "reading the directory"
    assert said[3].startswith("step 8 of 9: RUN pip install")
    assert len(said) == 4


def _has_ended(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_a_build_that_takes_too_long_ends_with_its_engine(
    configuration: Configuration, engine: None, tmp_path: Path
) -> None:
    pytest.importorskip("repo2docker")
    hangs = tmp_path / "hangs"
    hangs.touch()
    building: list[psutil.Process] = []

    def wait_for_engine(text: str) -> None:
        if text == "reading the directory":
            until(lambda: hangs.read_text().strip(), 30, "the engine's build")
            building.append(psutil.Process(int(hangs.read_text())))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_image(plan_build(configuration, _REGISTRY), wait_for_engine)
    until(lambda: _has_ended(building[0]), 10, "the end of the engine's build")
    with pytest.raises(ImageError, match=r"took longer than 0 s; the log ends: "):
        build_image(plan_build(configuration, _REGISTRY), lambda _: None, timeout_s=0.0)


def test_what_was_built_once_is_not_built_again(configuration: Configuration, engine: None) -> None:
    pytest.importorskip("repo2docker")
    Path(configuration.directory, "binder", "requirements.txt").write_text("numpy\njupyter_ddl\n")
    plan = plan_build(read_configuration(Path(configuration.directory)), _REGISTRY)
    first: list[str] = []
    assert build_image(plan, first.append) == plan.image
    assert first[1].startswith("building registry.example/team/jupyter-ddl-env:")
    second: list[str] = []
    assert build_image(plan, second.append) == plan.image
    assert second[1:] == ["it exists already: nothing is built"]


def test_the_line_that_asked_for_a_missing_package_is_found_in_pips_own_words(
    configuration: Configuration,
) -> None:
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--dry-run", "-r"]
    done = subprocess.run(
        [*command, "binder/requirements.txt"],
        cwd=configuration.directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    found = explain_failure((done.stdout + done.stderr).splitlines(), configuration)
    assert (found.file, found.line) == ("binder/requirements.txt", 3)
    assert "ddl-absent" in found.reason


def test_the_failing_line_of_a_script_is_found_in_the_shells_own_words(
    configuration: Configuration,
) -> None:
    script = Path(configuration.directory, "binder", "postBuild")
    script.write_text("set -e\ntrue\nno-such-command --now\n")
    done = subprocess.run(
        ["bash", "binder/postBuild"],
        cwd=configuration.directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    log = ["#12 [8/9] RUN ./binder/postBuild", *(f"#12 0.31 {x}" for x in done.stderr.splitlines())]
    log += ['#12 ERROR: process "/bin/sh -c ./binder/postBuild" did not complete: exit code: 127']
    found = explain_failure(log, configuration)
    assert (found.file, found.line) == ("binder/postBuild", 3)
    assert "no-such-command: command not found" in found.reason
    assert str(found).startswith("binder/postBuild, line 3: ")


@pytest.mark.parametrize(
    ("line", "package"),
    [
        ("E: Unable to locate package ddl-absent", "ddl-absent"),
        ("    └─ ddl-absent 1.0**  does not exist (perhaps a typo or a missing channel).", "ddl"),
        ("  - nothing provides requested ddl-absent 1.0**", "ddl-absent"),
    ],
)
def test_other_installers_are_understood(
    configuration: Configuration, line: str, package: str
) -> None:
    found = explain_failure(["Reading …", f"#9 12.40 {line}"], configuration)
    assert (found.file, found.line) == ("binder/requirements.txt", 3)
    assert package in found.reason


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("#12 [ 8/15] RUN pip install -r x", "step 8 of 15: RUN pip install -r x"),
        ("#9 [stage-1 2/4] COPY src/ .\n", "step 2 of 4: COPY src/ ."),
        ("STEP 8/15: USER root", "step 8 of 15: USER root"),
        ("#12 0.31 [1/2] of the package's own", ""),
        ("#12 DONE 0.1s", ""),
    ],
)
def test_steps_of_engines_are_told(line: str, step: str) -> None:
    assert step_in(line) == step


def test_a_log_without_a_known_cause_gives_its_error(configuration: Configuration) -> None:
    log = ["#1 building", "\x1b[31mERROR: failed to solve: no space left on device\x1b[0m", ""]
    assert str(explain_failure(log, configuration)) == "failed to solve: no space left on device"
    assert str(explain_failure([], configuration)) == "it ended without any output"
    assert tail_of(log) == ["building", "ERROR: failed to solve: no space left on device"]
