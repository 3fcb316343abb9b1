"""What every host of controllers keeps, as tests that the author of one runs.

::

    class TestMine(HostContract):
        @pytest.fixture
        def case(self):
            yield HostCase(ClusterSpec(backend="mine"), leftovers=my_objects)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from jupyter_ddl.backends.base import BackendPlugin, ControllerHost, backend_plugin
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.link import Link
from jupyter_ddl.protocol.reading import from_json
from jupyter_ddl.protocol.replies import StatusResult
from jupyter_ddl.protocol.requests import GetStatus

__all__ = ["HostCase", "HostContract"]

_MARGIN_S = 30.0
_ANSWER_S = 30.0
_POLL_S = 0.05


@dataclass
class HostCase:
    """One host of controllers, as its author has it tested.

    Attributes
    ----------
    spec : ClusterSpec
        A small cluster; nobody else has one of its name.
    leftovers : callable
        What is left of clusters that were ended, one line each; asked until it is empty.
    plugin : BackendPlugin, optional
        By default the one that is installed under ``spec.backend``.
    gone_within_s : float
        How long after an end something may be left: what a service does behind it.
    """

    spec: ClusterSpec
    leftovers: Callable[[], Sequence[str]] = tuple
    plugin: BackendPlugin | None = None
    gone_within_s: float = 60.0

    @property
    def service(self) -> BackendPlugin:
        return self.plugin or backend_plugin(self.spec.backend)

    def make(self, **changes: Any) -> ControllerHost:
        """A host that has neither started nor joined anything."""
        spec = msgspec.structs.replace(self.spec, **changes)
        return self.service.controller_host(from_json(msgspec.json.encode(spec), ClusterSpec))


class HostContract:
    """Subclass it, and override the fixture ``case``."""

    @pytest.fixture
    def case(self) -> HostCase:
        """The host under test."""
        raise NotImplementedError("override the fixture `case`")

    def test_its_life(self, case: HostCase) -> None:
        """One test of many: a start is dear."""
        asyncio.run(_live(case))
        assert _gone(case) == []

    def test_where_there_is_no_cluster_none_is_joined(self, case: HostCase) -> None:
        async def live() -> None:
            host = case.make(name="no-such-cluster")
            assert await host.join() is None
            await host.close()
            await host.close()

        asyncio.run(live())
        assert _gone(case) == []

    def test_a_start_that_is_given_up_leaves_nothing(self, case: HostCase) -> None:
        async def live() -> None:
            host = case.make()
            begun = asyncio.Event()
            starting = asyncio.create_task(host.start(lambda _: begun.set()))
            await asyncio.wait_for(begun.wait(), _MARGIN_S)
            starting.cancel()
            done, _ = await asyncio.wait({starting}, timeout=_MARGIN_S)
            assert done, f"a start does not end within {_MARGIN_S:.0f} s of its cancellation"
            await host.close()

        asyncio.run(live())
        assert _gone(case) == []

    def test_a_start_that_is_late_is_refused_and_leaves_nothing(self, case: HostCase) -> None:
        async def live() -> None:
            host = case.make(start_timeout_s=0.01)
            with pytest.raises(ClusterError) as refusal:
                await asyncio.wait_for(host.start(lambda _: None), _MARGIN_S)
            assert "\n" not in refusal.value.message
            await host.close()

        asyncio.run(live())
        assert _gone(case) == []


async def _live(case: HostCase) -> None:
    first, second = case.make(), case.make()
    phases: list[str] = []
    await asyncio.wait_for(first.start(phases.append), case.spec.start_timeout_s + _MARGIN_S)
    try:
        assert phases, "start() must say what it does: whoever waits for it reads that"
        assert [text for text in phases if not text or "\n" in text] == []
        await _is_reached_and_found(case, first)
        await _is_started_once(case)
        await first.close()
        await first.close()
        await _is_joined(case, second)
    finally:
        ending = case.make()
        if await ending.join() is not None:
            await ending.end()
        await ending.close()
    assert await second.missing(), "who had joined must learn that the cluster is gone"
    await second.end()  # a second time it is without effect
    await second.close()
    late = case.make()
    assert await late.join() is None
    await late.close()


async def _is_reached_and_found(case: HostCase, host: ControllerHost) -> None:
    assert await host.missing() == ""
    assert isinstance(host.keeps_runs, bool)
    names = await asyncio.gather(_ask(host), _ask(host))  # side by side
    assert {*names} == {case.spec.name}
    found = await case.service.find_elsewhere()
    assert case.spec.name in [each.name for each in found]


async def _is_started_once(case: HostCase) -> None:
    twin = case.make()
    with pytest.raises(ClusterError) as refusal:
        await asyncio.wait_for(twin.start(lambda _: None), _MARGIN_S)
    assert case.spec.name in refusal.value.message
    await twin.close()


async def _is_joined(case: HostCase, host: ControllerHost) -> None:
    spec = await host.join()
    assert spec is not None, "a cluster goes on without whoever has started it"
    assert (spec.name, spec.backend) == (case.spec.name, case.spec.backend)
    assert spec.n_workers == case.spec.n_workers
    assert await _ask(host) == case.spec.name
    assert await host.missing() == ""


async def _ask(host: ControllerHost) -> str:
    """The name by which a controller goes, asked over a connection of its own."""
    link = Link("contract", *await host.connect())
    try:
        await link.greet(_ANSWER_S)
        result = await link.request(GetStatus(), _ANSWER_S)
        assert isinstance(result, StatusResult)
        return result.status.name
    finally:
        await link.close()


def _gone(case: HostCase) -> list[str]:
    """What is still left after a while."""
    deadline = time.monotonic() + case.gone_within_s
    while (found := list(case.leftovers())) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return found
