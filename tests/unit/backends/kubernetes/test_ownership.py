"""Whose a DaskCluster is: nobody sees, or ends, what is another's."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from jupyter_ddl.backends.kubernetes.lifetime import living_clusters
from jupyter_ddl.backends.kubernetes.names import labels_of, user_name
from tests.leaks import Home

Json = dict[str, Any]
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def cluster(name: str = "kube-1") -> Json:
    return {"metadata": {"name": name, "labels": labels_of("kube", user_name())}}


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


def test_two_homes_of_one_unix_user_are_two_users(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUPYTERHUB_USER", raising=False)
    monkeypatch.setenv("LOGNAME", "jovyan")
    mine = user_name()
    assert mine.startswith("jovyan-")
    assert user_name() == mine
    others: Any = _Api(cluster())
    assert asyncio.run(living_clusters(others, "kube"))
    monkeypatch.setenv("JUPYTER_DDL_HOME", str(home.root / "of another"))
    assert user_name() != mine
    assert asyncio.run(living_clusters(others, "kube")) == []
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
