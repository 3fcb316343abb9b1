"""What a long run shows first is kept, is what its record tells, and gives way to the record."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from jupyter_ddl.ledger.snapshots import encoded_snapshot
from jupyter_ddl.protocol.view_messages import GetColumns
from jupyter_ddl.server import first_view
from jupyter_ddl.server.first_view import columns_kept, keep_first_view, snapshot_kept
from jupyter_ddl.server.hub import Hub
from jupyter_ddl.server.run_list import Folds
from jupyter_ddl.store.paths import run_dir
from jupyter_ddl.views import columns
from jupyter_ddl.views.columns import columns_part
from tests.unit.server.test_hub import Controller, Tab, until
from tests.unit.server.test_run_listing import ENDED, STARTED, go_on, record, trial


@pytest.fixture(autouse=True)
def long_run(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four trials, in columns of several parts."""
    monkeypatch.setattr(first_view, "N_LONG", 4)
    monkeypatch.setattr(columns, "_PART_BYTES", 40)
    record("r1", STARTED, *[event for n in range(4) for event in trial(n, 0.1 * n)], ENDED)


def kept() -> bool:
    keep_first_view(Folds(), "r1")
    return snapshot_kept("r1") is not None


def test_it_is_what_the_record_tells() -> None:
    assert snapshot_kept("r1") is None
    assert columns_kept(GetColumns(1, "r1")) is None
    assert kept()
    told = snapshot_kept("r1")
    assert told is not None
    folded = Folds().poll("r1", lambda state: encoded_snapshot(state, 0.0))
    assert told.decode() == folded.decode()
    n_parts = Folds().poll("r1", lambda state: columns_part(state, GetColumns(0, "r1")))[0].n_parts
    assert n_parts > 1
    for part in range(-1, n_parts + 1):
        ask = GetColumns(7, "r1", part=part)
        assert columns_kept(ask) == Folds().poll(
            "r1", lambda state, ask=ask: columns_part(state, ask)
        )
    assert columns_kept(GetColumns(7, "r1", since=2)) is None


def test_a_run_that_goes_on_is_read_from_its_record() -> None:
    assert kept()
    go_on("r1", msgspec.structs.replace(STARTED, session=2))
    assert snapshot_kept("r1") is None
    assert not kept()  # it is not over


def test_short_runs_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_view, "N_LONG", 5)
    assert not kept()
    assert not (run_dir("r1") / "first-view").exists()


def test_of_a_run_that_is_removed_meanwhile_none_is_kept() -> None:
    folds = Folds()
    folds.poll("r1", lambda _: None)
    run_dir("r1").rename(run_dir("r1").parents[1] / "away")
    keep_first_view(folds, "r1")  # a server that raised here told of a disk that can't be read


def test_a_file_that_is_damaged_or_another_runs_is_passed_over() -> None:
    assert kept()
    path = run_dir("r1") / "first-view"
    whole = path.read_bytes()
    rng = random.Random(3)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        for data in (damaged, whole[: rng.randrange(len(whole))]):
            path.write_bytes(data)
            assert snapshot_kept("r1") is None
            assert columns_kept(GetColumns(1, "r1")) is None
    path.write_bytes(whole)
    assert snapshot_kept("r1") is not None
    record("r2", STARTED, *trial(0, 0.5), ENDED)
    (run_dir("r2") / "first-view").write_bytes(whole)
    assert snapshot_kept("r2") is None


def test_another_server_shows_it_without_folding_the_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        first, second = Hub(Controller()), Hub(Controller())
        try:
            tab = Tab(first)
            tab.say(kind="watch", id=1, run_id="r1")
            await until(lambda: snapshot_kept("r1"))
            monkeypatch.setattr(second.folds, "poll", _refuse)
            other = Tab(second)
            other.say(kind="watch", id=1, run_id="r1")
            await until(lambda: other.states() == ["complete"])
            other.texts.clear()
            other.say(kind="get_columns", id=2, run_id="r1")
            await until(lambda: any(text.startswith(b"\0DDL") for text in other.texts))
        finally:
            await first.close()
            await second.close()

    asyncio.run(main())


def _refuse(*_: Any) -> None:
    raise AssertionError("the record was folded")
