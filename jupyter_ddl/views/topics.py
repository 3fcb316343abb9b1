"""When the newest state of something is sent again, and how much may be sent at all.  Pure."""

from __future__ import annotations

from typing import TypeAlias

from jupyter_ddl.views.messages import ClusterList, RunList, RunView, TelemetryView, Welcome
from jupyter_ddl.views.summary import is_final

__all__ = ["Bucket", "Shown", "Topic"]

_REPEAT_S = 0.9
_FINAL_GAPS_S = (*(0.1,) * 12, *(0.2,) * 5, *(0.5,) * 4)
"""After the end, so that even with half of all messages lost it arrives within a second or two."""
_FINAL_GAP_S = 1.0
_FINAL_FOR_S = 30.0
_ACK_S = 0.6
_UNACKED_GAP_S = 0.1
_N_UNACKED = 15
"""Repeats of something new that nobody says to have: enough when half of all messages are lost."""

Shown: TypeAlias = RunView | TelemetryView | ClusterList | RunList | Welcome


class Topic:
    """The newest state of one thing, and when it goes out next.

    Parameters
    ----------
    lossy : bool
        Whether what is sent may get lost; only then it is repeated without being asked for.
    """

    def __init__(self, *, lossy: bool = True) -> None:
        self.view: Shown | None = None
        self.sent_s = float("-inf")
        self._lossy = lossy
        self._is_new = False
        self._final_s: float | None = None
        self._n_final = 0
        self._is_seen = False
        self._is_asked = False
        self._first_seq: int | None = None
        self._n_repeats = 0

    def put(self, view: Shown, now_s: float) -> None:
        old = self.view
        if isinstance(old, RunView) and isinstance(view, RunView):
            if view.snapshot.seq < old.snapshot.seq:
                return
            if self._final_s is not None and is_final(view.snapshot):
                self.view = view
                return
        self.view = view
        self._is_new = True
        self._is_seen = False
        ends = isinstance(view, RunView) and is_final(view.snapshot)
        self._final_s, self._n_final = (now_s if ends else None), 0

    def due_s(self, interval_s: float, heard: bool) -> float:
        """When it goes out next on the monotonic clock; infinity: not before something happens."""
        if self.view is None:
            return float("inf")
        if self._is_asked:
            return self.sent_s + 0.1
        if not self._lossy:
            at_once = self._final_s is not None and self._n_final == 0
            at_s = self.sent_s if at_once else self.sent_s + interval_s
            return at_s if self._is_new else float("inf")
        if self._final_s is not None:
            if self._n_final == 0:
                return self._final_s
            if self._is_seen or not heard:
                return float("inf")
            n = self._n_final - 1
            at_s = self.sent_s + (_FINAL_GAPS_S[n] if n < len(_FINAL_GAPS_S) else _FINAL_GAP_S)
            return at_s if at_s < self._final_s + _FINAL_FOR_S else float("inf")
        if not heard:
            return float("inf")
        if self._is_new:
            return self.sent_s + interval_s
        if self._first_seq is None or self._n_repeats >= _N_UNACKED:
            return self.sent_s + _REPEAT_S
        return self.sent_s + (_UNACKED_GAP_S if self._n_repeats else _ACK_S)

    def send(self, now_s: float, seq: int) -> Shown:
        """What goes out now as number ``seq``."""
        assert self.view is not None
        if self._is_new:
            self._n_repeats = 0
            self._first_seq = seq if isinstance(self.view, RunView) else None
        else:
            self._n_repeats += 1
        self._is_new = self._is_asked = False
        self.sent_s = now_s
        self._n_final += self._final_s is not None
        return self.view

    def ask(self, now_s: float) -> None:
        self._is_asked = True

    def have(self, seq: int) -> None:
        """The viewer has number ``seq``."""
        if self._first_seq is not None and seq >= self._first_seq:
            self._first_seq = None

    def see(self, run_id: str) -> None:
        view = self.view
        if isinstance(view, RunView) and view.snapshot.run_id == run_id:
            self._is_seen = self._final_s is not None

    def is_over(self, now_s: float) -> bool:
        if self._final_s is None or self._n_final == 0:
            return False
        return self._is_seen or now_s > self._final_s + _FINAL_FOR_S


class Bucket:
    """So much per second, and a little at once; a large message leaves it in debt."""

    def __init__(self, per_s: float, burst: float, now_s: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._at_s = now_s

    def _fill(self, now_s: float) -> None:
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s

    def is_ready(self, now_s: float) -> bool:
        self._fill(now_s)
        return self._left > 0

    def ready_s(self, now_s: float) -> float:
        self._fill(now_s)
        return now_s if self._left > 0 else now_s - self._left / self._per_s + 0.001

    def spend(self, amount: float) -> None:
        self._left -= amount
