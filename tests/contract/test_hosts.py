"""Hosts of controllers keep what is expected of one; Kubernetes does so in tests/kube."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from jupyter_ddl.backends.base import ControllerHost
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.testing.hosts import HostCase, HostContract
from tests.integration.mirror.next_door import Door, NextDoor, NextDoorHost, opened_door
from tests.leaks import Home

pytestmark = pytest.mark.integration


@pytest.fixture
def door(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    del home
    with opened_door(monkeypatch) as found:
        yield found


def case_of(door: Door, plugin: NextDoor | None = None) -> HostCase:
    def leftovers() -> list[str]:
        return [str(each) for each in (*door.root.glob("*.spec"), *door.runtime.glob("*.sock"))]

    spec = ClusterSpec(name="test", backend="nextdoor", n_workers=1)
    return HostCase(spec, leftovers=leftovers, plugin=plugin)


class TestNextDoor(HostContract):
    @pytest.fixture
    def case(self, door: Door) -> HostCase:
        return case_of(door)


# -- the contract itself: what does not keep it fails ----------------------------------------------


class _Forgetful(NextDoorHost):
    """Leaves what it has begun, and who joins never learns of the end."""

    async def end(self) -> None:
        self._door.note(self._spec).unlink(missing_ok=True)

    async def missing(self) -> str:
        return ""


class _ForgetfulPlugin(NextDoor):
    name = "nextdoor"

    def controller_host(self, spec: ClusterSpec) -> ControllerHost:
        return _Forgetful(spec)


def test_a_host_that_never_tells_of_the_end_and_leaves_controllers_does_not_pass(
    door: Door,
) -> None:
    case = case_of(door, _ForgetfulPlugin())
    case.gone_within_s = 0.1
    with pytest.raises(AssertionError, match="must learn that the cluster is gone"):
        HostContract().test_its_life(case)
    assert case.leftovers() != []
    asyncio.run(NextDoorHost(case.spec).end())
