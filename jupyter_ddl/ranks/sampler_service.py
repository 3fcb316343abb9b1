"""Serves one run's own sampler inside a rank process."""

from __future__ import annotations

from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.protocol.folder import WorkFolder
from jupyter_ddl.protocol.sampling import (
    SamplerAnswers,
    SamplerCall,
    SamplerFailed,
    SamplerReply,
    SamplerRequest,
)
from jupyter_ddl.ranks.program import load_program
from jupyter_ddl.ranks.sampler_host import SamplerHost
from jupyter_ddl.ranks.work_folder import enter_folder

__all__ = ["SamplerService"]


class SamplerService:
    """Holds the sampler between calls; used on the rank's main thread."""

    def __init__(self) -> None:
        self._host: SamplerHost | None = None
        self._n_seen = 0

    def answer(self, call: SamplerCall) -> SamplerAnswers:
        """Answer the requests, or none when this process is not the one that saw those before."""
        if call.offset != self._n_seen:
            return SamplerAnswers((), self._n_seen)
        replies = tuple(self._reply(call, request) for request in call.requests)
        n_before, self._n_seen = self._n_seen, self._n_seen + len(replies)
        return SamplerAnswers(replies, n_before)

    def _reply(self, call: SamplerCall, request: SamplerRequest) -> SamplerReply:
        if self._host is None:
            try:
                enter_folder(WorkFolder(call.start.folder))
                program = load_program(call.assignment)
            except JupyterDDLError as error:
                return SamplerFailed("start", type(error).__name__, error.message)
            if program.failure is not None:
                broken = program.failure
                return SamplerFailed(
                    "start", broken.type_name, broken.message, broken.traceback, broken.line
                )
            self._host = SamplerHost(call.start, program.captured)
        return self._host.handle(request)
