"""Assignments: what a worker is given to do, and the signals that reach it afterwards."""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec

from jupyter_ddl.protocol.fit import DropOutputs, FitWork
from jupyter_ddl.protocol.folder import WorkFolder
from jupyter_ddl.protocol.group import JoinGroup, MembersChanged, RankPlace
from jupyter_ddl.protocol.space import ParamValue

__all__ = [
    "Assignment",
    "Control",
    "Prewarm",
    "StopRun",
    "StopTrial",
    "StopWhen",
    "TrialAssignment",
    "derive_seed",
]


StopWhen: TypeAlias = Literal["next_report", "now"]


class TrialAssignment(msgspec.Struct, frozen=True):
    """One attempt at one trial.  ``(run, trial, attempt)`` fences late messages off."""

    trial: int
    attempt: int
    params: dict[str, ParamValue]
    seed: int
    """32-bit seed of python, numpy and torch for this trial; the same in every attempt."""
    item: int | None = None
    """Index into the mapped sequence (map only)."""


class Assignment(msgspec.Struct, frozen=True):
    """A batch of trials for one slot of one worker: what one Dask future carries.

    The worker executes ``trials`` in order in one rank process (reused from the
    run's previous assignment on this slot unless ``fresh_process``) and streams their events.
    """

    run_id: str
    assignment_id: str
    """Unique; the Dask key and the name of the rank's log file derive from it."""
    program: str
    """Digest of the msgpack-encoded :class:`~jupyter_ddl.protocol.program.Program` blob."""
    trials: tuple[TrialAssignment, ...]
    run_dir: str
    """The run's directory.  Logs go to ``<run_dir>/logs``, checkpoints to
    ``<run_dir>/checkpoints``, brought values to ``<run_dir>/values``."""
    blob_dirs: tuple[str, ...]
    """Directories in which to look for blobs by digest, in this order."""
    topic: str
    """Dask topic that the event chunks are published on."""
    metric: str | None = None
    mode: Literal["max", "min"] = "max"
    element: str | None = None
    """Map: the name bound to the element ``item`` of captured ``over``."""
    over: str | None = None
    bring: tuple[str, ...] = ()
    best_value: float | None = None
    """Best objective known when this was sent: a trial that does not beat it need not
    save its brought values.  None: save always."""
    fresh_process: bool = False
    place: RankPlace | None = None
    """Set for a rank of a group: then there is exactly one trial, and every rank of the group
    has an assignment of its own."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs of a trial that is not a group; ``place`` has those of a group."""
    stop_grace_s: float = 5.0
    folder: WorkFolder = WorkFolder()
    bring_files: tuple[str, ...] = ()
    warm: tuple[str, ...] = ()
    """Packages that the zygote imports before it forks a rank for this."""
    profile: int = 0
    """Steps that torch's profiler records; 0: none."""
    fit: FitWork | None = None
    """Set for scikit-learn's fits: the attempts are its nodes and units, not the program's."""

    @property
    def visible_gpus(self) -> tuple[str, ...]:
        """UUIDs of the GPUs that the rank may see, in the order of their CUDA numbers."""
        return self.gpus if self.place is None else self.place.gpus

    @property
    def own_gpus(self) -> tuple[str, ...]:
        """UUIDs of the GPUs that are this rank's own."""
        return self.gpus if self.place is None else self.place.own_gpus


class StopTrial(msgspec.Struct, frozen=True, tag="stop_trial"):
    """End one attempt: at its next report, or at once by the stop ladder.

    ``reason`` becomes the outcome.  ``moved`` is for an attempt that is to go on elsewhere;
    ``complete`` for one that counts with what it has, which is for its next report only.
    """

    run_id: str
    trial: int
    attempt: int
    reason: Literal["pruned", "cancelled", "moved", "complete"]
    when: StopWhen | Literal["next_checkpoint"] = "next_report"
    rank: int | None = None
    """Only this rank of a group; None: all."""
    grace_s: float | None = None
    """Between SIGTERM and SIGKILL; None: the assignment's own."""


class StopRun(msgspec.Struct, frozen=True, tag="stop_run"):
    """End everything of a run on this worker; also discards its idle rank processes."""

    run_id: str
    when: StopWhen = "now"
    is_over: bool = False
    """The run has ended and sends nothing more, so its sampler goes, too.  Otherwise an assignment
    that is still on its way to the worker is not begun."""


class Prewarm(msgspec.Struct, frozen=True, tag="prewarm"):
    """Import these installed packages in the worker's zygote ahead of need."""

    imports: tuple[str, ...]


class DumpStacks(msgspec.Struct, frozen=True, tag="dump_stacks"):
    """Have the ranks of an attempt looked at: each answers with a ``Probe``."""

    run_id: str
    trial: int
    attempt: int


Control: TypeAlias = (
    StopTrial | StopRun | Prewarm | JoinGroup | MembersChanged | DumpStacks | DropOutputs
)


def derive_seed(run_seed: int, trial: int) -> int:
    """Seed of one trial: the same run seed and number always give the same seed.

    Hashed and not added, so that run seeds 1 and 2 share no stream of random numbers.

    Parameters
    ----------
    run_seed : int
        Any integer.
    trial : int
        The trial's number, from 0.

    Returns
    -------
    int
        Between 0 and 2**32 - 1, the range that numpy's legacy generator accepts.
    """
    digest = blake2b(f"{run_seed}:{trial}".encode(), digest_size=4, person=b"ddl-trial-seed")
    return int.from_bytes(digest.digest(), "big")
