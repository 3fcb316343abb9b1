"""Compares this kernel with the workers before a cell goes there, and says what differs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from jupyter_ddl.cell.draft import RunDraft
from jupyter_ddl.cell.options import EnvCheck
from jupyter_ddl.cell.work_folder import notebook_folder
from jupyter_ddl.client.session import session
from jupyter_ddl.environment.binder import (
    configuration_stamp,
    has_configuration,
    read_configuration,
)
from jupyter_ddl.environment.compare import Scope, compare, kernel_environment, verdict_line
from jupyter_ddl.environment.requirements import Configuration
from jupyter_ddl.errors import ClusterError, EnvironmentFileError, WorkerEnvironmentError
from jupyter_ddl.formats import format_counted
from jupyter_ddl.protocol.facts import EnvironmentStatus, EnvironmentVerdict, Facts
from jupyter_ddl.protocol.replies import ClusterStatus, EnvironmentResult, StatusResult
from jupyter_ddl.protocol.requests import GetEnvironment, GetStatus, TellVerdict
from jupyter_ddl.store.connection import list_connections, read_connection

__all__ = [
    "Checked",
    "OnNotice",
    "check_before",
    "check_environment",
    "cluster_now",
    "compare_with",
    "environment_now",
    "forget_answers",
    "last_imports",
    "places_now",
    "status_now",
]


# Where the ranks of a group would run now: what ``--dry-run`` tells beyond the cell.

_TIMEOUT_S = 5.0
_N_SHOWN = 16


def places_now(draft: RunDraft) -> list[str]:
    """Lines about the slots that the ranks of a run would take; none for runs without groups."""
    ranks = draft.spec.verb.ranks
    if not ranks.is_group:
        return []
    status = status_now()
    if status is None:
        return ["Places: no cluster is running; a local one would be started"]
    return list(_places(status, ranks.n_ranks))


def cluster_now() -> str | None:
    """Name of the cluster that a run would go to; None where one would be started."""
    current = session().current
    running = [info.name for info in list_connections()]
    if current not in running:
        current = running[0] if len(running) == 1 and current is None else None
    return current


def status_now() -> ClusterStatus | None:
    """Of the cluster that a run would go to; None where one would be started."""
    current = cluster_now()
    if current is None:
        return None
    try:
        answer = session().ask(current, GetStatus(), _TIMEOUT_S)
    except ClusterError:
        return None  # it ended in this moment
    return answer.status if isinstance(answer, StatusResult) else None


def _places(status: ClusterStatus, n_ranks: int) -> Iterator[str]:
    free = [
        worker
        for worker in sorted(status.workers, key=lambda each: each.address)
        for _ in range(worker.n_slots - worker.n_busy)
    ]
    if len(free) < n_ranks:
        held = f", {', '.join(status.active_runs)} hold the rest" if status.active_runs else ""
        yield (
            f"Places: cluster {status.name} has {len(free)} of {status.n_slots} slots free{held}; "
            f"the ranks would wait for {n_ranks}"
        )
        return
    shown = [f"rank {at} → {free[at].name} ({free[at].host})" for at in range(n_ranks)][:_N_SHOWN]
    more = f", {n_ranks - _N_SHOWN} more" if n_ranks > _N_SHOWN else ""
    yield f"Places now, on cluster {status.name}: {', '.join(shown)}{more}"


log = logging.getLogger(__name__)

_N_VERDICTS = 50
_FACTS_TIMEOUT_S = 15.0

OnNotice = Callable[[str], None]

_facts: dict[str, Facts] = {}
_verdicts: dict[object, EnvironmentVerdict] = {}
_asked: dict[object, tuple[Configuration | None, str]] = {}
_included: dict[Path, tuple[str, ...]] = {}
"""By folder: the files that its packages stand in, also those that others include."""
_said: set[str] = set()
_imports: set[str] = set()
_fresh_with: dict[str, str] = {}
"""By cluster: this kernel's digest when the workers were asked last."""


class Checked(NamedTuple):
    """A comparison, and what it was made of."""

    verdict: EnvironmentVerdict
    workers: dict[str, Facts]
    """By name."""
    notes: tuple[str, ...] = ()
    """What could not be compared, a sentence each."""
    apart: bool = False
    """Whether workers have file systems of their own."""


def check_before(
    cluster: str,
    imports: Iterable[str],
    folder: Path,
    mode: EnvCheck | None,
    on_notice: OnNotice = log.warning,
) -> EnvironmentStatus | None:
    """Compare before a cell is sent; a difference that was told is not told again.

    Parameters
    ----------
    cluster : str
        Name of a running cluster.
    imports : iterable of str
        Top-level modules that the cell imports; what differs elsewhere does not count.
    folder : Path
        The notebook's, whose binder files are compared as well.
    mode : str, optional
        ``warn``: nothing is refused; ``strict``: any difference is; ``off``: nothing is compared.
        By default what breaks a cell is refused, and the rest is a warning.

    Returns
    -------
    EnvironmentStatus or None
        For the run's record; None where nothing was compared.

    Raises
    ------
    WorkerEnvironmentError
        The cell is refused; one line with what fixes it.
    ClusterError
        The cluster does not run any more.
    """
    if mode == "off":
        return None
    names = frozenset(imports)
    _imports.update(names)
    try:
        checked = compare_with(cluster, kernel_environment().scope(names), folder)
    except ClusterError as error:
        if read_connection(cluster) is None:
            raise  # there are no workers any more
        raise WorkerEnvironmentError(
            f"the workers' environment is not known: {error.message}; --env-check off sends the "
            f"cell without"
        ) from error
    status = _status_of(checked.verdict)
    for note in checked.notes:
        _say_once(note, on_notice)
    refused = {"broken"} if mode is None else {"broken", "drift"} if mode == "strict" else set()
    if status.word in refused:
        _notify(cluster, status)
        raise WorkerEnvironmentError(
            f"the cell was not sent: {status.text} (--env-check warn sends it all the same)",
            word=status.word,
        )
    if status.text:
        _say_once(f"environment {status.word}: {status.text}", on_notice)
    return status


