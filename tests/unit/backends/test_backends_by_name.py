"""Backends are found by name, and a missing one is told in one line."""

from __future__ import annotations

import sys

import pytest

from jupyter_ddl.backends.registry import backend_names, make_backend
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.cluster import ClusterSpec


def test_the_names_are_those_of_the_entry_points() -> None:
    assert {"dask", "gateway", "kube", "local"} <= set(backend_names())


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jupyter_ddl.backends.gateway", raising=False)
    monkeypatch.setitem(sys.modules, "dask_gateway", None)
    with pytest.raises(
        ClusterError, match=r"'gateway' needs the package (dask_gateway|aiohttp)"
    ) as it:
        make_backend(ClusterSpec(backend="gateway"))
    assert "`pip install 'jupyter_ddl[gateway]'`" in it.value.message


def test_an_address_is_what_connect_takes() -> None:
    with pytest.raises(ClusterError, match="`%cluster connect ADDRESS`"):
        make_backend(ClusterSpec(backend="dask"))
