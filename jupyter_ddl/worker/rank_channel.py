"""A rank's end of the socket to its worker: what it sends is in the kernel before it goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading

import msgspec

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.events.messages import RankEvent
from jupyter_ddl.worker.frames import FrameSocket
from jupyter_ddl.worker.rank_messages import CHANNEL_LOST_EXIT_CODE, FromRank, LoaderWait, ToRank
from jupyter_ddl.worker.rank_signals import TerminationHandler

__all__ = ["RankChannel"]


class RankChannel:
    """Made on the main thread.

    Parameters
    ----------
    termination : TerminationHandler
        Held back while the main thread sends: half a frame would end the rank.
    """

    def __init__(self, sock: socket.socket, termination: TerminationHandler) -> None:
        self._frames = FrameSocket(sock)
        self._termination = termination
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(ToRank)
        self._held: list[RankEvent] = []
        self._main_thread = threading.main_thread().ident
        self.is_ours = True
        """Whether this process is the rank, and not one that user code has forked."""

    def forget(self) -> None:
        """In a process that user code has forked: it is no rank and must not speak for one."""
        self.is_ours = False
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(self._frames.socket.detach())

    def receive(self) -> ToRank | None:
        """The next message; None when the worker has closed its end."""
        payload = self._frames.receive()
        return None if payload is None else self._decoder.decode(payload)

    def hold(self, event: RankEvent) -> None:
        """Keep an event until the next one is sent, and send both at once."""
        self._held.append(event)

    def send(self, message: FromRank) -> None:
        """Hand ``message``, and what is held, to the kernel.  Any thread."""
        if not self.is_ours:
            raise LaunchError(
                f"process {os.getpid()}, forked by the cell, reported {type(message).__name__}; "
                f"call report() and checkpoint() in the process that runs the trial"
            )
        # No context manager: this is called in the middle of a training, where caches hold nothing
        # of it and each function more is felt.
        is_main = threading.get_ident() == self._main_thread
        if is_main:
            self._termination.hold_back()
        try:
            payload = self._encoder.encode(message)
            if self._held:
                held, self._held = self._held, []
                self._frames.send([*map(self._encoder.encode, held), payload])
            else:
                self._frames.send_one(payload)
        except OSError:
            # Closed by the worker, which is gone then, or by the cell: no result can be told.
            os._exit(CHANNEL_LOST_EXIT_CODE)
        finally:
            if is_main:
                self._termination.let_through()

    def tell_loader_wait(self, message: LoaderWait) -> None:
        """Past ``send``, which belongs to trials: this is about the process."""
        if self.is_ours:
            with contextlib.suppress(OSError):  # the main thread notices that the worker is gone
                self._frames.send([msgspec.msgpack.encode(message)])
