"""What the kernel asks of a run of fits while its cell runs."""

from __future__ import annotations

from jupyter_ddl.controller.runs import RunRegistry
from jupyter_ddl.events.replies import Accepted, Result
from jupyter_ddl.spec.fit import FeedFit, FinishFit, TakeFit, TellFit
from jupyter_ddl.spec.requests import FitBody

__all__ = ["answer_fit"]


async def answer_fit(body: FitBody, runs: RunRegistry) -> Result:
    """Answer one request.

    Raises
    ------
    RunNotFoundError
        The run has ended.
    SpecError
        It is no run of fits, or takes no more.
    """
    driver = runs.fit(body.run_id)
    match body:
        case FeedFit():
            await driver.feed(body)
        case TakeFit():
            return await driver.take(body)
        case FinishFit():
            await driver.finish(body)
        case TellFit():
            await driver.tell(body)
    return Accepted(run_id=body.run_id)
