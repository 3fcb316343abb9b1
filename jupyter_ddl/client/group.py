"""Persistent groups from Python: the twin of ``%%distribute run``."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from jupyter_ddl.cell.draft import CellContext
from jupyter_ddl.cell.group_cell import (
    CompiledGroupCell,
    compile_group_cell,
    question_cell,
    transfer_cell,
)
from jupyter_ddl.cell.options import CellOptions, EnvCheck
from jupyter_ddl.cell.source import globals_of_caller
from jupyter_ddl.cell.work_folder import work_folder
from jupyter_ddl.client.environment import OnNotice, check_before
from jupyter_ddl.client.files import RunFiles
from jupyter_ddl.client.folder import tell_of_folder, with_data
from jupyter_ddl.client.interrupts import interrupts_kept
from jupyter_ddl.client.rank_results import RankResults
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.session import Session, session
from jupyter_ddl.client.submit import collect, new_run_id
from jupyter_ddl.client.waiting import IsLeaving
from jupyter_ddl.errors import (
    ClusterError,
    ControllerError,
    GroupLostError,
    JupyterDDLError,
    ProtocolError,
    WorkerEnvironmentError,
)
from jupyter_ddl.protocol.cells import CellResult
from jupyter_ddl.protocol.group import CollectiveBackend
from jupyter_ddl.protocol.outputs import CURRENT
from jupyter_ddl.protocol.replies import GroupResult, GroupStatus, Result
from jupyter_ddl.protocol.requests import (
    CloseGroup,
    ExecuteCell,
    InterruptCell,
    OpenGroup,
    PollCell,
)
from jupyter_ddl.store.blobs import put_blob
from jupyter_ddl.store.log_space import read_span
from jupyter_ddl.store.paths import blob_dirs, run_dir
from jupyter_ddl.verbs.run import DEFAULT_GROUP, CellGroup

__all__ = [
    "MAX_SHOWN_BYTES",
    "CellWait",
    "OnProgress",
    "RankGroup",
    "RankLogs",
    "open_group",
    "read_text",
]


# What ranks print, as far as a notebook shows it: read from their logs while they grow.

MAX_SHOWN_BYTES = 64 * 1024
"""Of one rank and cell; the beginning and the end of a longer output are shown."""


def read_text(path: Path, start: int, end: int | None = None) -> str:
    """Output between two bytes of a log; what is left out is told in its place."""
    try:
        stop = path.stat().st_size if end is None else end
        size = max(0, stop - start)
        if size <= MAX_SHOWN_BYTES:
            return _decoded(read_span(path, start, stop))
        half = MAX_SHOWN_BYTES // 2
        first = read_span(path, start, start + half)
        last = read_span(path, stop - half, stop)
    except FileNotFoundError:
        return ""
    return (
        f"{_decoded(first)}\n… {size - 2 * half:,} bytes left out, all of it is in {path} …\n"
        f"{_decoded(last)}"
    )


class RankLogs:
    """The output of one cell on its ranks.

    Parameters
    ----------
    starts : dict of int to (Path, int)
        Per rank its log, and the byte at which the output begins.
    beside : Path
        A file that is new when there is something else to see.
    """

    def __init__(self, starts: dict[int, tuple[Path, int]], beside: Path) -> None:
        self._starts = starts
        self._beside = beside
        self._beside_ns = _changed_ns(beside)
        self._sizes: dict[int, int] = dict.fromkeys(starts, 0)
        self._texts: dict[int, str] = dict.fromkeys(starts, "")

    def poll(self) -> dict[int, str] | None:
        """The output so far, by rank; None when there is nothing new."""
        is_new = False
        for rank, (path, start) in self._starts.items():
            size = path.stat().st_size - start if path.exists() else 0
            if size > self._sizes[rank]:
                self._sizes[rank] = size
                self._texts[rank] = read_text(path, start)
                is_new = True
        changed_ns = _changed_ns(self._beside)
        is_new |= changed_ns != self._beside_ns
        self._beside_ns = changed_ns
        return dict(self._texts) if is_new else None

    def final(self, ends: dict[int, int]) -> dict[int, str]:
        """The output of the whole cell, by rank."""
        texts = {}
        for rank, (path, start) in self._starts.items():
            end = ends.get(rank)
            is_empty = end is not None and end <= start
            texts[rank] = "" if is_empty else read_text(path, start, end)
        return texts


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _decoded(data: bytes) -> str:
    return data.decode(errors="replace")


# Waits for a cell on a persistent group: output as it comes, interrupts passed on.

_POLL_S = 0.1
_ASK_AGAIN_S = 0.5
"""How often the controller is asked which ranks are done, in a cell that takes longer."""
_ASK_TIMEOUT_S = 10.0

OnProgress = Callable[[dict[int, str], CellResult | None], Any]
"""Takes the output by rank, and which ranks are done and who waits (None: not known yet)."""


class CellWait:
    """One execution; used on one thread.

    Parameters
    ----------
    is_leaving
        Asked at the first interrupt; when true, it ends the wait and not the cell.
    """

    def __init__(
        self,
        session: Session,
        cluster: str,
        request: ExecuteCell,
        logs: RankLogs,
        is_leaving: IsLeaving = lambda: False,
    ) -> None:
        self._session = session
        self._cluster = cluster
        self._request = request
        self._logs = logs
        self._is_leaving = is_leaving
        self._n_interrupts = 0
        self._texts: dict[int, str] = {}
        self._seen: CellResult | None = None
        self._asked_s = time.monotonic()

    def run(self, on_progress: OnProgress | None) -> CellResult:
        """Execute the cell.  The first interrupt ends it, the second the group.

        Parameters
        ----------
        on_progress
            Called at most ten times a second while the cell runs, when there is something new.

        Raises
        ------
        GroupLostError
            The group has ended; its variables are gone.
        KeyboardInterrupt
            The third interrupt, or the first of a wait that leaves: nobody waits any more.  Or
            one that came before the cell was sent.
        """
        future: concurrent.futures.Future[Result] | None = None
        while True:
            try:
                if future is None:
                    with interrupts_kept():
                        future = self._begun()
                return self._follow(future, on_progress)
            except KeyboardInterrupt:
                if future is None:
                    raise
                self._interrupted()

    def _begun(self) -> concurrent.futures.Future[Result]:
        try:
            return self._session.begin(self._cluster, self._request)
        except ClusterError as error:
            raise self._lost() from error

    def _follow(
        self, future: concurrent.futures.Future[Result], on_progress: OnProgress | None
    ) -> CellResult:
        # All of the loop is in its caller's `try`: an interrupt between two rounds counts, too.
        while not concurrent.futures.wait([future], timeout=_POLL_S).done:
            self._tell(on_progress)
        return self._result(future)

    def _result(self, future: concurrent.futures.Future[Result]) -> CellResult:
        try:
            result = future.result()
        except ControllerError as error:
            if self._lives_on():
                raise ControllerError(
                    f"the answer to this cell was lost on its way from cluster {self._cluster}; "
                    f"group {self._request.group_id} lives on with its variables, and may still be "
                    f"busy with the cell: `%runs logs {self._request.group_id}` shows what it "
                    f"prints, and the next cell goes on with the same group",
                    group_id=self._request.group_id,
                ) from error
            raise self._lost() from error
        if isinstance(result, CellResult):
            return result
        raise ProtocolError(f"the controller answered {type(result).__name__} to a cell")

    def _lives_on(self) -> bool:
        """Whether a connection broke, and not the group."""
        try:
            return isinstance(self._ask(PollCell(self._request.group_id)), CellResult)
        except JupyterDDLError:
            return False

    def _lost(self) -> GroupLostError:
        why = self._ended_because()
        return GroupLostError(
            f"group {self._request.group_id} has ended with its cluster {self._cluster}"
            f"{why and f' ({why})'}; its variables are gone, and the next cell starts a new group",
            group_id=self._request.group_id,
        )

    def _ended_because(self) -> str:
        """What its record says; empty where nobody had the time to write it."""
        with contextlib.suppress(JupyterDDLError, OSError):
            return Run(self._request.group_id).snapshot().reason
        return ""

    def _tell(self, on_progress: OnProgress | None) -> None:
        if on_progress is None:
            return
        texts, has_changed = self._logs.poll(), self._poll()
        if texts is not None:
            self._texts = texts
        if texts is not None or has_changed:
            on_progress(self._texts, self._seen)

    def _poll(self) -> bool:
        """Learn which ranks are done, and who waits; whether that has changed."""
        if time.monotonic() - self._asked_s < _ASK_AGAIN_S:
            return False
        try:
            answer = self._ask(PollCell(self._request.group_id))
        except JupyterDDLError:
            return False  # the answer to the cell itself tells why
        self._asked_s = time.monotonic()
        before, self._seen = self._seen, answer if isinstance(answer, CellResult) else None
        return self._seen is not None and (
            before is None or (before.waiting, before.note) != (self._seen.waiting, self._seen.note)
        )

    def _interrupted(self) -> None:
        """Pass one interrupt on, and those that come while it is passed on."""
        while True:
            self._n_interrupts += 1
            if self._n_interrupts > 2:
                raise KeyboardInterrupt
            try:
                if self._n_interrupts == 1 and self._is_leaving():
                    self._n_interrupts = 2
                    continue
                self._pass_on()
            except KeyboardInterrupt:
                continue
            except JupyterDDLError:
                pass  # the cell or the group has ended in this moment; its own answer tells
            return

    def _pass_on(self) -> None:
        group_id = self._request.group_id
        if self._n_interrupts == 1:
            self._ask(InterruptCell(group_id))
        else:
            self._ask(CloseGroup(group_id, "a second interrupt ended it"))

    def _ask(self, body: InterruptCell | CloseGroup | PollCell) -> Result:
        return self._session.ask(self._cluster, body, _ASK_TIMEOUT_S)


log = logging.getLogger(__name__)

_OPEN_TIMEOUT_S = 240.0


class RankGroup:
    """A handle to a persistent group.  The group goes on without it."""

    def __init__(self, cluster: str, status: GroupStatus) -> None:
        self.cluster = cluster
        self.id = status.group_id
        self.name = status.name
        self.n_ranks = status.n_ranks
        self.directory: Path = run_dir(status.group_id)
        """Logs and values of its ranks, and the record of its cells."""
        self._log_ends = {each.rank: each.log_end for each in status.ranks}
        self._logs = {each.rank: self.directory / "logs" / each.log for each in status.ranks}

    def execute(
        self,
        cell: str,
        *,
        targets: Sequence[int] | None = None,
        push: Mapping[str, Any] | Literal["auto"] | None = None,
        bring: Sequence[str] = (),
        on_progress: OnProgress | None = None,
        env_check: EnvCheck | None = None,
    ) -> RankResults:
        """Execute source on ranks, in the namespaces that they keep.

        Parameters
        ----------
        cell : str
            As it stands below a magic's line: its first line is line 2.
        targets : sequence of int, optional
            Ranks; by default all.
        push : mapping or "auto", optional
            Variables that the ranks are given before; ``"auto"``: those of the caller that the
            cell reads and they lack.
        bring : sequence of str
            Variables to bring back; see :meth:`RankResults.value`.
        on_progress : callable, optional
            Gets the output while the cell runs.
        env_check : str, optional
            What to do when workers have another version of a package that it imports:
            as ``--env-check``.

        Raises
        ------
        WorkerEnvironmentError
            The workers' environment is not the kernel's, and ``env_check`` does not let that pass.
        RankFailedError
            The cell raised on a rank.
        GroupLostError
            The group has ended, perhaps because a rank died.
        KeyboardInterrupt
            It was interrupted; variables are kept.
        """
        there = globals_of_caller()
        is_auto = push == "auto"
        values = dict(push) if isinstance(push, Mapping) else there if is_auto else {}
        compiled = compile_group_cell(
            cell,
            values,
            push=() if is_auto else tuple(values),
            lacking=self.lacking(cell, there, targets) if is_auto else (),
            bring=tuple(bring),
            notebook_dir=work_folder(),
            keep_value=True,
        )
        self.check_environment(compiled, work_folder(), env_check)
        results = self.execute_compiled(compiled, targets, on_progress)
        results.raise_for_failure(there, "push={{'{0}': {0}}}")
        return results

    def lacking(
        self, cell: str, namespace: Mapping[str, Any], targets: Sequence[int] | None = None
    ) -> tuple[str, ...]:
        """Names that a cell reads, ``namespace`` has and one of the ranks lacks."""
        question = question_cell(cell, namespace)
        if question is None:
            return ()
        answers = self._transfer(question, targets).values
        return tuple(dict.fromkeys(name for answer in answers for name in answer.split()))

    def check_environment(
        self,
        compiled: CompiledGroupCell,
        folder: Path,
        mode: EnvCheck | None,
        on_notice: OnNotice = log.warning,
    ) -> None:
        """Compare the workers with this kernel, in what a cell imports; see `check_before`."""
        if not compiled.imports:
            return
        try:
            check_before(self.cluster, compiled.imports, folder, mode, on_notice)
        except WorkerEnvironmentError as error:
            if not isinstance(error.__cause__, ClusterError):
                raise
            # Nobody answers: what became of the group is told when the cell is sent.

    def execute_compiled(
        self,
        compiled: CompiledGroupCell,
        targets: Sequence[int] | None = None,
        on_progress: OnProgress | None = None,
        is_leaving: IsLeaving = lambda: False,
    ) -> RankResults:
        """The same for a compiled cell; the results tell whether it failed."""
        data, contents = with_data(compiled.cell.data, self.cluster)
        cell = msgspec.structs.replace(compiled.cell, data=data)
        if blobs := (*compiled.blobs, *contents):
            directories = blob_dirs()
            for digest, content in blobs:
                put_blob(content, directories, digest)
            session().hand_over(self.cluster, (digest for digest, _ in blobs))
        chosen = tuple(range(self.n_ranks)) if targets is None else tuple(targets)
        logs = RankLogs(
            {
                rank: (self._logs[rank], self._log_ends[rank])
                for rank in chosen
                if rank in self._logs
            },
            beside=self.directory / "outputs" / CURRENT,
        )
        request = ExecuteCell(self.id, cell, None if targets is None else chosen)
        wait = CellWait(session(), self.cluster, request, logs, is_leaving)
        result = wait.run(on_progress)
        ends = {done.rank: done.log_end for done in result.ranks}
        self._log_ends.update({done.rank: done.next_log_start for done in result.ranks})
        return RankResults(result, logs.final(ends), self.directory)

    def push(self, values: Mapping[str, Any], targets: Sequence[int] | None = None) -> None:
        """Put variables into the ranks' namespaces."""
        self._transfer(transfer_cell(values, globals_of_caller()), targets)

    def pull(self, name: str, targets: Sequence[int] | None = None) -> list[Any]:
        """A variable's value on each rank.

        Raises
        ------
        RankFailedError
            It is not there, or cannot be pickled.
        """
        results = self._transfer(transfer_cell({}, {}, bring=(name,)), targets)
        return [results.value(name, rank) for rank in results.ranks]

    @property
    def files(self) -> RunFiles:
        """What the ranks have written where the notebook does not see it; see :attr:`Run.files`."""
        return Run(self.id).files

    def close(self) -> None:
        """End the ranks; their variables are lost, logs and record stay."""
        session().ask(self.cluster, CloseGroup(self.id), _OPEN_TIMEOUT_S)

    def __enter__(self) -> RankGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RankGroup {self.id}: {self.n_ranks} ranks on cluster {self.cluster}>"

    def _transfer(self, compiled: CompiledGroupCell, targets: Sequence[int] | None) -> RankResults:
        results = self.execute_compiled(compiled, targets)
        results.raise_for_failure()
        return results


