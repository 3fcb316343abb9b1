"""What a cell of fits tells its controller, and tells the next one when that is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_ddl.errors import ClusterError, JupyterDDLError, SpecError
from jupyter_ddl.protocol.fit import FeedFit, FinishFit, TakeFit
from jupyter_ddl.protocol.fit_results import FitResults, TakenUnit
from jupyter_ddl.sklearn_fit import exchange
from jupyter_ddl.sklearn_fit.exchange import FitRun

DONE = FitResults((TakenUnit(0, b"outcome"),))


class Controllers:
    """Answers one request after another; an error stands for one that is lost, or refuses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[type] = []
        monkeypatch.setattr(exchange.time, "sleep", lambda _: None)
        for name in ("_show", "_revive"):
            monkeypatch.setattr(FitRun, name, lambda *_: None)
        monkeypatch.setattr(FitRun, "_ask", lambda _, body: self.ask(body))

    def ask(self, body: Any) -> Any:
        self.asked.append(type(body))
        answer = self.answers.pop(0)
        if isinstance(answer, JupyterDDLError):
            raise answer
        return answer

    def outcomes(self) -> list[int]:
        run: Any = FitRun.__new__(FitRun)
        batch: Any = SimpleNamespace(units=[None], kind="score", error_score="raise")
        parts = [FeedFit("f1", 1, 0, "t", ())]
        found = run._exchange(SimpleNamespace(id="f1"), batch, parts, lambda _: None)
        return sorted(found)


def test_a_controller_that_is_lost_before_a_batch_is_closed_is_told_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How a candidate ended may not have been on record yet."""
    controllers = Controllers(monkeypatch, None, DONE, ClusterError("it is gone"), None, None)
    assert controllers.outcomes() == [0]
    assert controllers.asked == [FeedFit, TakeFit, FinishFit, FeedFit, FinishFit]


def test_a_cell_that_has_all_goes_on_without_a_record_that_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = Controllers(monkeypatch, None, DONE, SpecError("run f1 is over"))
    assert refused.outcomes() == [0]
    lost = Controllers(monkeypatch, None, DONE, *[ClusterError("it is gone")] * 50)
    assert lost.outcomes() == [0]


def test_a_cell_that_lacks_an_outcome_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match="is over"):
        Controllers(monkeypatch, None, SpecError("run f1 is over")).outcomes()
    with pytest.raises(ClusterError, match="gone"):
        Controllers(monkeypatch, *[ClusterError("it is gone")] * 50).outcomes()
