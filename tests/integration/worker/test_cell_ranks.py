"""Ranks of persistent groups on one worker, asked as a controller asks them."""

from __future__ import annotations

import uuid

import msgspec
import pytest

from jupyter_ddl.protocol.cells import (
    Cell,
    CellDone,
    CloseRank,
    InterruptRank,
    JoinRank,
    OpenRank,
    RankAddress,
    RankAnswer,
    RankCall,
    RankReady,
    RunCell,
)
from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.worker import plugin as plugin_calls
from tests.integration.worker.worker_bench import Bench, in_shared_bench
from tests.until import PATIENCE_S

pytestmark = pytest.mark.integration


async def ask(bench: Bench, call: RankCall) -> RankAnswer:
    workers = sorted((await bench.client.scheduler.identity())["workers"])
    encoded = msgspec.msgpack.encode(call)
    answers = await bench.client.run(plugin_calls.call_rank, encoded, workers=workers[:1])
    return msgspec.msgpack.decode(answers[workers[0]], type=RankAnswer)


@in_shared_bench
async def test_an_interrupt_that_comes_before_its_cell_ends_that_one_and_no_other(
    bench: Bench,
) -> None:
    group = f"g-{uuid.uuid4().hex}"
    place = RankPlace(group, hosts=("127.0.0.1",), initialize=False)
    opened = await ask(bench, OpenRank(group, str(bench.path / group), (), place))
    assert isinstance(opened, RankAddress), opened
    meet = (f"{opened.host}:{opened.port}",)
    ready = await ask(bench, JoinRank(group, 0, meet, PATIENCE_S, opened.store))
    assert isinstance(ready, RankReady), ready
    assert ready.failure is None, ready.failure

    await ask(bench, InterruptRank(group, 0, 2))
    endings = [
        await ask(bench, RunCell(group, 0, number, Cell(source, "In [1]")))
        for number, source in ((1, "a = 1"), (2, "import time; time.sleep(600)"), (3, "a += 1; a"))
    ]
    assert [(end.outcome, end.text) for end in endings if isinstance(end, CellDone)] == [
        ("complete", None),
        ("cancelled", None),
        ("complete", "2"),
    ]
    await ask(bench, CloseRank(group, 0))
