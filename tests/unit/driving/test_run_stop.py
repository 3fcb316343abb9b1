"""How and why a run stops: only ever faster, and by its timeout of all sessions together."""

from __future__ import annotations

from jupyter_ddl.driving.ending import RunStop
from jupyter_ddl.driving.machine import Now
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.events import RunFinished
from jupyter_ddl.protocol.run import Limits

NOW = Now(mono_s=50.0, wall_s=1000.0)


def test_now_follows_on_next_report_and_never_the_other_way() -> None:
    stop = RunStop(Limits())
    assert stop.request("next_report", "a person", NOW)
    assert not stop.request("next_report", "again", NOW)
    assert stop.request("now", "a timeout", NOW)
    assert not stop.request("next_report", "too late", NOW)
    assert (stop.when, stop.reason) == ("now", "a person")
    assert not stop.is_given_up(Now(89.9, 1000.0))
    assert stop.is_given_up(Now(90.0, 1000.0))


def test_a_timeout_counts_what_earlier_sessions_took() -> None:
    state = RunState(started_at_s=900.0)
    late, early = RunStop(Limits(timeout_s=99.0)), RunStop(Limits(timeout_s=200.0))
    late.begin(state, NOW)
    early.begin(state, NOW)
    assert late.is_timed_out(NOW)
    assert not early.is_timed_out(NOW)
    late.request("now", "timeout", NOW)
    assert not late.is_timed_out(NOW)


def test_a_run_that_had_ended_gets_its_time_anew() -> None:
    state = RunState(started_at_s=900.0, end=RunFinished(0.0, "cancelled"))
    stop = RunStop(Limits(timeout_s=10.0))
    stop.begin(state, NOW)
    assert not stop.is_timed_out(NOW)
