"""Persistent groups from Python: the twin of ``%%distribute run``."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.cell.common_options import EnvCheck
from jupyter_ddl.cell.group_cell import CompiledGroupCell, compile_group_cell, transfer_cell
from jupyter_ddl.cell.provenance import collect
from jupyter_ddl.cell.run_options import DEFAULT_GROUP
from jupyter_ddl.client.cell_wait import CellWait, OnProgress
from jupyter_ddl.client.environment import OnNotice, check_before, folder_of
from jupyter_ddl.client.rank_results import RankResults
from jupyter_ddl.client.rank_text import RankLogs
from jupyter_ddl.client.session import session
from jupyter_ddl.client.submit import new_run_id
from jupyter_ddl.client.waiting import IsLeaving
from jupyter_ddl.errors import ClusterError, ProtocolError, WorkerEnvironmentError
from jupyter_ddl.events.replies import GroupResult
from jupyter_ddl.events.status import GroupStatus
from jupyter_ddl.spec.group import CollectiveBackend
from jupyter_ddl.spec.program import Program
from jupyter_ddl.spec.requests import CloseGroup, ExecuteCell, OpenGroup
from jupyter_ddl.spec.run import GroupSpec, RunSpec
from jupyter_ddl.store.blobs import put_blob
from jupyter_ddl.store.paths import blob_dirs, run_dir

__all__ = ["RankGroup", "open_group"]

log = logging.getLogger(__name__)

_OPEN_TIMEOUT_S = 240.0


class RankGroup:
    """A hand on a persistent group.  The group goes on without it."""

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
        push: Mapping[str, Any] | None = None,
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
        push : mapping, optional
            Variables that the ranks are given before.
        bring : sequence of str
            Variables to bring home; see :meth:`RankResults.value`.
        on_progress : callable, optional
            Gets the output while the cell runs.
        env_check : str, optional
            What a package that it imports and the workers have otherwise comes to: as
            ``--env-check``.

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
        compiled = compile_group_cell(
            cell,
            {**(push or {})},
            push=tuple(push or ()),
            bring=tuple(bring),
            notebook_dir=Path.cwd(),
            keep_value=True,
        )
        self.check_environment(compiled, Path.cwd(), env_check)
        results = self.execute_compiled(compiled, targets, on_progress)
        results.raise_for_failure()
        return results

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
        if compiled.blobs:
            directories = blob_dirs()
            for digest, data in compiled.blobs:
                put_blob(data, directories, digest)
        chosen = tuple(range(self.n_ranks)) if targets is None else tuple(targets)
        logs = RankLogs(
            {
                rank: (self._logs[rank], self._log_ends[rank])
                for rank in chosen
                if rank in self._logs
            }
        )
        request = ExecuteCell(self.id, compiled.cell, None if targets is None else chosen)
        wait = CellWait(session(), self.cluster, request, logs, is_leaving)
        result = wait.run(on_progress)
        ends = {done.rank: done.log_end for done in result.ranks}
        self._log_ends.update(ends)
        return RankResults(result, logs.final(ends), self.directory)

    def push(self, values: Mapping[str, Any], targets: Sequence[int] | None = None) -> None:
        """Put variables into the ranks' namespaces."""
        self._transfer(transfer_cell(values, _globals_of_caller()), targets)

    def pull(self, name: str, targets: Sequence[int] | None = None) -> list[Any]:
        """A variable's value on each rank.

        Raises
        ------
        RankFailedError
            It is not there, or cannot be pickled.
        """
        results = self._transfer(transfer_cell({}, {}, bring=(name,)), targets)
        return [results.value(name, rank) for rank in results.ranks]

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
    line: str = "",
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
        What differences of environments come to, as ``--env-check``.
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
    cluster = session().ensure(on_phase)
    # What its cells will import is not known; that they can be sent at all is.
    needed = ["torch"] if initialize else []
    environment = check_before(cluster, needed, folder_of(None), env_check, on_notice)
    spec = RunSpec(
        run_id=new_run_id(),
        verb=GroupSpec(
            n_ranks=n_ranks,
            backend=backend,
            gpus_per_rank=gpus_per_rank,
            initialize=initialize,
            name=name,
        ),
        program=Program("", ""),
        seed=0,
        cluster=cluster,
        created_at_s=time.time(),
        name="" if name == DEFAULT_GROUP else name,
        provenance=msgspec.structs.replace(collect(line, "", None, ()), environment=environment),
    )
    result = session().ask(cluster, OpenGroup(spec, reset), _OPEN_TIMEOUT_S)
    if not isinstance(result, GroupResult):
        raise ProtocolError(f"the controller answered {type(result).__name__} instead of a group")
    group = RankGroup(cluster, result.status)
    if result.is_new:
        on_phase(f"group {group.id} of {group.n_ranks} ranks is ready")
    return group


def _globals_of_caller() -> dict[str, Any]:
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("jupyter_ddl"):
        frame = frame.f_back
    return {} if frame is None else frame.f_globals
