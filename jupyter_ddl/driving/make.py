"""The driver of a run, by its verb, and the slow work that its machine asks for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from jupyter_ddl.driving.assignments import RunContext
from jupyter_ddl.driving.dispatcher import Dispatcher
from jupyter_ddl.driving.fit_events import (
    DropAll,
    ImportModules,
    LookAtClient,
    ReadPast,
    past_of_fit,
)
from jupyter_ddl.driving.fits import FitMachine
from jupyter_ddl.driving.machine import (
    AskHeld,
    AskSampler,
    AskStop,
    FinishSampler,
    KeepBlobs,
    LookForBlobs,
    Replay,
    Think,
    Work,
    WriteStacks,
)
from jupyter_ddl.driving.pruning import PruningPolicy, make_policy
from jupyter_ddl.driving.run_blobs import RunBlobs
from jupyter_ddl.driving.sampler_link import RemoteSamplerLink
from jupyter_ddl.driving.shell import RunDriver, RunMachine
from jupyter_ddl.driving.sources import StudySource, TrialSource, make_source
from jupyter_ddl.driving.trials import TrialMachine
from jupyter_ddl.errors import TrialError
from jupyter_ddl.ledger.reader import read_ledger
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.assignment import Control, Prewarm
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.sampling import SamplerStart, StudySpec
from jupyter_ddl.store.host_limits import host_limits
from jupyter_ddl.store.processes import ProcessIdentity, boot_id, is_alive, is_gone
from jupyter_ddl.studies.study import Study
from jupyter_ddl.verbs.fit import Fit

__all__ = ["make_driver"]

_OUTPUTS_SHARE = 0.25
_UNSEEN_S = 600.0
"""For so long a kernel in another container may compute and ask nothing."""
"""Of a host's memory, how much outputs of prefixes may take."""


def make_driver(
    spec: RunSpec,
    ledger: LedgerWriter,
    state: RunState,
    context: RunContext,
    dispatcher: Dispatcher,
    wake_all: Callable[[], None],
) -> RunDriver:
    """A driver that goes on from ``state``.

    Raises
    ------
    JupyterDDLError
        A sampler, pruner or space that no study can be made of.
    """
    machine: RunMachine
    if spec.verb.is_fed:
        verb = Fit.of(spec)
        host_bytes = int(host_limits().memory_bytes * _OUTPUTS_SHARE)
        bound_bytes = verb.memory_bytes or host_bytes
        machine = FitMachine(spec, verb, state, context, bound_bytes)
        do = _FitWork(ledger.path, dispatcher).do
    else:
        max_parallel = spec.verb.max_parallel or max(1, context.slots.n_slots)
        source, policy = make_source(spec, max_parallel), make_policy(spec, max_parallel)
        machine = TrialMachine(spec, source, policy, state, context)
        link = None
        asked = spec.verb.study
        if asked is not None and isinstance(source, StudySource):
            link = _sampler_link(spec, asked, source.study, context, dispatcher)
        do = _SlowWork(
            source,
            policy,
            state,
            ledger.path,
            context.run_dir,
            link,
            dispatcher.holds,
            RunBlobs(spec, context.blob_dirs, context.make_room),
        ).do
    return RunDriver(
        machine,
        ledger,
        dispatcher,
        do,
        run_dir=context.run_dir,
        slots=context.slots,
        wake_all=wake_all,
    )


class _FitWork:
    """Does what a machine of fits asks for."""

    def __init__(self, ledger_path: Path, dispatcher: Dispatcher) -> None:
        self._ledger_path = ledger_path
        self._dispatcher = dispatcher

    async def do(self, work: Work) -> object:
        match work:
            case ReadPast():
                return await asyncio.to_thread(self._read_past)
            case ImportModules(workers=workers, imports=imports):
                await self._tell(workers, Prewarm(imports))
            case DropAll(workers=workers, message=message):
                await self._tell(workers, message)
            case AskHeld(assignment_id=name):
                return await self._dispatcher.holds(name)
            case LookAtClient(client=client, silent_s=silent_s):
                return client is not None and _may_feed(client, silent_s)
        return None

    def _read_past(self) -> object:
        return past_of_fit(read_ledger(self._ledger_path))

    async def _tell(self, workers: Sequence[str], control: Control) -> None:
        await asyncio.gather(*(self._dispatcher.control(each, control) for each in workers))


def _may_feed(client: ProcessIdentity, silent_s: float) -> bool:
    """Whether the process that feeds may still do so.

    It reaches this controller through a socket, so it is of the same boot; in another container it
    can't be seen, and only what is heard of it tells.
    """
    if client.boot_id != boot_id() or is_gone(client):
        return False
    return is_alive(client) or silent_s < _UNSEEN_S


class _SlowWork:
    """Does what a machine of trials asks for: in a thread, or in a rank process."""

    def __init__(
        self,
        source: TrialSource,
        policy: PruningPolicy,
        state: RunState,
        ledger_path: Path,
        run_dir: Path,
        link: RemoteSamplerLink | None,
        holds: Callable[[str], Awaitable[bool]],
        blobs: RunBlobs,
    ) -> None:
        self._holds = holds
        self._source = source
        self._policy = policy
        self._state = state
        self._ledger_path = ledger_path
        self._run_dir = run_dir
        self._link = link
        self._blobs = blobs

    async def do(self, work: Work) -> object:
        match work:
            case Think() if isinstance(self._source, StudySource):
                return await asyncio.to_thread(self._source.study.ask)
            case AskSampler(number=number, tells=tells):
                return await self._sampler.ask(number, tells)
            case AskHeld(assignment_id=name):
                return await self._holds(name)
            case AskStop(record=record):
                return await self._sampler.should_stop(record)
            case FinishSampler(tells=tells):
                await self._sampler.finish(tells)
            case Replay():
                await asyncio.to_thread(self._replay, work)
            case LookForBlobs():
                return await self._blobs.check()
            case KeepBlobs():
                return await self._blobs.keep()
            case WriteStacks(directory=directory, texts=texts):
                with contextlib.suppress(OSError):  # the verdict is worth more than these
                    await asyncio.to_thread(_write_stacks, self._run_dir / directory, texts)
        return None

    @property
    def _sampler(self) -> RemoteSamplerLink:
        if self._link is None:
            raise TrialError("the sampler of this search has no process to run in")
        return self._link

    def _replay(self, work: Replay) -> None:
        self._source.replay(work.records)
        if work.reads_ledger:
            self._policy.begin(read_ledger(self._ledger_path), self._state)


def _write_stacks(directory: Path, texts: dict[int, str]) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for rank, text in texts.items():
        path = directory / f"rank-{rank}.txt"
        path.write_text(text or "this rank has written no stacks\n")
        path.chmod(0o600)


def _sampler_link(
    spec: RunSpec, asked: StudySpec, study: Study, context: RunContext, dispatcher: Dispatcher
) -> RemoteSamplerLink | None:
    if not study.is_remote:
        return None
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
        folder=spec.folder,
    )
    return RemoteSamplerLink(
        dispatcher,
        context.slots,
        start,
        run_id=spec.run_id,
        program=context.program_digest,
        run_dir=str(context.run_dir),
        blob_dirs=context.blob_dirs,
    )
