"""Requests for telemetry: answered at once, or pushed while somebody watches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from jupyter_ddl.controller.server import Session
from jupyter_ddl.controller.telemetry import Telemetry
from jupyter_ddl.events.replies import Accepted, Result, TelemetryPush, TelemetryResult
from jupyter_ddl.spec.requests import TelemetryBody, UnwatchTelemetry, WatchTelemetry

__all__ = ["answer_telemetry"]

_PUSH_INTERVAL_S = 1.0


def answer_telemetry(
    body: TelemetryBody,
    session: Session,
    telemetry: Telemetry,
    is_active: Callable[[str], bool],
) -> Result:
    """The result of one request; a watch ends with its session, or with its run.

    Parameters
    ----------
    is_active : callable
        Whether a run goes on.
    """
    name = f"telemetry {body.run_id}"
    if isinstance(body, WatchTelemetry | UnwatchTelemetry):
        old = session.watches.pop(name, None)
        if old is not None:
            old.cancel()
    if isinstance(body, UnwatchTelemetry):
        return Accepted(run_id=body.run_id or None)
    view = telemetry.view(body.run_id)
    if isinstance(body, WatchTelemetry) and not session.is_closed:
        goes_on = (lambda: is_active(body.run_id)) if body.run_id else (lambda: True)
        push = _push(body.run_id, session, telemetry, goes_on)
        session.watches[name] = asyncio.create_task(push, name=name)
    return TelemetryResult(view)


async def _push(
    run_id: str, session: Session, telemetry: Telemetry, goes_on: Callable[[], bool]
) -> None:
    seen = telemetry.seq
    is_active = True
    while is_active and not session.is_closed:
        await asyncio.sleep(_PUSH_INTERVAL_S)
        is_active = goes_on()
        if telemetry.seq != seen:
            seen = telemetry.seq
            session.send(TelemetryPush(run_id, telemetry.view(run_id)))
    session.watches.pop(f"telemetry {run_id}", None)
