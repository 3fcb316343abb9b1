"""From a compiled cell to a run on a cluster."""

from __future__ import annotations

import dataclasses
import functools
import getpass
import importlib.metadata
import logging
import os
import platform
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from jupyter_ddl.cell.draft import RunDraft
from jupyter_ddl.cell.options import EnvCheck
from jupyter_ddl.cell.work_folder import notebook_folder, work_folder
from jupyter_ddl.client.copies import bring_blobs, lacks_blobs
from jupyter_ddl.client.environment import check_before
from jupyter_ddl.client.folder import check_resumed, data_again, tell_of_folder, with_data
from jupyter_ddl.client.prices import check_budget, priced, wanted_budget
from jupyter_ddl.client.resumed import changed_values
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.session import session
from jupyter_ddl.client.specs import remember_packages
from jupyter_ddl.client.start import packages_to_warm
from jupyter_ddl.driving.run_blobs import disk_budget, lost_names
from jupyter_ddl.errors import OptionError
from jupyter_ddl.protocol.requests import ResumeRun, SubmitRun
from jupyter_ddl.protocol.run import Provenance, RunSpec
from jupyter_ddl.store.blobs import keep_blobs
from jupyter_ddl.store.connection import list_connections
from jupyter_ddl.store.nvml import inventory
from jupyter_ddl.store.paths import blob_dirs
from jupyter_ddl.tracking.tensorboard.writing import check_installed

__all__ = [
    "check_supported",
    "collect",
    "git_state",
    "new_run_id",
    "package_versions",
    "resume_run",
    "submit",
]


# Where a run comes from: versions, git revision, user, host.

_GIT_DEADLINE_S = 2.0


def collect(line: str, cell: str, notebook_path: Path | None, imports: Iterable[str]) -> Provenance:
    """The record of how a run came about.

    Parameters
    ----------
    line
        The magic's first line as typed, with ``%%distribute``.
    cell
        The cell's body as typed.
    notebook_path
        The notebook's file, or None where it is not known (the working directory then counts).
    imports
        Top-level packages whose versions are recorded.
    """
    revision, dirty = git_state(notebook_folder(notebook_path))
    return Provenance(
        line=line,
        cell=cell,
        notebook=None if notebook_path is None else str(notebook_path),
        user=_user(),
        host=socket.gethostname(),
        python=platform.python_version(),
        packages=package_versions(imports),
        git_revision=revision,
        git_dirty=dirty,
    )


def package_versions(imports: Iterable[str]) -> dict[str, str]:
    """Installed version of each top-level package that has one."""
    versions = {name: _version(name) for name in sorted(set(imports) | {"jupyter_ddl"})}
    return {name: version for name, version in versions.items() if version is not None}


