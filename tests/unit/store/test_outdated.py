"""Versions with known holes are told when a cluster starts, each with what closes it."""

from __future__ import annotations

import logging

import pytest

from jupyter_ddl.client import session as session_module
from jupyter_ddl.store.advisories import FLOORS, outdated
from tests.unit.test_advisories import _PYPROJECT, floors

_OLDER = {
    "distributed": "2026.7.0",
    "jupyter_server": "2.19.3",
    "jupyterlab": "4.5.8",
    "jupyter-server-proxy": "4.1.0",
    "torch": "2.9.1",
}


@pytest.mark.parametrize("name", FLOORS)
def test_each_is_told_alone_with_what_closes_it(name: str) -> None:
    floor = FLOORS[name][0]
    for version, is_told in ((_OLDER[name], True), (floor, False), ("2099.1", False), ("", False)):
        found = outdated(lambda asked, v=version: v if asked == name else "")  # type: ignore[misc]
        assert len(found) == is_told
        if is_told:
            assert found[0].startswith(f"{name} {version} has a known hole")
            assert found[0].endswith(f"which {floor} closes: `pip install -U {name}`")
    assert outdated(lambda _: "my-own-build") == []
    assert outdated(lambda asked: f"{floor}+cpu" if asked == name else "") == []


def test_floors_are_those_of_an_installation() -> None:
    declared = dict(line.split("==") for line in floors(_PYPROJECT.read_text()))
    for name in declared.keys() & FLOORS.keys():
        assert declared[name] == FLOORS[name][0]


def test_who_starts_a_cluster_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session_module, "outdated", lambda: ["x 1 has a known hole"])
    session_module.tell_outdated.cache_clear()
    with caplog.at_level(logging.WARNING):
        session_module.tell_outdated()
        session_module.tell_outdated()
    assert [record.message for record in caplog.records] == ["x 1 has a known hole"]
