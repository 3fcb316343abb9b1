"""The driver of a run, by its verb."""

from __future__ import annotations

from jupyter_ddl.drivers.judge import Judge, PlainJudge, PruningJudge
from jupyter_ddl.drivers.source import MapSource, StudySource, TrialSource
from jupyter_ddl.drivers.trials import RunContext, TrialDriver
from jupyter_ddl.events.ledger import LedgerWriter
from jupyter_ddl.events.run_state import RunState
from jupyter_ddl.search.pruners import make_pruner
from jupyter_ddl.search.study import Study
from jupyter_ddl.spec.run import MapSpec, RunSpec, SearchSpec

__all__ = ["make_driver"]


def make_driver(
    spec: RunSpec, ledger: LedgerWriter, state: RunState, context: RunContext
) -> TrialDriver:
    """A driver that goes on from ``state``.

    Raises
    ------
    JupyterDDLError
        A sampler, pruner or space that no study can be made of.
    """
    max_parallel = spec.verb.max_parallel or max(1, context.slots.n_slots)
    if isinstance(spec.verb, MapSpec):
        source: TrialSource = MapSource(spec.verb.n_items)
        return TrialDriver(spec, source, PlainJudge(max_parallel), ledger, state, context)
    source = StudySource(Study(spec.verb, spec.seed, spec.verb.window or 2 * max_parallel), None)
    return TrialDriver(spec, source, _judge(spec.verb, max_parallel), ledger, state, context)


def _judge(verb: SearchSpec, max_parallel: int) -> Judge:
    if verb.pruner.name == "none":
        return PlainJudge(max_parallel)
    return PruningJudge(max_parallel, make_pruner(verb.pruner, verb.mode), verb.metric)
