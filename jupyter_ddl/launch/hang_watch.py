"""Watches the steps of one round; when none come, has its ranks looked at, and says who hangs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from jupyter_ddl.launch.dispatcher import Dispatcher
from jupyter_ddl.launch.hang import Blame
from jupyter_ddl.launch.watch import StepWatch
from jupyter_ddl.protocol.assignment import Assignment, DumpStacks
from jupyter_ddl.protocol.events import HangVerdict, Probe, RankEvent

__all__ = ["HangWatch"]

log = logging.getLogger(__name__)

_INTERVAL_S = 1.0
_PROBE_TIMEOUT_S = 6.0


class HangWatch:
    """Used on the controller's loop only; ``run`` ends with the first verdict.

    Parameters
    ----------
    on_hang : callable
        Gets the verdict, once the stacks of all ranks lie in the run's directory.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        assignments: Sequence[Assignment],
        workers: Sequence[str],
        timeout_s: float | None,
        on_hang: Callable[[HangVerdict], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._assignment = assignments[0]
        self._workers = tuple(workers)
        self._on_hang = on_hang
        self._epoch_s = time.time() - time.monotonic()
        self._steps = StepWatch(len(workers), timeout_s, time.monotonic())
        self._probes: dict[int, Probe] = {}
        self._probed = asyncio.Event()

    def observe(self, rank: int, event: RankEvent) -> None:
        """Take note of what a rank, or its worker, has sent."""
        if isinstance(event, Probe):
            self._probes[rank] = event
            self._probed.set()
        else:
            self._steps.observe(rank, event, time.monotonic())

    def liveness(self) -> dict[int, tuple[str, float]]:
        """Phase of each running rank, and the Unix seconds at which it last moved."""
        moved = self._steps.moved()
        return {rank: (phase, at_s + self._epoch_s) for rank, (phase, at_s) in moved.items()}

    async def run(self) -> None:
        """Look once a second, until cancelled or somebody is to blame."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            if not self._steps.is_due(time.monotonic()):
                continue
            await self._probe()
            blame = self._steps.judge(self._probes, time.monotonic())
            if blame is not None:
                await self._tell(blame)
                return

    async def _probe(self) -> None:
        self._probes.clear()
        trial = self._assignment.trials[0]
        message = DumpStacks(self._assignment.run_id, trial.trial, trial.attempt)
        workers = {self._workers[rank] for rank in self._steps.running}
        asking = [asyncio.create_task(self._dispatcher.control(w, message)) for w in workers]
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S):
                while self._steps.running - self._probes.keys():
                    self._probed.clear()
                    await self._probed.wait()
        except TimeoutError:
            missing = sorted(self._steps.running - self._probes.keys())
            log.warning("%s: ranks %s can't be looked at", self._assignment.run_id, missing)
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def _tell(self, blame: Blame) -> None:
        trial = self._assignment.trials[0]
        name = f"stacks/{trial.trial}-a{trial.attempt}"
        directory = Path(self._assignment.run_dir) / name
        texts = {rank: probe.stacks for rank, probe in self._probes.items()}
        with contextlib.suppress(OSError):  # on a full disk the verdict is worth more than these
            await asyncio.to_thread(_write, directory, texts)
        verdict = HangVerdict(
            trial=trial.trial,
            attempt=trial.attempt,
            rank=blame.rank,
            at_s=time.time(),
            text=blame.text,
            line=blame.line,
            stacks_file=name,
        )
        self._on_hang(verdict)


def _write(directory: Path, texts: dict[int, str]) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for rank, text in texts.items():
        path = directory / f"rank-{rank}.txt"
        path.write_text(text or "this rank has written no stacks\n")
        path.chmod(0o600)
