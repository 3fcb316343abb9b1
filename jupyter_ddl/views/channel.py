"""The sending end of one viewer: what goes out when, whatever gets lost on the way.  Pure.

Jupyter's server silently drops messages above its limits, and keeps all of them for a page
that is closed.  So every message is complete in itself and numbered, the newest state is repeated
while nothing changes, the end of a run is repeated until the viewer has seen it, and nothing is
sent to a viewer that gives no sign of life.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import msgspec

from jupyter_ddl.errors import ProtocolError
from jupyter_ddl.protocol.reading import converted, json_decoder
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.protocol.telemetry import EncodedTelemetry
from jupyter_ddl.protocol.view_messages import (
    AskAgain,
    ClusterList,
    ClusterLogPart,
    ColumnsPart,
    ComparedPart,
    CurvesPart,
    Denied,
    Done,
    FromBrowser,
    Have,
    HistoryPart,
    ImportancePart,
    LogPart,
    OutputPart,
    Progress,
    RecordTrouble,
    RunList,
    Seen,
    StacksPart,
    TrialPart,
    Welcome,
)

__all__ = ["MAX_BYTES_PER_S", "Answer", "Bucket", "Channel", "Columns", "Shown", "Topic"]


# When the newest state of something is sent again, and how much may be sent at all.  Pure.

_REPEAT_S = 0.9
_FINAL_GAPS_S = (*(0.1,) * 12, *(0.2,) * 5, *(0.5,) * 4)
"""After the end, so that even with half of all messages lost it arrives within a second or two."""
_FINAL_GAP_S = 1.0
_FINAL_FOR_S = 30.0
_ACK_S = 0.6
_UNACKED_GAP_S = 0.1
_N_UNACKED = 15
"""Repeats of something new that nobody says to have: enough when half of all messages are lost."""

Shown: TypeAlias = (
    EncodedSnapshot | EncodedTelemetry | RecordTrouble | ClusterList | RunList | Welcome
)


class _RunFrame(msgspec.Struct, frozen=True, tag="run", tag_field="kind"):
    """A ``RunView`` around a snapshot that is encoded already."""

    seq: int
    at_s: float
    snapshot: msgspec.Raw


class _TelemetryFrame(msgspec.Struct, frozen=True, tag="telemetry", tag_field="kind"):
    """A ``TelemetryView`` around what is encoded already."""

    seq: int
    cluster: str
    telemetry: msgspec.Raw
    run_id: str


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
        if isinstance(old, EncodedSnapshot) and isinstance(view, EncodedSnapshot):
            if view.seq < old.seq or view is old:
                return
            if self._final_s is not None and view.is_final:
                self.view = view
                return
        self.view = view
        self._is_new = True
        self._is_seen = False
        ends = isinstance(view, EncodedSnapshot) and view.is_final
        self._final_s, self._n_final = (now_s if ends else None), 0

    def due_s(self, heard: bool) -> float:
        """When it goes out next on the monotonic clock; infinity: not before something happens."""
        if self.view is None:
            return float("inf")
        if self._is_asked:
            return self.sent_s + 0.1
        if not self._lossy:
            return self.sent_s if self._is_new else float("inf")
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
            return self.sent_s
        if self._first_seq is None or self._n_repeats >= _N_UNACKED:
            return self.sent_s + _REPEAT_S
        return self.sent_s + (_UNACKED_GAP_S if self._n_repeats else _ACK_S)

    def send(self, now_s: float, seq: int) -> Shown:
        """What goes out now as number ``seq``."""
        assert self.view is not None
        if self._is_new:
            self._n_repeats = 0
            self._first_seq = seq if isinstance(self.view, EncodedSnapshot) else None
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

    def observe(self, run_id: str) -> None:
        view = self.view
        if isinstance(view, EncodedSnapshot) and view.run_id == run_id:
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


MAX_BYTES_PER_S = 190_000.0

_MAX_MESSAGES_PER_S = 10.0
_BURST_BYTES = 100_000.0
_BURST_MESSAGES = 5.0
_SILENCE_S = 10.0
_MAX_ANSWERS = 64
_MAX_REQUESTS_PER_S = 20.0
_MAX_FIELDS = 16
_MAX_TEXT = 1000
_MAX_REQUEST_BYTES = 16_384
_MAX_NUMBER = 2**53
"""JavaScript has no whole numbers beyond."""


class Columns(NamedTuple):
    """Columns of trials, as they are answered."""

    head: ColumnsPart
    data: bytes

    @property
    def id(self) -> int:
        return self.head.id

    def frame(self) -> bytes:
        """Binary: no text frame of JSON begins as it does."""
        head = msgspec.json.encode(self.head)
        return b"".join((b"\0DDL", len(head).to_bytes(4, "little"), head, self.data))


Answer: TypeAlias = (
    Columns
    | LogPart
    | OutputPart
    | ImportancePart
    | CurvesPart
    | TrialPart
    | HistoryPart
    | ClusterLogPart
    | StacksPart
    | ComparedPart
    | Progress
    | Done
    | Denied
)


@dataclass(slots=True)
class _Asked:
    """A request, kept so that a repeated one is told from one that was numbered badly."""

    request: FromBrowser
    answer: bytes | None = None
    """The newest; None: it is still worked out."""


class Channel:
    """One viewer of one run.  May be used from any thread; does no I/O.

    Parameters
    ----------
    listens : bool
        Whether the viewer gives signs of life.  Then, without one for 10 s, nothing is sent until
        the next one.
    lossy : bool
        Whether messages may get lost; a websocket loses none while it is open.
    clock : callable
        Monotonic seconds.
    now : callable
        Unix seconds, for the age of what is shown.
    """

    def __init__(
        self,
        *,
        listens: bool = True,
        lossy: bool = True,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._now = now
        self._guard = threading.Lock()
        self._topics: dict[str, Topic] = {}
        self._asked: OrderedDict[int, _Asked] = OrderedDict()
        self._queue: OrderedDict[int, bytes] = OrderedDict()
        began_s = clock()
        self._messages = Bucket(_MAX_MESSAGES_PER_S, _BURST_MESSAGES, began_s)
        self._bytes = Bucket(MAX_BYTES_PER_S, _BURST_BYTES, began_s)
        self._requests = Bucket(_MAX_REQUESTS_PER_S, _MAX_REQUESTS_PER_S, began_s)
        self._listens = listens
        self._lossy = lossy
        self._heard_s = began_s
        self._seq = 0
        self.n_sent = 0
        self.n_bytes = 0
        self.n_refused = 0
        """Messages of the viewer that made no sense, or were too many."""

    # -- down --------------------------------------------------------------------------------

    def offer(self, view: Shown) -> None:
        """Hand in the newest state of its topic; an older one of a run is ignored."""
        with self._guard:
            key = _key(view)
            topic = self._topics.get(key)
            if topic is None:
                topic = self._topics[key] = Topic(lossy=self._lossy)
            topic.put(view, self._clock())

    def forget(self, name: str) -> None:
        """Send nothing more of a run, or of a cluster's telemetry."""
        with self._guard:
            for key in ("run", "record of run", "telemetry of run", "telemetry of cluster"):
                self._topics.pop(f"{key} {name}", None)

    def answer(self, message: Answer) -> None:
        """Hand in the answer to a request; a repeated request gets the same one again."""
        if isinstance(message, Columns):
            # Not kept, being large: whoever asks again has it drawn again.
            with self._guard:
                self._asked.pop(message.id, None)
                self._queue[message.id] = message.frame()
            return
        encoded = msgspec.json.encode(message)
        with self._guard:
            asked = self._asked.get(message.id)
            if asked is not None:
                asked.answer = encoded
            self._send_once(message.id, encoded)

    def due(self) -> list[bytes]:
        """What is to be sent now, as JSON, in this order."""
        with self._guard:
            now_s = self._clock()
            out: list[bytes] = []
            while self._queue and self._may_send(now_s):
                out.append(self._spend(self._queue.popitem(last=False)[1]))
            # The one that has waited longest goes first: a large one must not starve the others.
            for topic in sorted(self._topics.values(), key=lambda each: each.sent_s):
                if topic.due_s(self._is_heard(now_s)) <= now_s:
                    if not self._may_send(now_s):
                        break
                    out.append(self._spend(self._drawn(topic, now_s)))
            return out

    def wait_s(self) -> float:
        """Seconds until :meth:`due` has something, as far as can be told now; at most 1."""
        with self._guard:
            now_s = self._clock()
            heard = self._is_heard(now_s)
            times = [topic.due_s(heard) for topic in self._topics.values()]
            at_s = now_s if self._queue else min(times, default=now_s + 1.0)
            ready_s = max(self._messages.ready_s(now_s), self._bytes.ready_s(now_s))
            return min(1.0, max(0.0, at_s - now_s, ready_s - now_s))

    @property
    def is_over(self) -> bool:
        """Whether the end of every run has been seen, or was repeated for long enough."""
        with self._guard:
            now_s = self._clock()
            topics = self._topics.values()
            runs = [topic for topic in topics if isinstance(topic.view, EncodedSnapshot)]
            return bool(runs) and not self._queue and all(t.is_over(now_s) for t in runs)

    # -- up ----------------------------------------------------------------------------------

    def receive(self, data: Any) -> FromBrowser | None:
        """Take in what the viewer sent: bytes or text with JSON, or an object made of it.

        Returns
        -------
        FromBrowser or None
            A request that wants an :meth:`answer`.  None when there is nothing to do, also for
            what is malformed, too large or too much: that is counted.
        """
        message = _decode(data)
        with self._guard:
            now_s = self._clock()
            if message is None or not self._requests.is_ready(now_s):
                self.n_refused += 1
                return None
            self._requests.spend(1.0)
            self._heard_s = now_s
            if isinstance(message, AskAgain):
                for topic in self._topics.values():
                    topic.ask(now_s)
            elif isinstance(message, Seen):
                for topic in self._topics.values():
                    topic.observe(message.run_id)
            elif isinstance(message, Have):
                for topic in self._topics.values():
                    topic.have(message.seq)
            else:
                return self._first(message)
        return None

    def refuse(self) -> None:
        """Count a message that the carrier's owner can do nothing with."""
        with self._guard:
            self.n_refused += 1

    def _first(self, request: FromBrowser) -> FromBrowser | None:
        """The request, unless it is a repeated one, or has the number of another."""
        number = getattr(request, "id", 0)
        asked = self._asked.get(number)
        if asked is None:
            self._asked[number] = _Asked(request)
            while len(self._asked) > _MAX_ANSWERS:
                self._asked.popitem(last=False)
            return request
        if asked.request != request:
            was, now = (type(each).__name__ for each in (asked.request, request))
            text = (
                f"{now} was not carried out: its id {number} is that of another request ({was}); "
                f"every request needs an id of its own, and only a repeated one keeps it"
            )
            self._send_once(number, msgspec.json.encode(Denied(number, ProtocolError.code, text)))
        elif asked.answer is not None:
            self._send_once(number, asked.answer)
        return None

    def _send_once(self, number: int, encoded: bytes) -> None:
        self._queue[number] = encoded
        while len(self._queue) > _MAX_ANSWERS:
            self._queue.popitem(last=False)

    # -- inside ------------------------------------------------------------------------------

    def _is_heard(self, now_s: float) -> bool:
        return not self._listens or now_s - self._heard_s < _SILENCE_S

    def _may_send(self, now_s: float) -> bool:
        return self._messages.is_ready(now_s) and self._bytes.is_ready(now_s)

    def _drawn(self, topic: Topic, now_s: float) -> bytes:
        self._seq += 1
        view = topic.send(now_s, self._seq)
        if isinstance(view, EncodedSnapshot):
            return msgspec.json.encode(_RunFrame(self._seq, self._now(), msgspec.Raw(view.json)))
        if isinstance(view, EncodedTelemetry):
            encoded = msgspec.Raw(view.json)
            return msgspec.json.encode(
                _TelemetryFrame(self._seq, view.cluster, encoded, view.run_id)
            )
        return msgspec.json.encode(msgspec.structs.replace(view, seq=self._seq, at_s=self._now()))

    def _spend(self, encoded: bytes) -> bytes:
        self._messages.spend(1.0)
        # Columns are asked for, once a second at most: what is pushed need not wait for them.
        if not encoded.startswith(b"\0"):
            self._bytes.spend(len(encoded))
        self.n_sent += 1
        self.n_bytes += len(encoded)
        return encoded


