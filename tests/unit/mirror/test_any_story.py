"""Whatever happens there, here and on the way: what a copied ledger tells is true of its copy."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from jupyter_ddl.errors import CapacityError, ControllerError, JupyterDDLError
from jupyter_ddl.ledger.records import HEADER, frame_at
from jupyter_ddl.mirror.runs import RunCopies
from jupyter_ddl.protocol.events import Notice
from jupyter_ddl.protocol.requests import Body
from tests.unit.mirror.elsewhere import CLUSTER, Elsewhere, contents, frames, named_in, no_threads

_PART = 64
_WRITTEN = ("values/a", "values/b")
"""Replaced again and again; others are removed, and their names never used again."""
_LOGS = ("logs/1.log", "logs/2.log", "telemetry.jsonl")
_N_ROUNDS = 8


any_story = settings(max_examples=30, phases=(Phase.explicit, Phase.reuse, Phase.generate))
"""A story of another number is another one, not a shorter one."""


class Killed(BaseException):
    """The mirror's process is gone: nothing that it would have done is done."""


class Disk:
    """``os`` for the modules that write copies: it may end the mirror, or be full.

    Attributes
    ----------
    n_left : int
        Changes to the disk until then; -1: none comes.
    is_kill : bool
    """

    def __init__(self) -> None:
        self.n_left = -1
        self.is_kill = False
        self._is_dead = False

    def fail_in(self, n_changes: int, *, is_kill: bool) -> None:
        self.n_left, self.is_kill = n_changes, is_kill

    def be_well(self) -> None:
        self.n_left, self._is_dead = -1, False

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _may_change(self) -> None:
        if self._is_dead:
            raise Killed
        if self.n_left == 0:
            self._is_dead = self.is_kill
            raise Killed if self.is_kill else OSError(errno.ENOSPC, "No space left on device")
        self.n_left -= self.n_left > 0

    def open(self, path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_CREAT:
            self._may_change()
        return os.open(path, flags, *args, **kwargs)

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        try:
            self._may_change()
        except BaseException:
            if self.n_left == 0:  # half of it is there
                os.pwrite(fd, bytes(data)[: len(data) // 2], offset)
            raise
        return os.pwrite(fd, data, offset)

    def __change(name: str) -> Any:  # type: ignore[misc]  # noqa: N805
        def change(self: Disk, *args: Any, **kwargs: Any) -> Any:
            self._may_change()
            return getattr(os, name)(*args, **kwargs)

        return change

    ftruncate, rename, link, unlink = map(__change, ("ftruncate", "rename", "link", "unlink"))
    fsync, fdatasync, utime, mkdir = map(__change, ("fsync", "fdatasync", "utime", "mkdir"))


@contextmanager
def small_parts(disk: Disk) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(no_threads())
        for module in ("mirror.one_run", "controller.stored"):
            stack.enter_context(patch(f"jupyter_ddl.{module}.PART_BYTES", _PART))
        for module in ("store.tree", "ledger.copied", "mirror.one_run"):
            stack.enter_context(patch(f"jupyter_ddl.{module}.CHECKED_BYTES", 48))
        for module in ("store.tree", "ledger.copied"):
            stack.enter_context(patch(f"jupyter_ddl.{module}.os", disk))
        yield


class Story:
    """What happens there, told once more."""

    def __init__(self, there: Elsewhere, random: Random) -> None:
        self.there = there
        self.random = random
        self.versions: dict[str, list[bytes]] = defaultdict(list)
        """All that a path has held."""
        self.removed: set[str] = set()
        self.histories: list[bytes] = []
        """What the ledger was whenever it was cut, and what it is."""
        self._n = 0
        there.begin()
        self._note_ledger()

    def something(self) -> None:
        random = self.random
        act = random.choice(
            (self.write, self.write, self.append, self.append, self.remove, self.cut, self.rest)
        )
        act()

    def rest(self) -> None:
        """The controller's container is ended, or comes back."""
        self.there.driven ^= {"r1"}

    def write(self) -> None:
        once = f"{self.random.choice(('outputs', 'checkpoints'))}/{self._n}"
        path = self.random.choice((*_WRITTEN, once, once))
        data = self._new(self.random.choice((1, _PART, 3 * _PART)))
        self.there.write(path, data)
        self.versions[path].append(data)
        self._tell(path)

    def append(self) -> None:
        path = self.random.choice(_LOGS)
        self.there.append(path, self._new(self.random.choice((5, 2 * _PART))))
        self.versions[path].append((self.there.runs / "r1" / path).read_bytes())
        self._tell(path)

    def remove(self) -> None:
        left = sorted(self.versions.keys() - {*_WRITTEN, *_LOGS} - self.removed)
        if left:
            path = self.random.choice(left)
            (self.there.runs / "r1" / path).unlink()
            self.removed.add(path)

    def cut(self) -> None:
        """Its host crashed: the newest records, and bytes of logs, did not reach the disk."""
        ledger = self.there.ledger("r1").read_bytes()
        ends = [0, *ends_of(ledger)][1:]
        end = self.random.choice(ends[-4:])
        self.there.ledger("r1").write_bytes(ledger[:end])
        self._note_ledger()
        for path in _LOGS[:2]:
            log = self.there.runs / "r1" / path
            if log.exists() and self.random.random() < 0.3:
                kept = log.read_bytes()[: -self.random.randint(1, 20)]
                self.there.write(path, kept + b"!" + self._new(3))
                self.versions[path].append(log.read_bytes())

    def _new(self, n_bytes: int) -> bytes:
        self._n += 1
        return (b"%d." % self._n) * n_bytes

    def _tell(self, path: str) -> None:
        self._n += 1
        self.there.record(frames(Notice(float(self._n), f"file: {path}")))
        self._note_ledger()

    def _note_ledger(self) -> None:
        self.histories.append(self.there.ledger("r1").read_bytes())

    # -- what must be true -----------------------------------------------------------------------

    def check(self, here: Path) -> None:
        path = here / "r1/ledger.ddl"
        if not path.exists():
            return
        ledger = path.read_bytes()
        whole = ledger[: (ends_of(ledger) or [0])[-1]]
        assert any(each.startswith(whole) for each in self.histories)
        found = contents(here / "r1")
        for name in named_in(ledger) - self.removed:
            assert name in found, f"{name} is told of and is not there"
            if name.startswith("logs/") or name in _LOGS:
                assert any(each.startswith(found[name]) for each in self.versions[name]), name
            else:
                assert found[name] in self.versions[name], name


def ends_of(ledger: bytes) -> list[int]:
    """Where its whole records end."""
    ends, at = [], len(HEADER)
    while (payload := frame_at(ledger, at)) is not None:
        at += 8 + len(payload)
        ends.append(at)
    return ends


async def brought(story: Story, copies: RunCopies, disk: Disk) -> None:
    """One try at bringing the run, in which anything may happen."""
    random, there = story.random, story.there
    fate = random.choice(("none", "break", "break behind", "kill", "full"))
    n_asked, breaks_at = 0, random.randint(0, 12)

    def on_ask(_: Body) -> None:
        nonlocal n_asked
        if random.random() < 0.25:
            story.something()
        n_asked += 1
        if fate == "break" and n_asked > breaks_at:
            raise ControllerError("the controller is gone")

    def on_answer(_: Body) -> None:
        if fate == "break behind" and n_asked > breaks_at:
            raise ControllerError("the controller is gone")

    there.on_ask, there.on_answer = on_ask, on_answer
    if fate in ("kill", "full"):
        disk.fail_in(random.randint(0, 25), is_kill=fate == "kill")
    try:
        with suppress(ControllerError, CapacityError, Killed):
            await copies.bring("r1")
    finally:
        disk.be_well()
        there.on_ask = there.on_answer = lambda _: None


@any_story
@given(st.integers(0, 2**32))
def test_whatever_happens_the_copy_is_true_and_the_next_look_completes_it(seed: int) -> None:
    random = Random(seed)
    root = Path(tempfile.mkdtemp(prefix="story-"))
    here, disk = root / "here", Disk()
    here.mkdir()

    async def main() -> None:
        story = Story(Elsewhere(root), random)
        for _ in range(_N_ROUNDS):
            copies = RunCopies(story.there.ask, CLUSTER, runs=here, checkpoint_bytes=1 << 20)
            try:
                for _ in range(random.randint(1, 3)):
                    await brought(story, copies, disk)
                    story.check(here)
            finally:
                copies.close()  # a lock does not outlive its process either
        story.there.driven = {"r1"}
        copies = RunCopies(story.there.ask, CLUSTER, runs=here, checkpoint_bytes=1 << 20)
        try:
            await copies.bring("r1")
            assert contents(here / "r1") == contents(story.there.runs / "r1")
            assert not [*here.rglob(".partial-*")]
        finally:
            copies.close()

    try:
        with small_parts(disk):
            asyncio.run(main())
    finally:
        shutil.rmtree(root)


@any_story
@given(st.integers(0, 2**32))
def test_a_run_that_was_lost_is_given_whole_however_often_the_link_breaks(seed: int) -> None:
    random = Random(seed)
    root = Path(tempfile.mkdtemp(prefix="story-"))
    here, disk = root / "here", Disk()
    here.mkdir()

    async def main() -> None:
        there = Elsewhere(root)
        story = Story(there, random)
        copies = RunCopies(there.ask, CLUSTER, runs=here, checkpoint_bytes=1 << 20)
        for _ in range(random.randint(1, 12)):
            random.choice((story.write, story.append))()
        there.driven.clear()
        await copies.bring("r1")
        copy = contents(here / "r1")
        if random.random() < 0.5:
            shutil.rmtree(there.runs / "r1")
            there.move()
        else:  # somebody has given an older copy of it
            there.ledger("r1").write_bytes(random.choice(story.histories))
        n_left = 0

        def break_off(_: Body) -> None:
            nonlocal n_left
            n_left -= 1
            if n_left < 0:
                there.break_link()

        there.on_ask = break_off
        for n_tries in range(1, 100):
            n_left = random.randint(0, 3 * n_tries)
            with suppress(ControllerError):
                await copies.give("r1")
                break
            lost = there.ledger("r1")
            # It is there whole or not at all; or as it was.
            assert not lost.exists() or lost.read_bytes() in story.histories
        there.on_ask = lambda _: None
        assert contents(there.runs / "r1") == copy
        assert not [*there.runs.rglob(".partial-*")]
        assert (await copies.look()).lost == ()
        copies.close()

    try:
        with small_parts(disk):
            asyncio.run(main())
    finally:
        shutil.rmtree(root)


def test_the_disk_of_a_story_fails_when_it_is_told_to(tmp_path: Path) -> None:
    disk = Disk()
    disk.fail_in(1, is_kill=False)
    fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    try:
        assert disk.pwrite(fd, b"1234", 0) == 4
        for _ in range(2):
            with suppress(OSError):
                disk.pwrite(fd, b"abcd", 4)
                raise AssertionError
        assert os.pread(fd, 10, 0) == b"1234ab"
        disk.be_well()
        assert disk.pwrite(fd, b"5", 4) == 1
    finally:
        os.close(fd)
    assert issubclass(CapacityError, JupyterDDLError)
