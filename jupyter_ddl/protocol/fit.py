"""Scikit-learn fits on a cluster: what the kernel feeds, and what ranks are given to do.

A *prefix* is a leading part of a pipeline with its parameters; a *node* is one prefix on one fold,
computed once.  A *unit* is one call of scikit-learn's: a candidate on a fold, or one part of
another joblib-parallel call.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from jupyter_ddl.protocol.names import FileName
from jupyter_ddl.protocol.program import CapturedName, ModuleFile, Settings
from jupyter_ddl.protocol.space import ParamValue

__all__ = [
    "BatchKind",
    "DropOutputs",
    "FeedFit",
    "FinishFit",
    "FitCandidate",
    "FitEnding",
    "FitItem",
    "FitNode",
    "FitPrefix",
    "FitTable",
    "FitUnit",
    "FitWork",
    "TakeFit",
    "TellFit",
    "node_file",
]

BatchKind = Literal["score", "calls"]
"""``score``: scikit-learn's candidates on folds; ``calls``: any other parallel call."""


class FitPrefix(msgspec.Struct, frozen=True):
    """How ranks compute a prefix: the first ``n_steps`` steps of a candidate's pipeline.

    With ``path``, only that part of the last of these steps (a union's or column transformer's).
    """

    candidate: int
    """A candidate that has this prefix; all that have it would do."""
    n_steps: int
    """Steps from the pipeline's first, those that do nothing not counted."""
    path: tuple[int, ...] = ()
    """Positions of parts, and of steps within parts, that lead to a nested transformer."""
    parts: tuple[int, ...] = ()
    """Prefixes that are parts of this one."""


class FitTable(msgspec.Struct, frozen=True):
    """A batch as ranks need it; a blob, by content."""

    kind: BatchKind
    captures: tuple[CapturedName, ...]
    payload: str | None
    buffers: tuple[str, ...]
    modules: tuple[ModuleFile, ...] = ()
    """Files beside the notebook that the values come from."""
    settings: Settings | None = None
    prefixes: tuple[FitPrefix, ...] = ()
    keep_fitted: bool = False
    """Whether fitted transformers are kept beside their outputs: somebody may look at them."""
    is_verbose: bool = False
    """Whether what units print goes to the notebook, too."""


class FitCandidate(msgspec.Struct, frozen=True):
    """What becomes a trial: a candidate of a search, or one parallel call."""

    params: dict[str, ParamValue]
    n_units: int
    is_refit: bool = False
    """A parallel call of a search's refit: shown with the others, and not counted."""
    is_whole: bool = False
    """All its units are needed by who has asked for them: it can't be stopped alone."""


class FitNode(msgspec.Struct, frozen=True, array_like=True, gc=False):
    prefix: int
    fold: int
    parents: tuple[int, ...]
    """Indices of nodes of the batch whose outputs it needs."""


class FitUnit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    candidate: int
    fold: int
    """Fold, or number of the part."""
    nodes: tuple[int, ...]
    """Indices of nodes of the batch whose outputs it uses; the last one is the deepest."""
    key: bytes
    """Digest of all that the result depends on: what ``--resume`` goes by."""


class FeedFit(msgspec.Struct, frozen=True, tag="feed_fit"):
    """A part of a batch; indices go on from the parts before.  Feeding it again is harmless."""

    run_id: str
    batch: int
    part: int
    table: str
    candidates: tuple[FitCandidate, ...] = ()
    first_candidate: int = 0
    """How many candidates the cell had fed before this batch."""
    nodes: tuple[FitNode, ...] = ()
    units: tuple[FitUnit, ...] = ()
    notes: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    """Modules that zygotes import before they fork ranks for it."""
    is_last: bool = True
    cell_id: str = ""
    """Another one for every execution of a cell, and the same for all its controllers."""


class TakeFit(msgspec.Struct, frozen=True, tag="take_fit"):
    """Answered with results of a batch, at the latest after ``timeout_s``.

    The first ``n_taken`` of them were received and may be forgotten.
    """

    run_id: str
    batch: int
    n_taken: int
    timeout_s: float = 1.0


FitEnding = Literal["complete", "failed", "cancelled"]


class FinishFit(msgspec.Struct, frozen=True, tag="finish_fit"):
    """The cell is over, or (with ``batch``) only one batch that somebody gave up."""

    run_id: str
    state: FitEnding = "complete"
    reason: str = ""
    batch: int | None = None


class TellFit(msgspec.Struct, frozen=True, tag="tell_fit"):
    """How plain Dask work of the cell gets on: the kernel sees it, and no rank of ours does it."""

    run_id: str
    first_candidate: int
    """How many candidates the cell had fed when its Dask work began."""
    params: dict[str, ParamValue]
    step: int
    metrics: dict[str, float]
    is_over: bool = False


class DropOutputs(msgspec.Struct, frozen=True, tag="drop_outputs"):
    """Remove outputs of prefixes that nobody needs any more from a worker's host."""

    run_id: str
    names: tuple[FileName, ...]
    dirs: tuple[str, ...]


class FitItem(msgspec.Struct, frozen=True):
    """One thing for a rank to do: a unit, or with ``prefix`` a node."""

    number: int
    """Number of the attempt's trial in the assignment."""
    candidate: int
    fold: int
    prefix: int | None = None
    have: tuple[int, ...] = ()
    """Prefixes whose outputs on this fold lie on the host."""
    n_users: int = 0
    """Of a node: how many nodes and units will use its output."""


class FitWork(msgspec.Struct, frozen=True):
    """What an assignment carries beside its attempts."""

    table: str
    batch: int
    items: tuple[FitItem, ...]
    spill_dir: str
    memory_left_bytes: int
    """Outputs of nodes may take so much more memory on this host."""


def node_file(run_id: str, batch: int, prefix: int, fold: int) -> str:
    """Name of a node's file; the run id keeps runs apart, and blobs by content have no ``fit-``."""
    return f"fit-{run_id}-{batch}-{prefix}-{fold}"
