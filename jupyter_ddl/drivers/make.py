"""The driver of a run, by its verb."""

from __future__ import annotations

from jupyter_ddl.drivers.assigning import RunContext
from jupyter_ddl.drivers.fit import FitDriver
from jupyter_ddl.drivers.judge import Judge, PlainJudge, PruningJudge
from jupyter_ddl.drivers.remote_sampler import RemoteSamplerLink
from jupyter_ddl.drivers.source import MapSource, StudySource, TrialSource
from jupyter_ddl.drivers.trials import TrialDriver
from jupyter_ddl.ledger.file import LedgerWriter
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.sampling import SamplerStart, StudySpec
from jupyter_ddl.search.pruners import make_pruner
from jupyter_ddl.search.study import Study
from jupyter_ddl.verbs.fit import Fit

__all__ = ["make_driver"]


def make_driver(
    spec: RunSpec, ledger: LedgerWriter, state: RunState, context: RunContext
) -> TrialDriver | FitDriver:
    """A driver that goes on from ``state``.

    Raises
    ------
    JupyterDDLError
        A sampler, pruner or space that no study can be made of.
    """
    if isinstance(spec.verb, Fit):
        return FitDriver(spec, spec.verb, ledger, state, context)
    max_parallel = spec.verb.max_parallel or max(1, context.slots.n_slots)
    asked = spec.verb.study
    if asked is None:
        source: TrialSource = MapSource(spec.n_trials)
        return TrialDriver(spec, source, PlainJudge(max_parallel), ledger, state, context)
    study = Study(asked, spec.seed, asked.window or 2 * max_parallel)
    link = _sampler_link(spec, asked, study, context) if study.is_remote else None
    source = StudySource(study, link)
    return TrialDriver(spec, source, _judge(asked, max_parallel), ledger, state, context)


def _sampler_link(
    spec: RunSpec, asked: StudySpec, study: Study, context: RunContext
) -> RemoteSamplerLink:
    start = SamplerStart(
        name=asked.sampler.name,
        in_notebook=asked.sampler.in_notebook,
        seed=spec.seed,
        metric=asked.metric,
        mode=asked.mode,
        n_trials=study.n_trials,
        space=asked.space,
        options=asked.sampler.options,
        program=context.program_digest,
    )
    return RemoteSamplerLink(
        context.dispatcher,
        context.slots,
        start,
        run_id=spec.run_id,
        program=context.program_digest,
        run_dir=str(context.run_dir),
        blob_dirs=context.blob_dirs,
    )


def _judge(asked: StudySpec, max_parallel: int) -> Judge:
    if asked.pruner.name == "none":
        return PlainJudge(max_parallel)
    return PruningJudge(max_parallel, make_pruner(asked.pruner, asked.mode), asked.metric)
