"""What a kernel makes of a controller that dies while it is asked."""

from __future__ import annotations

import sys
from argparse import Namespace

import pytest

from jupyter_ddl.client import session as module
from jupyter_ddl.client.clusters import chosen_cluster
from jupyter_ddl.client.session import Session, choose_cluster
from jupyter_ddl.client.specs import remember_spec
from jupyter_ddl.errors import ClusterError, ControllerError
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.requests import GetStatus
from jupyter_ddl.store.connection import ConnectionInfo, socket_path
from jupyter_ddl.store.processes import this_process
from tests.leaks import Home


def test_a_controller_that_dies_between_two_looks_is_lost_and_not_unknown(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = ConnectionInfo("test", str(socket_path("test")), this_process(), "0", 0.0)
    for ask in (
        lambda session: session.watch("test", "r1"),
        lambda session: session.ask_controller_of("test", GetStatus()),
    ):
        seen = iter((info, None))
        monkeypatch.setattr(module, "read_connection", lambda _, seen=seen: next(seen))
        with pytest.raises(ControllerError, match="is not running"):
            ask(Session())


def test_a_controller_that_dies_before_it_has_said_a_word_is_lost_too(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ControllerError, match="cluster test ended while starting"):
        Session().start(ClusterSpec(name="test", n_workers=1, prewarm=("numpy",)))


def test_a_cluster_that_nobody_here_has_started_is_looked_for_elsewhere_first(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[str] = []
    began: list[str] = []
    troubles: list[str] = []

    def join(name: str, _: object) -> list[str]:
        there.extend(() if troubles else (name,))
        return troubles

    def start(_: Session, spec: ClusterSpec, *__: object) -> None:
        began.append(spec.name)

    monkeypatch.setattr(module, "join_named", join)
    monkeypatch.setattr(module, "read_connection", lambda name: name if name in there else None)
    monkeypatch.setattr(Session, "start", start)
    session = Session()
    session._start_or_join("far")
    assert (there, began) == (["far"], [])
    troubles.append("clusters of backend pods are not listed: it is away")
    with pytest.raises(ClusterError, match="may run elsewhere: clusters of backend pods are not"):
        session._start_or_join("other")
    session._start_or_join("local")
    remember_spec(ClusterSpec(name="mine"))
    session._start_or_join("mine")
    assert (there, began) == (["far"], ["local", "mine"]), "these were started here"


@pytest.fixture
def running(home: Home, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of clusters that seem to run; none is ever started."""
    names: list[str] = []
    infos = {name: Namespace(name=name) for name in ("a", "b", "local")}
    monkeypatch.setattr(module, "list_connections", lambda: [infos[name] for name in names])
    monkeypatch.setattr(
        module, "read_connection", lambda name: infos[name] if name in names else None
    )
    started = "started {}".format
    monkeypatch.setattr(
        Session, "_start_or_join", lambda self, name, _: names.append(started(name))
    )
    return names


def test_a_new_notebook_takes_the_only_cluster_or_starts_one(running: list[str]) -> None:
    running.append("a")
    assert Session().ensure() == "a"
    running.clear()
    assert Session().ensure() == "local"
    assert running == ["started local"]


def test_with_two_clusters_a_new_notebook_asks_in_place_of_starting_a_third(
    running: list[str],
) -> None:
    running += ["a", "b"]
    with pytest.raises(ClusterError, match="a, b; `%cluster attach NAME` chooses one"):
        Session().ensure()
    assert running == ["a", "b"]
    running.append("local")
    assert Session().ensure() == "local"


def test_the_cluster_that_was_chosen_for_new_notebooks_is_used_while_it_runs(
    running: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "jupyter_ddl.client.clusters.list_connections", lambda: module.list_connections()
    )
    monkeypatch.setattr("jupyter_ddl.client.clusters.session", Session)
    running += ["a", "b", "local"]
    choose_cluster("b")
    assert Session().ensure() == "b"
    assert chosen_cluster().name == "b"
    own = Session()
    own.current = "a"
    assert own.ensure() == "a"
    running.remove("b")
    assert Session().ensure() == "local"


def test_who_waits_for_a_run_of_the_only_cluster_starts_no_other_when_that_is_lost(
    running: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Namespace(follow=lambda run_id: run_id)
    monkeypatch.setattr(Session, "_revived", lambda *_: link)
    monkeypatch.setattr(Session, "_call", lambda _, asked, __: asked)
    running.append("a")
    session = Session()
    assert session.watch("a", "r1") == "r1"
    running.clear()
    assert session.ensure() == "a"
    assert running == ["started a"]
    running[:] = ["a", "local"]
    other = Session()
    other.watch("a", "r1")
    assert other.ensure() == "local", "one of several was not chosen by looking at its run"