def _without_git(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without variables that tell git of another repository or configuration."""
    return {name: value for name, value in environ.items() if not name.startswith("GIT_")}


_LIST_FILTERS = ("--show-scope", "--name-only", "-z", "--get-regexp", r"^filter\.")
_OF_THE_USER = ("system", "global")


def _git(
    folder: Path, settings: Mapping[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    """Ask git, with these settings, for what it knows of a folder.

    A repository that was unpacked here must not run a program of its own by being looked at: no
    hook, no monitor, no transport.  ``settings`` turn its filters off.
    """
    harmless = {"core.fsmonitor": "false", "core.hooksPath": "/dev/null", **settings}
    variables = {
        # Looking must not take the index's lock from a git of the user's.
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_CONFIG_COUNT": str(len(harmless)),
    }
    for number, (key, value) in enumerate(harmless.items()):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return subprocess.run(
        ["git", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=_GIT_DEADLINE_S,
        check=False,
        env={**_without_git(os.environ), **variables},
    )


def _git_dir(folder: Path) -> Path | None:
    """``.git`` of the repository that a folder is in."""
    here = folder.resolve()
    known = (each / ".git" for each in (here, *here.parents))
    return next((each for each in known if each.exists()), None)


def _may_filter(git_dir: Path) -> bool:
    """Whether git has to be asked for filters: not where all settings are in one file without any.

    They begin with ``[filter``, here or in a file that this one names.
    """
    if not git_dir.is_dir() or (git_dir / "commondir").exists():
        return True
    try:
        settings = (git_dir / "config").read_bytes().lower()
    except OSError:
        return True
    return any(word in settings for word in (b"filter", b"include", b"worktreeconfig"))


def _own_filters(folder: Path) -> list[str]:
    """Settings of filters that are not the user's or the system's."""
    words = _git(folder, {}, "config", *_LIST_FILTERS).stdout.split("\0")
    scoped = zip(words[::2], words[1::2], strict=False)
    return [key for scope, key in scoped if scope not in _OF_THE_USER]


def git_state(folder: Path) -> tuple[str | None, bool]:
    """Revision that ``folder`` is at, and whether tracked files differ from it.

    Without git, outside a repository, or when git takes longer than 2 s: ``(None, False)``.
    """
    git_dir = _git_dir(folder)
    if git_dir is None:
        return None, False  # each process of git takes some milliseconds
    try:
        own = _own_filters(folder) if _may_filter(git_dir) else ()
        off = {key: "false" if key.endswith(".required") else "" for key in own}
        status = ("--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=all")
        done = _git(folder, off, "status", *status, ".")
    except (OSError, subprocess.TimeoutExpired):
        return None, False
    if done.returncode != 0:
        return None, False
    lines = done.stdout.splitlines()
    heads = [
        each.removeprefix("# branch.oid ") for each in lines if each.startswith("# branch.oid")
    ]
    revision = heads[0] if heads and heads[0] != "(initial)" else None
    return revision, any(not each.startswith("#") for each in lines)


@functools.cache
def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
    # `sklearn` comes from `scikit-learn`: look through all distributions, once.
    for distribution in _distributions().get(name, ()):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return str(os.getuid())


log = logging.getLogger(__name__)

_COMPARED_BYTES = 64 << 20
"""Larger values of a run that was submitted elsewhere are not brought to be compared."""
_ID_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"


def new_run_id() -> str:
    """Short, unique, and in order of the day: ``r1121-k3f9``."""
    tail = "".join(secrets.choice(_ID_LETTERS) for _ in range(5))
    return f"r{time.strftime('%m%d')}-{tail}"


def check_supported(draft: RunDraft) -> None:
    """Refuse what cannot run here before a cluster is started for it; a running one answers itself.

    Raises
    ------
    OptionError
        Names the option.
    """
    work_folder()
    disk_budget()
    priced(draft.spec)
    if draft.spec.tensorboard:
        check_installed("--tensorboard")
    ranks = draft.spec.verb.ranks
    if not ranks.gpus_per_rank or list_connections():
        return
    found = inventory()
    if not found.gpus:
        raise OptionError(
            f"{ranks.gpus_option}: this host has no GPU ({found.state}); leave the option out to "
            f"run on the CPU"
        )


def submit(
    draft: RunDraft,
    *,
    env_check: EnvCheck | None = None,
    line: str = "",
    cell: str = "",
    notebook: Path | None = None,
    on_phase: Callable[[str], None] = lambda _: None,
    on_notice: Callable[[str], None] = log.warning,
) -> Run:
    """Store the cell's blobs, and hand the run to the controller.

    Raises
    ------
    WorkerEnvironmentError
        The workers' environment is not the kernel's, and ``--env-check`` does not let that pass.
    JupyterDDLError
        No cluster can be started, or the controller refuses the run.
    """
    check_supported(draft)
    cluster = session().ensure(on_phase)
    environment = check_before(
        cluster, draft.imports, notebook_folder(notebook), env_check, on_notice
    )
    tell_of_folder(cluster, on_notice)
    data, blobs = with_data(draft.spec.program.data, cluster, draft.data_limit_bytes)
    program = msgspec.structs.replace(draft.spec.program, data=data)
    draft = dataclasses.replace(
        draft,
        spec=msgspec.structs.replace(draft.spec, program=program),
        blobs=(*draft.blobs, *blobs),
    )
    keep_blobs(draft.blobs, blob_dirs())
    session().hand_over(cluster, (digest for digest, _ in draft.blobs), on_phase)
    origin = collect(line, cell, notebook, draft.spec.program.imports)
    provenance = msgspec.structs.replace(origin, environment=environment)
    spec = priced(draft.submitted(new_run_id(), cluster, provenance))
    spec = msgspec.structs.replace(spec, warm=packages_to_warm(among=spec.program.imports))
    session().ask(cluster, SubmitRun(spec))
    remember_packages(cluster, spec.warm)
    return Run(spec.run_id)


def resume_run(
    run_id: str,
    draft: RunDraft | None = None,
    env_check: EnvCheck | None = None,
    on_phase: Callable[[str], None] = lambda _: None,
    on_notice: Callable[[str], None] = log.warning,
) -> Run:
    """Go on with a run that was stopped, failed or lost; finished trials are not run again.

    What it has captured stays: where the notebook has other values today, that is told.

    Raises
    ------
    OptionError
        The cell is not the one that the run was made of, or its folder is gone.
    """
    run = Run(run_id)
    run_id = run.id
    if draft is not None and draft.spec.program.source.strip() != run.spec.program.source.strip():
        raise OptionError(
            f"the cell is not the one that run {run_id} was made of; `%runs show {run_id}` prints "
            f"that one, or run this cell without --resume"
        )
    if draft is not None:
        # Those of a run that had ended may have been removed, and those of any may be lost.
        keep_blobs(draft.blobs, blob_dirs())
        bring_blobs(run.spec, at_most=_COMPARED_BYTES)
        if changed := changed_values(run.spec.program, draft.spec.program):
            on_notice(
                f"{', '.join(changed)} changed since run {run_id} was made, and it goes on with "
                f"what it had; run the cell without --resume to use what the notebook has now"
            )
    if run.state == "complete":
        return run
    budget = None if draft is None else wanted_budget(draft.spec)
    check_budget(run.spec, run._fold(), budget)
    if draft is not None:
        keep_blobs(data_again(run.spec), blob_dirs())
        _check_whole(run.spec)
    cluster = run.spec.cluster
    session().current = cluster
    session().ensure(on_phase)
    check_resumed(run.spec)
    if draft is not None:
        check_before(cluster, draft.imports, work_folder(), env_check)
    session().ask(cluster, ResumeRun(run_id, budget))
    return run


def go_on_with(run_id: str, on_phase: Callable[[str], None] = lambda _: None) -> str:
    """Go on with a run as it was made, for views that have no cell of it; says what happens now.

    Raises
    ------
    OptionError
        Runs of its verb can't go on.
    """
    run = Run(run_id)
    if not run.spec.verb.can.can_resume:
        raise OptionError(f"run {run.id} can't go on: `%%distribute {run.spec.verb.word}` begins")
    state = run.state
    if state == "complete":
        return f"run {run.id} is complete"
    step = run.snapshot().checkpoint_step
    resume_run(run.id, on_phase=on_phase)
    where = "" if step is None else f" from step {step:,}"
    return f"run {run.id} goes on{where}"


def _check_whole(spec: RunSpec) -> None:
    """Refuse values that are not those which the run was made of: it would wait on for its own.

    Raises
    ------
    OptionError
        Names what is missing.
    """
    if (lost := lost_names(spec, blob_dirs())) and lacks_blobs(spec):
        raise OptionError(
            f"--resume {spec.run_id}: this host no longer has {lost} of that run, and what the "
            f"cell takes with it now is something else; run the cells that make it as they were, "
            f"or run this cell without --resume"
        )
