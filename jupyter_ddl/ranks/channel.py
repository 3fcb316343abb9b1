"""A rank's end of the socket to its worker: what it sends is in the kernel before it goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from types import FrameType

import msgspec

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.events import RankEvent
from jupyter_ddl.protocol.framing import FrameSocket
from jupyter_ddl.protocol.rank_messages import CHANNEL_LOST_EXIT_CODE, FromRank, LoaderWait, ToRank
from jupyter_ddl.protocol.reading import msgpack_decoder
from jupyter_ddl.ranks.stopping import StopFlag, TrialStopped

__all__ = ["RankChannel", "TerminationHandler"]


# SIGTERM in a rank: ends the attempt it is meant for, at a Python boundary, and nothing else.

_UNEXPLAINED_S = 0.5
"""How long a SIGTERM may precede the worker's message that explains it."""
_EXPLAINED_S = 5.0
"""How long a SIGTERM may come behind that message; its attempt may have ended in between."""
_AGAIN_S = 0.1
_MESSAGE = msgpack_decoder(ToRank)
"""Made once, in the zygote: looking at all fields of an assignment takes 4 ms, in each fork."""


class TerminationHandler:
    """Turns SIGTERM into :class:`TrialStopped` in the main thread.

    The worker sends the reason over the socket and then the signal; either may arrive first.
    A signal without a reason comes from somebody else, and then the process dies of it, as it would
    without this handler.
    """

    def __init__(self, flag: StopFlag) -> None:
        self._flag = flag
        self._main_thread = threading.main_thread().ident or 0
        self._current: tuple[int, int] | None = None
        self._n_held = 0
        self._deferred = False
        self._dying = False
        self._explained_at_s = -_EXPLAINED_S

    def install(self) -> None:
        """Make this the handler, again if user code has changed it.  Main thread only."""
        if signal.getsignal(signal.SIGTERM) != self._handle:
            signal.signal(signal.SIGTERM, self._handle)

    @contextlib.contextmanager
    def during(self, trial: int, attempt: int) -> Iterator[None]:
        """Within this, the signal may raise.

        Raises
        ------
        TrialStopped
            The attempt was asked to end now.
        """
        self._current = (trial, attempt)
        try:
            # Asked before it began: no signal will come for that.
            if (reason := self._flag.pending(trial, attempt)) is not None:
                raise TrialStopped(reason)
            yield
        finally:
            self._current = None

    def hold_back(self) -> None:
        """Until :meth:`let_through`, the signal does not raise.  Main thread only."""
        self._n_held += 1

    def let_through(self) -> None:
        """Undo one :meth:`hold_back`; a signal that came meanwhile raises now."""
        self._n_held -= 1
        if self._deferred and not self._n_held:
            self._deferred = False
            self._raise_if_asked()

    def interrupt(self) -> None:
        """Have the main thread look at the flag now, wherever it is.  Any thread.

        A signal that comes right before a system call is seen when that returns, be it in ten
        minutes: so there is a second one.
        """
        self._explained_at_s = time.monotonic()
        signal.pthread_kill(self._main_thread, signal.SIGTERM)
        again = threading.Timer(_AGAIN_S, self._interrupt_again)
        again.daemon = True
        again.start()

    def _interrupt_again(self) -> None:
        # Not after the first has had its effect, and not to a handler of the cell's own.
        if self._current is not None and signal.getsignal(signal.SIGTERM) == self._handle:
            signal.pthread_kill(self._main_thread, signal.SIGTERM)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._dying:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        elif self._n_held:
            self._deferred = True
        else:
            self._raise_if_asked()

    def _raise_if_asked(self) -> None:
        current = self._current
        reason = None if current is None else self._flag.pending(*current)
        if reason is not None:
            # Once: what the cell does in its finally blocks is not cut short by a second signal.
            self._current = None
            raise TrialStopped(reason)
        if time.monotonic() - self._explained_at_s > _EXPLAINED_S:
            timer = threading.Timer(_UNEXPLAINED_S, self._die_unless_explained)
            timer.daemon = True
            timer.start()

    def _die_unless_explained(self) -> None:
        if time.monotonic() - self._explained_at_s > _EXPLAINED_S:
            self._dying = True
            signal.pthread_kill(self._main_thread, signal.SIGTERM)


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
        self._held: list[RankEvent] = []
        self._main_thread = threading.main_thread().ident
        self.is_ours = True
        """Whether this process is the rank, and not one that user code has forked."""

    def forget(self) -> None:
        """In a process that user code has forked: it is not a rank and must not speak for one."""
        self.is_ours = False
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(self._frames.socket.detach())

    def receive(self) -> ToRank | None:
        """The next message; None when the worker has closed its end."""
        payload = self._frames.receive()
        return None if payload is None else _MESSAGE.decode(payload)

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
