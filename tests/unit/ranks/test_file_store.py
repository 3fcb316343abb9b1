"""The store of ranks on one host: what torch asks of it, and how soon a rank is heard."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("torch", reason="the store is torch's")

import torch.distributed as dist

from jupyter_ddl.ranks import file_store
from jupyter_ddl.ranks.file_store import FileStore


@pytest.fixture
def path() -> Iterator[str]:
    fd = os.memfd_create("store")
    yield f"/dev/fd/{fd}"
    os.close(fd)


def test_what_one_rank_says_the_other_hears_through_torchs_prefixes(path: str) -> None:
    ours, theirs = (
        dist.PrefixStore("round", FileStore(path, timedelta(seconds=20))) for _ in range(2)
    )
    ours.set("bytes", b"\0\xff")
    assert theirs.get("bytes") == b"\0\xff"
    assert [ours.add("n", 2), theirs.add("n", 3)] == [2, 5]
    assert theirs.compare_set("n", "5", "7") == ours.get("n") == b"7"
    ours.multi_set(["a", "b"], ["1", "2"])
    assert theirs.multi_get(["a", "b"]) == [b"1", b"2"]
    assert theirs.check(["a", "b"])
    assert ours.delete_key("a")
    assert not theirs.check(["a", "b"])


def test_a_wait_ends_when_another_thread_has_spoken(path: str) -> None:
    ours, theirs = (FileStore(path, timedelta(seconds=60)) for _ in range(2))
    found: list[bytes] = []
    waiting = threading.Thread(target=lambda: found.append(theirs.get("word")))
    waiting.start()
    ours.set("word", "heard")
    waiting.join(60)
    assert found == [b"heard"]


class _Clock:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        self.slept.append(duration_s)
        self.now_s += duration_s


def test_it_looks_often_at_first_and_seldom_where_it_waits_long(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock: Any = _Clock()
    monkeypatch.setattr(file_store, "time", clock)
    store = FileStore(path, timedelta(seconds=10))
    with pytest.raises(dist.DistStoreError, match="waited 10 s for word"):
        store.get("word")
    assert clock.slept[0] < 0.001
    assert max(clock.slept) == 0.01
    assert len(clock.slept) < 1_200
    looked_s = sum(pause_s for pause_s in clock.slept if pause_s < 0.001)
    assert looked_s > 0.01, "ranks of one host meet within this"
