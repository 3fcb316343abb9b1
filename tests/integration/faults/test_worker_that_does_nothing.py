"""A worker that beats, takes a trial, and does nothing with it: the trial goes elsewhere."""

from __future__ import annotations

import pytest

from jupyter_ddl.client.dask_client import connect_client
from jupyter_ddl.client.session import session
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.events import Notice
from tests.leaks import Home
from tests.run_tools import STEPS, assert_clean, outcomes, start_search, workers
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("answers", [True, False], ids=["it denies", "it answers nobody"])
def test_its_trial_is_repeated_elsewhere_and_it_is_replaced(stopping: Home, answers: bool) -> None:
    session().start(ClusterSpec(name="test", n_workers=2, worker_timeout_s=5.0))

    def fall_out(answers, dask_worker):  # type: ignore[no-untyped-def]
        async def never(*_args, **_options):  # type: ignore[no-untyped-def]
            import asyncio

            await asyncio.Event().wait()

        dask_worker.plugins["jupyter_ddl"].execute = never
        if not answers:
            dask_worker.handlers["run"] = never

    with connect_client() as client:
        broken, _ = sorted(client.scheduler_info(n_workers=-1)["workers"])
        before = {process.pid for process in workers()}
        client.run(fall_out, answers, workers=[broken])
    run = start_search(STEPS, 6, seed=3)
    run.wait(PATIENCE_S)
    assert run.state == "complete"
    assert_clean(run, 6)
    ends = outcomes(run, "evicted")
    assert 1 <= len(ends) <= 2, "a second one may have waited behind it"
    for end in ends:
        assert end.failure is not None
        assert end.failure.type_name == "LeaseOver"
    told = [event.text for event in run.events() if isinstance(event, Notice)]
    assert len([text for text in told if "lives, and has not said" in text]) == len(ends)
    replaced = until(
        lambda: (now := {process.pid for process in workers()}) != before and len(now) == 2 and now,
        30.0,
        "a worker in its place",
    )
    assert len(replaced & before) == 1
