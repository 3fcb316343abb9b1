"""The end of a cluster elsewhere: its runs are copied before, and whoever waits is told so."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from jupyter_ddl.backends.base import FoundCluster
from jupyter_ddl.client import clusters
from jupyter_ddl.client.clusters import Cluster
from jupyter_ddl.commands import cluster as command
from jupyter_ddl.errors import ClusterError, ControllerError
from jupyter_ddl.protocol.replies import Accepted, ClusterStatus, Result, StatusResult
from jupyter_ddl.protocol.requests import Body, StopCluster

COPYING = "its runs are copied here before it ends"


class Mirror:
    """Copies for some minutes, of a clock that a sleep moves; then it ends, or stands still."""

    current = None

    def __init__(self, ends_at_s: float, copies_until_s: float) -> None:
        self.now_s = 0.0
        self._ends_at_s, self._copies_until_s = ends_at_s, copies_until_s

    def info(self, _: str) -> Any:
        return SimpleNamespace(backend="kube", process=SimpleNamespace(pid=7))

    def ask(self, _: str, body: Body, timeout_s: float) -> Result:
        if isinstance(body, StopCluster):
            return Accepted()
        done = min(self.now_s, self._copies_until_s)
        status = ClusterStatus(
            "far", "kube", "stopping", 7, "", 0.0, (), 2, 1, None, (), 60.0, 60.0, 60.0
        )
        told = f"{COPYING}, {done:.0f} MiB so far"
        return StatusResult(msgspec.structs.replace(status, trouble=told))

    def is_there(self, *_: object) -> bool:
        return self.now_s < self._ends_at_s

    def sleep(self, _: float) -> None:
        self.now_s += 1.0


def _stopped(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told: list[str] = []
    monkeypatch.setattr(clusters, "session", lambda: mirror)
    monkeypatch.setattr(clusters, "is_alive", mirror.is_there)
    monkeypatch.setattr(clusters, "holds_name", lambda *_: False)
    clock = SimpleNamespace(monotonic=lambda: mirror.now_s, sleep=mirror.sleep)
    monkeypatch.setattr(clusters, "time", clock)
    Cluster("far").stop(told.append)
    return told


def test_as_long_as_files_come_a_stop_waits_and_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    told = _stopped(Mirror(ends_at_s=600.0, copies_until_s=590.0), monkeypatch)
    assert told[0].startswith(f"cluster far: {COPYING}, ")
    assert len(told) > 10


def test_a_mirror_that_stands_still_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ControllerError, match=r"within 60 s; its mirror here is pid 7"):
        _stopped(Mirror(ends_at_s=1e9, copies_until_s=100.0), monkeypatch)


def test_a_cluster_whose_runs_are_still_being_copied_is_not_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deleted: list[str] = []
    joining = SimpleNamespace(outcome=lambda _: "it has not answered", is_over=False)
    monkeypatch.setattr(command, "is_joinable", lambda _: True)
    monkeypatch.setattr(command, "begin_joining", lambda _: joining)
    monkeypatch.setattr(command, "delete_elsewhere", lambda found: deleted.append(found.name))
    face: Any = SimpleNamespace(steps=lambda: nullcontext(lambda _: None), say=deleted.append)
    found = FoundCluster("kube", "far", "namespace n", 2, "", "n/far-1")
    with pytest.raises(ClusterError, match=r"still being copied .* copies the rest"):
        command._end_elsewhere(face, found)
    assert not deleted
    joining.is_over = True  # it can't be joined at all: then it is ended without
    command._end_elsewhere(face, found)
    assert deleted == ["Its runs are not copied: it has not answered", "far"]
