"""A controller elsewhere in the same process: a folder of runs, and what answers a mirror of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from jupyter_ddl.controller.stored import StoredRuns
from jupyter_ddl.errors import ControllerError
from jupyter_ddl.ledger.records import HEADER, pack_frames
from jupyter_ddl.mirror.runs import RunCopies
from jupyter_ddl.protocol.codec import encode_event
from jupyter_ddl.protocol.events import Event, Notice, RunFinished, RunSubmitted
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.replies import Reply, Result
from jupyter_ddl.protocol.requests import Body, Request
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.verbs.map import Map

CLUSTER = "far"
_NAMES = "file: "


def spec_of(run_id: str, cluster: str = CLUSTER) -> RunSpec:
    verb = Map(over="items", element="item", n_items=2)
    return RunSpec(run_id, verb, Program("item", "In [1]"), 1, cluster, 1000.0)


def frames(*events: Event) -> bytes:
    return pack_frames([encode_event(each) for each in events])


def naming(path: str) -> bytes:
    """A record that tells of a file."""
    return frames(Notice(1001.0, _NAMES + path))


def named_in(ledger: bytes) -> set[str]:
    """Files that a ledger tells of."""
    from jupyter_ddl.ledger.records import frame_at
    from jupyter_ddl.protocol.codec import decode_event

    found, at = set(), len(HEADER)
    while (payload := frame_at(ledger, at)) is not None:
        event = decode_event(payload)
        if isinstance(event, Notice) and event.text.startswith(_NAMES):
            found.add(event.text.removeprefix(_NAMES))
        at += 8 + len(payload)
    return found


class Mirror:
    """Who asks; parts of another one are another file's."""

    is_closed = False


class Elsewhere:
    """A controller's runs on disk, and its answers; ``ask`` is the link.

    Attributes
    ----------
    on_ask : callable
        Called with each request before it is answered; what it raises breaks the link.
    on_answer : callable
        The same behind it.
    asked : list of str
        Kinds of the requests so far.
    """

    def __init__(self, root: Path) -> None:
        self.runs = root / "there"
        self.blobs = root / "there-blobs"
        for folder in (self.runs, self.blobs):
            folder.mkdir(parents=True)
        self.driven: set[str] = set()
        self.on_ask: Callable[[Body], None] = lambda _: None
        self.on_answer: Callable[[Body], None] = lambda _: None
        self.asked: list[str] = []
        self.mirror = Mirror()
        self._clock_ns = 10**18
        self._n_homes = 0
        self.move()

    def _driven(self) -> dict[str, int]:
        return {run_id: self.ledger(run_id).stat().st_size for run_id in self.driven}

    def move(self) -> None:
        """Its home was lost with the pod: what is there now is another one."""
        self._n_homes += 1
        home = f"home {self._n_homes}"
        self.stored = StoredRuns(self._driven, self.runs, (self.blobs,), home)

    async def ask(self, body: Body) -> Result:
        """As over a link: bytes there, bytes back."""
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(Request(1, body)), type=Request)
        self.asked.append(type(body).__name__)
        self.on_ask(body)
        mirror = self.mirror
        try:
            result = await self.stored.answer(sent.body, mirror)  # type: ignore[arg-type]
        finally:
            if mirror.is_closed:
                raise ControllerError("the controller is gone")
        self.on_answer(body)
        back: Any = msgspec.msgpack.decode(msgspec.msgpack.encode(Reply(1, result)), type=Reply)
        return back.result  # type: ignore[no-any-return]

    def break_link(self) -> None:
        """The mirror's connection is over; the next request comes by another one."""
        self.mirror.is_closed = True
        self.stored.closed(self.mirror)
        self.mirror = Mirror()
        raise ControllerError("the controller is gone")

    # -- what happens there ----------------------------------------------------------------------

    def ledger(self, run_id: str) -> Path:
        return self.runs / run_id / "ledger.ddl"

    def begin(self, run_id: str = "r1", *, is_driven: bool = True) -> None:
        (self.runs / run_id).mkdir()
        self.ledger(run_id).write_bytes(HEADER + frames(RunSubmitted(spec_of(run_id), 1000.0)))
        if is_driven:
            self.driven.add(run_id)

    def record(self, data: bytes, run_id: str = "r1") -> None:
        with self.ledger(run_id).open("ab") as file:
            file.write(data)

    def end(self, run_id: str = "r1") -> None:
        self.record(frames(RunFinished(2000.0, "complete")), run_id)
        self.driven.discard(run_id)

    def write(self, path: str, data: bytes, run_id: str = "r1") -> None:
        """As files come there: whole, under a name that may have been taken."""
        target = self.runs / run_id / path
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(".partial-x")
        draft.write_bytes(data)
        self._stamp(draft)
        draft.replace(target)

    def append(self, path: str, data: bytes, run_id: str = "r1") -> None:
        target = self.runs / run_id / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("ab") as file:
            file.write(data)
        self._stamp(target)

    def _stamp(self, path: Path) -> None:
        # Times of files are coarse, and a test is quick.
        self._clock_ns += 10**7
        os.utime(path, ns=(self._clock_ns, self._clock_ns))


def contents(directory: Path) -> dict[str, bytes]:
    """All plain files of a run but those that each side has of its own."""
    own = ("ledger.ddl.lock", "copy.json")
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name not in own and not path.name.startswith(".partial-")
    }


@contextmanager
def no_threads() -> Iterator[None]:
    """File work is done at once: what happens in between is what a test says."""

    async def at_once(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    with patch("asyncio.to_thread", at_once):
        yield


def mirrored(
    root: Path, work: Callable[[Elsewhere, RunCopies], Awaitable[None]], **options: Any
) -> None:
    """Have a mirror, whose copies lie in ``root/here``, do something."""

    async def main() -> None:
        there = Elsewhere(root)
        here = root / "here"
        here.mkdir()
        copies = RunCopies(there.ask, CLUSTER, runs=here, **options)
        try:
            async with asyncio.timeout(60):
                await work(there, copies)
        finally:
            copies.close()

    asyncio.run(main())
