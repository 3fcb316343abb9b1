"""A sampler of the user's own, asked over the cluster: it lives in a rank, never here.

All requests are remembered.  When the process is lost with its worker, another one is sent the
whole sequence again, so that the sampler comes back into the state it had.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from jupyter_ddl.driving.dispatcher import Dispatcher
from jupyter_ddl.errors import LaunchError, TrialError
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.sampling import (
    Ask,
    Asked,
    Finish,
    SamplerAnswers,
    SamplerCall,
    SamplerFailed,
    SamplerReply,
    SamplerRequest,
    SamplerStart,
    ShouldStop,
    StopDecision,
    Tell,
    TrialRecord,
)
from jupyter_ddl.protocol.space import ParamValue

__all__ = ["RemoteSamplerLink"]

log = logging.getLogger(__name__)

_MAX_LOSSES = 20
_RETRY_S = 0.5


class RemoteSamplerLink:
    """Tells and asks one sampler.  Used on the controller's loop only."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        slots: SlotBook,
        start: SamplerStart,
        *,
        run_id: str,
        program: str,
        run_dir: str,
        blob_dirs: tuple[str, ...],
    ) -> None:
        self._dispatcher = dispatcher
        self._slots = slots
        self._call = SamplerCall(
            run_id=run_id,
            start=start,
            program=program,
            run_dir=run_dir,
            blob_dirs=blob_dirs,
            offset=0,
            requests=(),
        )
        self._history: list[SamplerRequest] = []
        self._worker: str | None = None
        self._turn = asyncio.Lock()

    async def ask(self, number: int, tells: Sequence[TrialRecord]) -> dict[str, ParamValue] | None:
        """The sampler's next proposal, after it was told ``tells``.

        Raises
        ------
        TrialError
            A hook raised; the message has the user's line.
        """
        reply = await self._send([*map(Tell, tells), Ask(number)])
        return reply.params if isinstance(reply, Asked) else None

    async def should_stop(self, record: TrialRecord) -> bool:
        """Whether the sampler wants a running trial to stop."""
        reply = await self._send([ShouldStop(record)])
        return isinstance(reply, StopDecision) and reply.stop

    async def finish(self, tells: Sequence[TrialRecord]) -> None:
        """Tell the last results, call the last hook, end the process."""
        await self._send([*map(Tell, tells), Finish()], close=True)

    async def _send(self, requests: list[SamplerRequest], *, close: bool = False) -> SamplerReply:
        async with self._turn:
            for _ in range(_MAX_LOSSES):
                answers = await self._try(requests, close)
                if answers is not None:
                    self._history.extend(requests)
                    return _last_of(answers)
                await asyncio.sleep(_RETRY_S)
        raise TrialError(f"the sampler's process was lost {_MAX_LOSSES} times; see `%cluster logs`")

    async def _try(self, requests: list[SamplerRequest], close: bool) -> SamplerAnswers | None:
        """Answers, or None when the process is lost and the next try starts over."""
        known = set(self._slots.addresses())
        if self._worker not in known:
            self._worker = min(known, default=None)
        if self._worker is None:
            return None
        offset = len(self._history)
        answers = await self._ask(offset, requests, close)
        if answers is not None and answers.n_seen != offset:
            # Another process than before: it has to live through everything first.
            answers = await self._ask(0, [*self._history, *requests], close)
        if answers is None or _is_lost(answers):
            return None
        return answers

    async def _ask(
        self, offset: int, requests: Sequence[SamplerRequest], close: bool
    ) -> SamplerAnswers | None:
        call = self._call
        message = SamplerCall(
            run_id=call.run_id,
            start=call.start,
            program=call.program,
            run_dir=call.run_dir,
            blob_dirs=call.blob_dirs,
            offset=offset,
            requests=tuple(requests),
            close=close,
        )
        try:
            return await self._dispatcher.ask_sampler(str(self._worker), message)
        except LaunchError as error:
            log.info("sampler of %s: %s", call.run_id, error.message)
            return None


def _is_lost(answers: SamplerAnswers) -> bool:
    last = answers.replies[-1] if answers.replies else None
    return isinstance(last, SamplerFailed) and last.type_name == "SamplerLost"


def _last_of(answers: SamplerAnswers) -> SamplerReply:
    """The last answer; the first failure is raised."""
    for reply in answers.replies:
        if isinstance(reply, SamplerFailed):
            where = f" at line {reply.line}" if reply.line is not None else ""
            raise TrialError(
                f"the sampler's {reply.hook}() failed{where}: {reply.type_name}: {reply.message}",
                traceback=reply.traceback,
                line=reply.line,
            )
    return answers.replies[-1]