def open_group(
    n_ranks: int | None = None,
    *,
    backend: CollectiveBackend = "auto",
    gpus_per_rank: int | None = None,
    initialize: bool = True,
    name: str = DEFAULT_GROUP,
    reset: bool = False,
    env_check: EnvCheck | None = None,
    on_phase: Callable[[str], None] = lambda _: None,
    on_notice: OnNotice = log.warning,
) -> RankGroup:
    """The cluster's persistent group of a name: the one that is open, or a new one.

    Parameters
    ----------
    n_ranks : int, optional
        By default one rank per free slot.
    backend : str
        Of a new group: ``auto``, ``gloo`` or ``nccl``.
    gpus_per_rank : int, optional
        Of a new group; by default one each where the workers have as many, else none.
    initialize : bool
        Whether a new group initialises ``torch.distributed``, where torch is installed.
    reset : bool
        End the open one first.
    env_check : str, optional
        What to do when environments differ, as ``--env-check``.
    on_phase : callable
        Gets one short sentence per step.
    on_notice : callable
        Gets what is worth a warning.

    Raises
    ------
    WorkerEnvironmentError
        The workers' environment is not the kernel's, and ``env_check`` does not let that pass.
    PlacementError
        It does not fit; the message says who holds the slots.
    LaunchError
        A rank can't be started.
    """
    verb = CellGroup(
        n_ranks=n_ranks,
        backend=backend,
        gpus_per_rank=gpus_per_rank,
        initialize=initialize,
        name=name,
        reset=reset,
    )
    return group_of(verb, env_check=env_check, on_phase=on_phase, on_notice=on_notice)