def environment_now(
    draft: RunDraft, env_check: EnvCheck | None, notebook: Path | None
) -> list[str]:
    """Lines for ``--dry-run``: how the workers would differ; nothing is started for it."""
    cluster = cluster_now()
    if cluster is None or env_check == "off":
        return []
    scope = kernel_environment().scope(draft.imports)
    try:
        checked = compare_with(cluster, scope, notebook_folder(notebook))
    except ClusterError as error:
        return [f"Environment: not known ({error.message})"]
    text = _status_of(checked.verdict).text
    return [f"Environment: {checked.verdict.word}{f': {text}' if text else ' as here'}"]


def compare_with(cluster: str, scope: Scope | None, folder: Path | None) -> Checked:
    """This process, a cluster's workers and a folder's binder files, as of now.

    Raises
    ------
    ClusterError
        The cluster does not answer.
    """
    digest = kernel_environment().digest
    asked, problem = _asked_for(folder)
    # Something was installed here since: then perhaps there, too.
    fresh = _fresh_with.get(cluster) != digest
    result = _ask(cluster, fresh=fresh)
    verdict = _verdict(digest, result, scope, asked)
    if verdict.word != "same" and not fresh:
        result = _ask(cluster, fresh=True)
        verdict = _verdict(digest, result, scope, asked)
    _fresh_with[cluster] = digest
    workers = {name: _facts[digest] for name, digest in result.workers.items()}
    notes = [problem] if problem else []
    if result.n_silent:
        silent = format_counted(result.n_silent, "worker")
        notes.append(f"{silent} did not tell in time which packages are installed there")
    return Checked(verdict, workers, tuple(notes), result.apart)


def _verdict(
    digest: str, result: EnvironmentResult, scope: Scope | None, asked: Configuration | None
) -> EnvironmentVerdict:
    """The comparison, once for the same facts; ``digest`` is of the kernel's."""
    of_workers = tuple(sorted(result.workers.items()))
    key = (digest, of_workers, scope, None if asked is None else asked.digest)
    if key not in _verdicts:
        if len(_verdicts) >= _N_VERDICTS:
            _verdicts.clear()
        workers = {name: _facts[digest] for name, digest in of_workers}
        _verdicts[key] = compare(kernel_environment().facts(), workers, scope=scope, asked=asked)
    return _verdicts[key]


def _status_of(verdict: EnvironmentVerdict) -> EnvironmentStatus:
    """A verdict as records and clusters keep it."""
    return EnvironmentStatus(verdict.word, verdict_line(verdict), verdict.fix)


def check_environment(cluster: str, imports: Iterable[str], folder: Path) -> Checked:
    """Compare what a notebook uses, and let the cluster know, so that others see the verdict.

    Raises
    ------
    ClusterError
        It does not answer.
    """
    checked = compare_with(cluster, kernel_environment().scope(frozenset(imports)), folder)
    _notify(cluster, _status_of(checked.verdict))
    return checked


def _notify(cluster: str, status: EnvironmentStatus) -> None:
    session().ask(cluster, TellVerdict(status))


def forget_answers(cluster: str) -> None:
    """Ask the workers again at the next comparison, and say again what differs then."""
    _fresh_with.pop(cluster, None)
    _said.clear()


def last_imports() -> frozenset[str]:
    """Top-level modules of all cells that this process has checked."""
    return frozenset(_imports)


def _ask(cluster: str, *, fresh: bool) -> EnvironmentResult:
    result = session().ask(cluster, GetEnvironment(tuple(_facts), fresh), _FACTS_TIMEOUT_S)
    if not isinstance(result, EnvironmentResult):
        raise ClusterError(f"the controller answered {type(result).__name__} instead of facts")
    _facts.update(result.facts)
    return result


def _asked_for(folder: Path | None) -> tuple[Configuration | None, str]:
    """What a folder's files ask for, and what is wrong with them."""
    if folder is None:
        return None, ""
    key = configuration_stamp(folder, _included.get(folder, ()))
    if key in _asked:
        return _asked[key]
    found, problem = None, ""
    files: tuple[str, ...] = ()
    try:
        if has_configuration(folder):
            found = read_configuration(folder, with_code=False)
            files = tuple({each.file for each in found.packages})
    except EnvironmentFileError as error:
        problem, files = error.message, (str(error.path),)
    _included[folder] = files
    _asked.clear()
    _asked[configuration_stamp(folder, files)] = found, problem
    return found, problem


def _say_once(text: str, on_notice: OnNotice) -> None:
    if text not in _said:
        _said.add(text)
        on_notice(text)
