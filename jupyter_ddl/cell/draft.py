"""From a verb and its finished program to a run that can be submitted."""

from __future__ import annotations

import argparse
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.cell.data_files import DATA_LIMIT_BYTES
from jupyter_ddl.cell.options import MAX_PROFILED, CellOptions, read_budget
from jupyter_ddl.cell.work_folder import work_folder
from jupyter_ddl.errors import OptionError
from jupyter_ddl.protocol.prices import Budget
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import Limits, Provenance, RunSpec
from jupyter_ddl.protocol.verb import VerbSpec

__all__ = ["CellContext", "RunDraft", "draft_run"]


_ON_TORCH = frozenset(
    ("torch", "torchvision", "lightning", "pytorch_lightning", "transformers", "accelerate")
)
"""Packages whose steps are those of torch's optimizers."""


@dataclass(frozen=True, slots=True)
class CellContext:
    """Where the cell stands.

    Attributes
    ----------
    cell_number : int or None
        The ``n`` of ``In [n]``; None where there is none.
    notebook_dir : Path
        Folder of the notebook; modules below it travel.
    main_globals : mapping, optional
        Globals of functions defined in the notebook; by default the namespace itself.  Those
        functions will see the names of the rank that they run in.
    """

    cell_number: int | None
    notebook_dir: Path
    main_globals: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDraft:
    """What is submitted, but for its id, its cluster, its time and where it comes from.

    Attributes
    ----------
    blobs : tuple of (str, bytes or memoryview)
        Digests and bytes of the payload, its buffers (the notebook's own memory) and modules.
    notes : tuple of str
        Sentences worth telling the user.
    data_limit_bytes : int
        Of the files beside the notebook that travel where they are not shared.
    """

    spec: RunSpec
    blobs: tuple[tuple[str, bytes | memoryview], ...] = ()
    notes: tuple[str, ...] = ()
    data_limit_bytes: int = DATA_LIMIT_BYTES

    @property
    def imports(self) -> frozenset[str]:
        """Top-level modules that it needs on the workers."""
        return frozenset((*self.spec.program.imports, *self.spec.verb.imports))

    def submitted(self, run_id: str, cluster: str, provenance: Provenance) -> RunSpec:
        """The run, as it is submitted now."""
        return msgspec.structs.replace(
            self.spec,
            run_id=run_id,
            cluster=cluster,
            created_at_s=time.time(),
            folder=str(work_folder()),
            provenance=provenance,
        )


def draft_run(
    verb: VerbSpec,
    options: CellOptions,
    program: Program,
    blobs: Iterable[tuple[str, bytes | memoryview]] = (),
    *,
    max_failures: int,
    notes: Iterable[str] = (),
) -> RunDraft:
    """The draft of a run.

    Parameters
    ----------
    max_failures : int
        Failures of its own code that end a trial.
    """
    spec = RunSpec(
        run_id="",
        verb=verb,
        program=program,
        seed=secrets.randbits(32) if options.seed is None else options.seed,
        cluster="",
        created_at_s=0.0,
        name=options.name,
        bring=options.bring,
        bring_files=options.bring_files,
        isolate=options.isolate,
        limits=Limits(
            timeout_s=options.timeout_s,
            max_own_failures=max_failures,
            admission_timeout_s=options.admission_timeout_s,
            budget=_budget(options.budget, verb),
        ),
        tensorboard=options.tensorboard,
        profile=_profile(options.profile, verb, program),
    )
    return RunDraft(
        spec=spec,
        blobs=tuple(blobs),
        notes=tuple(notes),
        data_limit_bytes=options.capture_limit_bytes or DATA_LIMIT_BYTES,
    )


def _budget(given: object, verb: VerbSpec) -> Budget | msgspec.UnsetType:
    """What the run may cost: a number from Python is money, as on the line.

    Raises
    ------
    OptionError
        It is no amount.
    """
    if given is None:
        return msgspec.UNSET
    if isinstance(given, Budget):
        return given
    try:
        return read_budget(str(given))
    except argparse.ArgumentTypeError as error:
        raise OptionError(f"%%distribute {verb.word}: --budget: {error}") from None


def _profile(n_steps: int | None, verb: VerbSpec, program: Program) -> int | msgspec.UnsetType:
    """Steps to record, where there can be any.

    Raises
    ------
    OptionError
        It is no such number, or the cell has no steps that are known.
    """
    if n_steps is None:
        return msgspec.UNSET
    is_whole = isinstance(n_steps, int) and not isinstance(n_steps, bool)
    if not is_whole or not 1 <= n_steps <= MAX_PROFILED:
        raise OptionError(
            f"%%distribute {verb.word}: --profile: {n_steps!r}; expected a whole number from 1 to "
            f"{MAX_PROFILED}"
        )
    if _ON_TORCH.isdisjoint(program.imports):
        imports = ", ".join(program.imports) or "nothing"
        raise OptionError(
            f"%%distribute {verb.word}: --profile {n_steps}: the cell imports {imports}, expected "
            f"torch: only steps of its optimizers are known; leave --profile out"
        )
    return n_steps
