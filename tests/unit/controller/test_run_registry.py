"""The runs of a controller without a cluster: a registry over real ledgers, and those who watch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from jupyter_ddl.controller.event_files import EventFileWriters
from jupyter_ddl.controller.runs import RunRegistry
from jupyter_ddl.errors import LedgerError, RunNotFoundError, SpecError
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.events import RunSubmitted
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.replies import SnapshotPush
from jupyter_ddl.protocol.run import Provenance, RunSpec
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.store.paths import COPY_NOTE, RUN_FOLDERS, ledger_path, private_dir, run_dir
from jupyter_ddl.verbs.ddp import Ddp
from jupyter_ddl.verbs.map import Map

_DEADLINE_S = 60.0


class Silent:
    """Sends nothing: there is no worker."""

    topic = "none"

    async def holds(self, assignment_id: str) -> bool:
        return True

    async def control(self, worker: str, control: Any) -> None:
        raise AssertionError(f"{control} was sent to {worker}")


class Tab:
    def __init__(self) -> None:
        self.seen: list[EncodedSnapshot] = []
        self.news = asyncio.Event()

    def push(self, run_id: str, frame: bytes) -> None:
        self.seen.append(msgspec.msgpack.decode(frame[4:], type=SnapshotPush).snapshot)
        self.news.set()

    async def until(self, is_so: Callable[[EncodedSnapshot], object]) -> EncodedSnapshot:
        while not (self.seen and is_so(self.seen[-1])):
            self.news.clear()
            await self.news.wait()
        return self.seen[-1]


def spec(run_id: str = "r1", image: str = "") -> RunSpec:
    verb = Map(over="items", element="item", n_items=2)
    origin = Provenance(image=image)
    return RunSpec(run_id, verb, Program("item", "In [1]"), 1, "test", 1000.0, provenance=origin)


def registered(
    work: Callable[[RunRegistry], Awaitable[None]],
    image: str = "",
    *,
    has_event_files: bool = True,
    gpus_known: Callable[[], Awaitable[None]] | None = None,
) -> None:
    async def known() -> None:
        return None

    async def main() -> None:
        dispatcher: Any = Silent()
        runs = RunRegistry(
            "test",
            SlotBook(),
            dispatcher,
            host_of=lambda _: "",
            n_wanted=lambda: 1,
            gpus_known=gpus_known or known,
            image=lambda: image,
            has_event_files=has_event_files,
        )
        try:
            async with asyncio.timeout(_DEADLINE_S):
                await work(runs)
        finally:
            await runs.close()

    asyncio.run(main())


@pytest.fixture(autouse=True)
def own_home(home: Any) -> None:
    return None


def test_whoever_watches_sees_a_run_from_its_first_record_to_its_last() -> None:
    async def work(runs: RunRegistry) -> None:
        await runs.submit(spec())
        tabs = [Tab() for _ in range(3)]
        firsts = [runs.watch("r1", tab) for tab in tabs]
        assert {first.run_id for first in firsts} == {"r1"}
        for tab in tabs:
            await tab.until(lambda seen: seen.state != "submitted")
        runs.driver("r1").stop("now", by="user")
        lasts = [await tab.until(lambda seen: seen.is_final) for tab in tabs]
        assert lasts == [lasts[0]] * 3
        assert lasts[0].state == "cancelled"
        for tab in tabs:
            seqs = [seen.seq for seen in tab.seen]
            assert seqs == sorted(seqs)
        # Who comes behind the end is shown it.
        assert runs.watch("r1", Tab()).is_final

    registered(work)


def test_one_that_has_left_is_pushed_nothing_of_any_run() -> None:
    async def work(runs: RunRegistry) -> None:
        stays, goes = Tab(), Tab()
        for run_id in ("r1", "r2"):
            await runs.submit(spec(run_id))
            for tab in (stays, goes):
                runs.watch(run_id, tab)
        runs.unwatch(goes)
        n_seen = len(goes.seen)
        for run_id in ("r1", "r2"):
            runs.driver(run_id).stop("now", by="user")
            await stays.until(lambda seen, run_id=run_id: seen.is_final and seen.run_id == run_id)  # type: ignore[misc]
        assert len(goes.seen) == n_seen

    registered(work)


def test_a_run_that_is_not_driven_here_cannot_be_watched_or_submitted_twice() -> None:
    async def work(runs: RunRegistry) -> None:
        with pytest.raises(RunNotFoundError, match="r9"):
            runs.watch("r9", Tab())
        runs.unwatch(Tab(), "r9")  # nothing to leave
        await runs.submit(spec())
        with pytest.raises(SpecError, match="exists already"):
            await runs.submit(spec())

    registered(work)


def test_a_run_whose_end_is_known_can_be_stopped_no_more() -> None:
    async def work(runs: RunRegistry) -> None:
        await runs.submit(spec())
        tab = Tab()
        runs.watch("r1", tab)
        runs.driver("r1").stop("now", by="user")
        await tab.until(lambda seen: seen.is_final)
        with pytest.raises(RunNotFoundError, match="r1 is not active"):
            runs.stoppable("r1")
        assert runs.active == ()

    registered(work)


def test_a_run_goes_on_where_it_was_and_its_watchers_are_told() -> None:
    async def work(runs: RunRegistry) -> None:
        await runs.submit(spec())
        runs.driver("r1").stop("now", by="user")
        tab = Tab()
        runs.watch("r1", tab)
        last = await tab.until(lambda seen: seen.is_final)
        with ledger_path("r1").open("ab") as file:
            file.write(bytes(5))  # as a writer leaves it that was killed within a write
        await runs.resume("r1")
        told = "5 bytes of a half-written record were cut off the ledger"
        assert told in runs.driver("r1").state.notices
        again = Tab()
        now = runs.watch("r1", again)
        assert (now.is_final, now.seq > last.seq) == (False, True)

    registered(work)


def test_a_run_of_which_no_record_was_written_is_refused_with_the_way_out() -> None:
    async def work(runs: RunRegistry) -> None:
        private_dir(run_dir("r1"))
        ledger_path("r1").touch()
        with pytest.raises(LedgerError, match="has no first record; `%runs rm r1`"):
            await runs.resume("r1")

    registered(work)


@pytest.mark.parametrize("now", ["team/image@sha256:1", "team/image@sha256:2", ""])
def test_a_run_that_goes_on_in_another_image_says_which_and_where_it_began(now: str) -> None:
    async def work(runs: RunRegistry) -> None:
        await runs.submit(spec(image="team/image@sha256:1"))
        runs.driver("r1").stop("now", by="user")
        tab = Tab()
        runs.watch("r1", tab)
        await tab.until(lambda seen: seen.is_final)
        await runs.resume("r1")
        notices = runs.driver("r1").state.notices
        told = [text for text in notices if "the workers' image is" in text]
        assert len(told) == now.endswith("2")
        assert all(now in text and "--env team/image@sha256:1`" in text for text in told)

    registered(work, now)


@pytest.mark.parametrize("has_event_files", [True, False])
def test_event_files_are_written_where_people_see_them(
    monkeypatch: pytest.MonkeyPatch, *, has_event_files: bool
) -> None:
    written: list[str] = []
    monkeypatch.setattr(EventFileWriters, "start", lambda self, spec: written.append(spec.run_id))

    async def work(runs: RunRegistry) -> None:
        await runs.submit(spec())

    registered(work, has_event_files=has_event_files)
    assert written == (["r1"] if has_event_files else [])


def test_a_run_that_is_submitted_twice_at_once_keeps_its_directory() -> None:
    """A mirror whose connection breaks asks again while the first request is being answered."""
    n_waiting = 0
    both_wait = asyncio.Event()

    async def known() -> None:
        nonlocal n_waiting
        n_waiting += 1
        if n_waiting == 2:
            both_wait.set()
        await both_wait.wait()

    async def work(runs: RunRegistry) -> None:
        training = msgspec.structs.replace(spec(), verb=Ddp(1))  # which GPUs there are decides
        both = (runs.submit(training), runs.submit(training))
        refused = [each for each in await asyncio.gather(*both, return_exceptions=True) if each]
        assert ledger_path("r1").exists()
        assert [type(each) for each in refused] == [SpecError]
        assert "exists already" in str(refused[0])
        assert runs.active == ("r1",)

    registered(work, gpus_known=known)


def test_a_copy_of_a_run_elsewhere_goes_on_here_only_if_somebody_asks_for_it() -> None:
    """A cluster of that name in pods drives it, and the local one would train it once more."""
    for name in RUN_FOLDERS:
        private_dir(run_dir("r1") / name)
    with LedgerWriter.open(ledger_path("r1"), create=True) as ledger:
        ledger.append([RunSubmitted(spec(), 1000.0)])
    note = run_dir("r1") / COPY_NOTE
    note.write_text("{}")

    async def work(runs: RunRegistry) -> None:
        assert await runs.resume_unfinished() == []
        assert note.exists()
        await runs.resume("r1")
        assert runs.active == ("r1",)
        assert not note.exists()

    registered(work)