def group_of(
    verb: CellGroup,
    *,
    line: str = "",
    env_check: EnvCheck | None = None,
    on_phase: Callable[[str], None] = lambda _: None,
    on_notice: OnNotice = log.warning,
) -> RankGroup:
    """The group that a line means; see :func:`open_group`."""
    cluster = session().ensure(on_phase)
    tell_of_folder(cluster, on_notice)
    # What its cells will import is not known; that they can be sent at all is.
    environment = check_before(cluster, verb.imports, work_folder(), env_check, on_notice)
    draft = verb.compile("", {}, CellContext(None, work_folder()), CellOptions())
    provenance = msgspec.structs.replace(collect(line, "", None, ()), environment=environment)
    spec = draft.submitted(new_run_id(), cluster, provenance)
    result = _opened(cluster, OpenGroup(spec, verb.reset), on_notice)
    group = RankGroup(cluster, result.status)
    if result.is_new:
        on_phase(f"group {group.id} of {group.n_ranks} ranks is ready")
    return group


def _opened(cluster: str, request: OpenGroup, on_notice: OnNotice) -> GroupResult:
    """Wait for a group, and tell who waits for whom once that takes long."""
    future = session().begin(cluster, request, _OPEN_TIMEOUT_S)
    told = ""
    try:
        while not concurrent.futures.wait([future], timeout=_ASK_AGAIN_S).done:
            with contextlib.suppress(JupyterDDLError):  # the answer itself tells what is wrong
                poll = PollCell(request.spec.run_id)
                seen = session().ask(cluster, poll, _ASK_TIMEOUT_S)
                if isinstance(seen, CellResult) and seen.note not in ("", told):
                    told = seen.note
                    on_notice(told)
    except BaseException:
        future.cancel()
        raise
    result = future.result()
    if isinstance(result, GroupResult):
        return result
    raise ProtocolError(f"the controller answered {type(result).__name__} instead of a group")
