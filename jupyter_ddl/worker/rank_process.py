"""The worker's side of one rank process: send it work, pass its events on, notice its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from jupyter_ddl.errors import ProtocolError
from jupyter_ddl.protocol.assignment import Assignment
from jupyter_ddl.protocol.codec import decoder_of
from jupyter_ddl.protocol.events import AttemptStarted
from jupyter_ddl.protocol.framing import FrameProtocol
from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.protocol.rank_messages import Execute, FromRank, LoaderWait, RankExited, ToRank

__all__ = ["EndCause", "RankEnd", "RankProcess"]

EndCause: TypeAlias = Literal["itself", "zygote", "memory", "protocol", "stop", "unkillable"]

OnMessage: TypeAlias = Callable[[FromRank, bytes], None]

_DRAIN_TIMEOUT_S = 0.5
_EXIT_TIMEOUT_S = 5.0
_UNKILLABLE_S = 30.0
_MESSAGE = decoder_of(FromRank | LoaderWait, "it sent something that is not a message")


class RankEnd(msgspec.Struct, frozen=True):
    """How a rank process ended.  ``detail`` explains a cause other than ``itself``."""

    cause: EndCause = "itself"
    exit_code: int | None = None
    signal_number: int | None = None
    detail: str = ""


class RankProcess:
    """One rank.  Used on the worker's loop only.

    ``ended`` is done once the process is gone *and* everything it has sent was passed on.
    """

    def __init__(self, name: str, run_id: str, program: str) -> None:
        loop = asyncio.get_running_loop()
        self.name = name
        self.run_id = run_id
        self.program = program
        self.pid = 0
        self.is_busy = False
        self.log = ""
        self.place: RankPlace | None = None
        self.gpus: tuple[str, ...] = ()
        """UUIDs of its GPUs."""
        self.trial = 0
        """The latest one."""
        self.loader_share: float | None = None
        """Share of the time that the cell waits for its DataLoader, as the rank told last."""
        self.ended: asyncio.Future[RankEnd] = loop.create_future()
        self.protocol = FrameProtocol(self._on_frame, self._on_channel_closed)
        self._loop = loop
        self._on_message: OnMessage | None = None
        self._channel_closed = False
        self._exit: RankExited | None = None
        self._cause: tuple[EndCause, str] = ("itself", "")
        self._timers: list[asyncio.TimerHandle] = []

    def settle(self, assignment: Assignment) -> None:
        """It is to serve this assignment: take note of where it stands."""
        place = assignment.place
        self.place = place
        self.gpus = assignment.gpus if place is None else place.own_gpus
        self.is_busy = True

    def execute(self, assignment: Assignment, worker: str, on_message: OnMessage) -> None:
        """Send trials; ``on_message`` gets each message of the rank and its encoded form."""
        self.is_busy = True
        self._on_message = on_message
        self.send(Execute(assignment, worker))

    def listen(self, on_message: OnMessage) -> None:
        """Pass the rank's messages on without sending it trials (it serves a sampler)."""
        self.is_busy = True
        self._on_message = on_message

    def free(self) -> None:
        """Stop passing messages on: the batch is done."""
        self.is_busy = False
        self._on_message = None

    def send(self, message: ToRank) -> None:
        self.protocol.send(msgspec.msgpack.encode(message))

    def signal_group(self, *signals: signal.Signals) -> None:
        """Send signals to the rank and to what it has started in its process group."""
        if self._exit is not None or not self.pid:
            return
        for number in signals:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def kill(self, cause: EndCause, detail: str = "") -> None:
        """SIGKILL the process group; the first cause given stays.  ``ended`` follows."""
        if self._cause[0] == "itself":
            self._cause = (cause, detail)
        self.signal_group(signal.SIGKILL)
        self._after(_UNKILLABLE_S, self._give_up)

    def leave(self) -> None:
        """Let an idle rank exit by itself; kill it if that takes longer than 5 s."""
        self.protocol.close()
        self._after(_EXIT_TIMEOUT_S, lambda: self.kill("stop"))

    # -- what the zygote tells ------------------------------------------------------------------

    def exited(self, message: RankExited) -> None:
        self._exit = message
        self.protocol.read_on()
        # Data may still lie in the socket; a process that the rank forked may keep it open.
        self._after(_DRAIN_TIMEOUT_S, self.protocol.close)
        self._end_if_over()

    def zygote_lost(self) -> None:
        """The zygote died, and the kernel kills its ranks; make sure of it."""
        self.kill("zygote", "the zygote, from which rank processes are forked, was killed")
        self._exit = RankExited(self.name, self.pid, signal_number=signal.SIGKILL)
        self.protocol.read_on()
        self._after(_DRAIN_TIMEOUT_S, self.protocol.close)
        self._end_if_over()

    # -- the channel ----------------------------------------------------------------------------

    def _on_frame(self, payload: bytes) -> None:
        try:
            message = _MESSAGE(payload)
        except ProtocolError as error:
            self.kill("protocol", error.message)
            return
        if isinstance(message, LoaderWait):
            self.loader_share = min(1.0, max(0.0, message.share))
            return
        if isinstance(message, AttemptStarted):
            self.log = message.log
            self.trial = message.trial
        if self._on_message is not None:
            self._on_message(message, payload)

    def _on_channel_closed(self) -> None:
        self._channel_closed = True
        if self._exit is None:
            closed = "its channel to the worker was closed, perhaps by the cell"
            self._after(_EXIT_TIMEOUT_S, lambda: self.kill("protocol", closed))
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self._exit is None or not self._channel_closed:
            return
        cause, detail = self._cause
        self._end(RankEnd(cause, self._exit.exit_code, self._exit.signal_number, detail))

    def _give_up(self) -> None:
        text = f"rank process {self.pid} can't be killed: check the host (a hung device?)"
        self._end(RankEnd("unkillable", detail=text))

    def _end(self, end: RankEnd) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self.protocol.close()
        if not self.ended.done():
            self.ended.set_result(end)

    def _after(self, delay_s: float, action: Callable[[], None]) -> None:
        if not self.ended.done():
            self._timers.append(self._loop.call_later(delay_s, action))
