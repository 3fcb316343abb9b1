"""Whose a DaskCluster is, and whether its controller is gone: nobody ends what is another's."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_ddl.backends.kubernetes.lifetime import controller_annotations, end_orphans, is_orphan
from jupyter_ddl.backends.kubernetes.names import OWNER_ANNOTATION, labels_of, user_name
from jupyter_ddl.errors import BackendError
from jupyter_ddl.store.connection import hold_name
from jupyter_ddl.store.processes import this_process
from tests.leaks import Home
from tests.namespaces import PID, apart, python

Json = dict[str, Any]
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_ANNOTATE = """
from jupyter_ddl.backends.kubernetes.lifetime import controller_annotations
print(controller_annotations()["jupyter-ddl/controller"])
"""


def cluster(token: str, name: str = "kube-1") -> Json:
    return {
        "metadata": {
            "name": name,
            "labels": labels_of("kube", user_name()),
            "annotations": {OWNER_ANNOTATION: token},
        }
    }


def token_of(**changed: Any) -> str:
    return msgspec.structs.replace(this_process(), **changed).token


class _Api:
    """Knows clusters, by the labels that it is asked for."""

    namespace = "space"

    def __init__(self, *clusters: Json) -> None:
        self.there = {each["metadata"]["name"]: each for each in clusters}

    async def list(self, _resource: str, labelSelector: str) -> list[Json]:  # noqa: N803
        wanted = dict(each.split("=", 1) for each in labelSelector.split(","))
        return [
            each
            for each in self.there.values()
            if wanted.items() <= each["metadata"]["labels"].items()
        ]

    async def delete(self, resource: str, name: str) -> None:
        if resource == "daskclusters":
            del self.there[name]

    async def get(self, _resource: str, name: str) -> Json:
        if name not in self.there:
            raise BackendError("gone", status=404)
        return self.there[name]


@pytest.mark.usefixtures("home")
def test_only_what_a_dead_process_of_this_very_place_has_left_is_deleted() -> None:
    ticks = this_process().start_ticks - 1
    api = _Api(
        cluster(token_of(start_ticks=ticks), "left"),
        cluster(controller_annotations()[OWNER_ANNOTATION], "live"),
        cluster(token_of(start_ticks=ticks, namespaces="another"), "of another container"),
        cluster(token_of(start_ticks=ticks, boot_id="another"), "of another host"),
        cluster("", "of nobody known"),
        cluster("7:1.00", "of no token"),
    )
    asyncio.run(end_orphans(api, "kube"))  # type: ignore[arg-type]
    assert set(api.there) == {
        "live", "of another container", "of another host", "of nobody known", "of no token",
    }  # fmt: skip


@pytest.mark.usefixtures("home")
def test_who_holds_a_name_is_not_gone() -> None:
    holder = hold_name("kube", lambda: False, 1.0)
    gone = token_of(start_ticks=1)
    assert is_orphan(cluster(gone))
    path = Path(f"/proc/self/fd/{holder}").readlink()
    path.write_bytes(path.read_bytes().replace(str(this_process().start_ticks).encode(), b"1"))
    assert not is_orphan(cluster(gone))
    os.close(holder)


def test_a_controller_of_a_container_is_not_judged_by_its_host(home: Home) -> None:
    del home
    token = subprocess.check_output([*apart(*PID), *python(_ANNOTATE)], text=True).strip()
    assert not is_orphan(cluster(token))  # though it has ended, and its pid is another's here


def test_two_homes_of_one_unix_user_are_two_users(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUPYTERHUB_USER", raising=False)
    monkeypatch.setenv("LOGNAME", "jovyan")
    mine = user_name()
    assert mine.startswith("jovyan-")
    assert user_name() == mine
    others = _Api(cluster(token_of(start_ticks=1)))
    monkeypatch.setenv("JUPYTER_DDL_HOME", str(home.root / "of another"))
    assert user_name() != mine
    asyncio.run(end_orphans(others, "kube"))  # type: ignore[arg-type]
    assert others.there
    monkeypatch.setenv("JUPYTER_DDL_USER", "ann")
    assert user_name() == "ann"


@pytest.mark.usefixtures("home")
def test_every_name_makes_a_label_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["ann", "ann@site", "ann-site", "ann site", "Ann", "n" * 63, "n" * 64, "n" * 65]
    names += ["\u00e9", "\u00e8", "-", "_", "a.", "a-", "0"]
    for variable in ("JUPYTERHUB_USER", "LOGNAME"):
        found = []
        for name in names:
            monkeypatch.setenv(variable, name)
            found.append(user_name())
            assert _LABEL.fullmatch(found[-1]), found[-1]
        assert len(set(found)) == len(names)
        monkeypatch.delenv(variable)
