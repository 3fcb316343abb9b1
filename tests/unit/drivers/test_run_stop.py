"""How and why a run stops: only ever faster, and by its timeout of all sessions together."""

from __future__ import annotations

import time

from jupyter_ddl.drivers.stopping import RunStop
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.events import RunFinished
from jupyter_ddl.protocol.run import Limits


def test_now_follows_on_next_report_and_never_the_other_way() -> None:
    stop = RunStop(Limits())
    assert stop.request("next_report", "a person")
    assert not stop.request("next_report", "again")
    assert stop.request("now", "a timeout")
    assert not stop.request("next_report", "too late")
    assert (stop.when, stop.reason) == ("now", "a person")
    assert not stop.is_given_up


def test_a_timeout_counts_what_earlier_sessions_took() -> None:
    state = RunState(started_at_s=time.time() - 100.0)
    late, early = RunStop(Limits(timeout_s=99.0)), RunStop(Limits(timeout_s=200.0))
    late.begin(state)
    early.begin(state)
    assert late.is_timed_out
    assert not early.is_timed_out
    late.request("now", "timeout")
    assert not late.is_timed_out


def test_a_run_that_had_ended_gets_its_time_anew() -> None:
    state = RunState(started_at_s=time.time() - 100.0, end=RunFinished(0.0, "cancelled"))
    stop = RunStop(Limits(timeout_s=10.0))
    stop.begin(state)
    assert not stop.is_timed_out
