"""Who uses a scheduler that is not ours: told by what changes there, and by no clock of others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jupyter_ddl.backends import address
from jupyter_ddl.backends.address import AddressBackend
from jupyter_ddl.client.clusters import cluster_spec
from jupyter_ddl.store.processes import ProcessIdentity, this_process
from tests.leaks import Home

_ELSEWHERE = ProcessIdentity(7, 1, "another boot", "n")


def entry(process: ProcessIdentity, n_renewed: int = 1) -> dict[str, Any]:
    return {"name": "dask", "n_renewed": n_renewed, **msgspec.to_builtins(process)}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now_s = [100.0]
    monkeypatch.setattr(address, "awake_s", lambda: now_s[0])
    return now_s


@pytest.fixture
def backend(home: Home) -> AddressBackend:
    return AddressBackend(cluster_spec("dask", address="tcp://127.0.0.1:1"))


def test_of_this_host_it_is_known_at_once(backend: AddressBackend) -> None:
    me = this_process()
    assert backend._use_by(entry(me)) == "none", "it is one's own entry"
    lost = msgspec.structs.replace(me, start_ticks=me.start_ticks - 1)
    assert backend._use_by(entry(lost)) == "none"


def test_an_entry_of_another_host_that_is_renewed_is_in_use(
    backend: AddressBackend, clock: list[float]
) -> None:
    assert backend._use_by(entry(_ELSEWHERE, 1)) == "unclear"
    clock[0] += 10
    assert backend._use_by(entry(_ELSEWHERE, 1)) == "unclear"
    assert backend._use_by(entry(_ELSEWHERE, 2)) == "certain"
    clock[0] += 41  # nobody has looked since: what was seen then counts no more
    assert backend._use_by(entry(_ELSEWHERE, 3)) == "unclear"
    assert backend._use_by(entry(_ELSEWHERE, 4)) == "certain"


def test_one_that_stays_as_it_is_was_left(backend: AddressBackend, clock: list[float]) -> None:
    for _ in range(5):
        assert backend._use_by(entry(_ELSEWHERE)) == "unclear"
        clock[0] += 10
    assert backend._use_by(entry(_ELSEWHERE)) == "none"