def _key(view: Shown) -> str:
    if isinstance(view, EncodedSnapshot):
        return f"run {view.run_id}"
    if isinstance(view, EncodedTelemetry):
        of = f"run {view.run_id}" if view.run_id else f"cluster {view.cluster}"
        return f"telemetry of {of}"
    if isinstance(view, RecordTrouble):
        return f"record of run {view.run_id}"
    return type(view).__name__


_DECODER: msgspec.json.Decoder[FromBrowser] = json_decoder(FromBrowser)


def _decode(data: Any) -> FromBrowser | None:
    """A message, or None for anything else.  All that is expected is flat, short and small."""
    try:
        if isinstance(data, bytes | bytearray | str):
            if len(data) > _MAX_REQUEST_BYTES:
                return None
            return _bounded(_DECODER.decode(data))
        if not isinstance(data, dict) or len(data) > _MAX_FIELDS:
            return None
        for name, value in data.items():
            if len(name) > _MAX_TEXT or (isinstance(value, str) and len(value) > _MAX_TEXT):
                return None
            if not isinstance(value, str | int | float | bool | None):
                return None
        return _bounded(converted(data, FromBrowser))
    except (msgspec.MsgspecError, RecursionError, TypeError, UnicodeError):
        return None


def _bounded(message: FromBrowser) -> FromBrowser | None:
    values = (getattr(message, name) for name in message.__struct_fields__)
    for value in values:
        if isinstance(value, int | float) and not -_MAX_NUMBER <= value <= _MAX_NUMBER:
            return None
        if isinstance(value, str) and len(value) > _MAX_TEXT:
            return None
    return message
