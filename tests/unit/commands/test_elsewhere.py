"""What commands make of clusters and runs elsewhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_ddl.backends.base import FoundCluster
from jupyter_ddl.cli.main import main
from jupyter_ddl.commands import cluster, runs
from tests.leaks import Home

POD = FoundCluster("pods", "far", "namespace n", 2, "", "n/far-1")
RACK = FoundCluster("site", "big", "rack 4", 1, "b:n:1:1", "7")


class _Joining:
    trouble = ""

    def __init__(self, found: FoundCluster, done: list[str]) -> None:
        done.append(f"join {found.name}")

    is_over = True

    def outcome(self, within_s: float) -> str:
        return self.trouble


@pytest.fixture
def told(home: Home, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done, in order; a pod's cluster and another one are elsewhere."""
    done: list[str] = []
    known = {"pods": True, "site": False}
    monkeypatch.setattr(cluster, "clusters_elsewhere", lambda: [POD, RACK])
    monkeypatch.setattr(cluster, "is_joinable", lambda found: known[found.backend])
    monkeypatch.setattr(cluster, "begin_joining", lambda found: _Joining(found, done))
    monkeypatch.setattr(
        cluster, "delete_elsewhere", lambda found: done.append(f"delete {found.name}")
    )
    monkeypatch.setattr(
        cluster,
        "Cluster",
        lambda name: SimpleNamespace(stop=lambda _: done.append(f"stop {name}")),
    )
    return done


def test_a_list_says_what_can_be_used_from_here_and_what_only_be_ended(
    told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "list"]) == 0
    out = capsys.readouterr().out
    assert "far in namespace n (2 workers): `jupyter ddl cluster attach far` uses it.\n" in out
    assert "big in rack 4 (1 worker) was started elsewhere; `jupyter ddl cluster stop big`" in out
    assert told == []


def test_a_cluster_elsewhere_is_ended_by_its_controller_or_by_its_service(
    told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "stop", "--all"]) == 0
    assert told == ["join far", "stop far", "delete big"]
    assert "Cluster far in namespace n is deleted.\nCluster big in rack" in capsys.readouterr().out


def test_one_that_cannot_be_joined_is_ended_all_the_same(
    told: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_Joining, "trouble", "cluster far can't be asked: no Secret")
    assert main(["cluster", "stop", "far"]) == 0
    assert told == ["join far", "delete far"]
    assert "Its runs are not copied: cluster far can't be asked: no S" in capsys.readouterr().out


def test_the_end_of_a_cluster_of_this_host_asks_no_service(
    told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = SimpleNamespace(name="own", stop=lambda _: told.append("stop own"))
    monkeypatch.setattr(cluster, "list_clusters", lambda: [here])
    monkeypatch.setattr(cluster, "chosen_cluster", lambda name: here)
    monkeypatch.setattr(cluster, "clusters_elsewhere", pytest.fail)
    info = SimpleNamespace(info=lambda name: SimpleNamespace(backend="local"))
    monkeypatch.setattr(cluster, "session", lambda: info)
    assert main(["cluster", "stop", "own"]) == 0
    assert main(["cluster", "stop"]) == 0
    assert told == ["stop own", "stop own"]


def test_the_list_of_runs_says_who_could_not_be_asked(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def join(on_phase: Any) -> list[str]:
        on_phase("asking cluster far in namespace n for its runs")
        return ["cluster far in namespace n can't be asked: it is away"]

    monkeypatch.setattr(runs, "join_elsewhere", join)
    assert main(["runs"]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "Asking cluster far in namespace n for its runs"
    assert last == "cluster far in namespace n can't be asked: it is away"
