"""Importance, curves of any metric and one trial, as a view asks for them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest

from jupyter_ddl.client.run import Run
from jupyter_ddl.controller.telemetry_store import samples_path
from jupyter_ddl.errors import TrialError
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.plotting.importance import Importance
from jupyter_ddl.protocol.events import AttemptStarted, Reported, TrialCreated
from jupyter_ddl.protocol.telemetry import WorkerSample
from jupyter_ddl.protocol.view_messages import GetCurves, GetHistory, GetImportance, GetTrial
from jupyter_ddl.server.links import Links
from jupyter_ddl.server.requests import Requests
from jupyter_ddl.server.run_list import Folds
from jupyter_ddl.verbs.search import Search
from jupyter_ddl.views import analysis
from jupyter_ddl.views.analysis import analysis_of
from tests.leaks import Home
from tests.unit.cell.cell_makers import notebook
from tests.unit.recorded_runs import (
    BEGAN_S,
    events_of_search,
    params_of,
    record_search,
    value_of,
)


def state_of(run_id: str) -> RunState:
    return fold_all(Run(run_id).events())


def test_the_parameter_that_decides_has_the_largest_share(home: Home) -> None:
    record_search("why-1")
    part = analysis_of(state_of("why-1"), GetImportance(5, "why-1"))()
    assert (part.id, part.run_id, part.n_trials) == (5, "why-1", 23)
    assert part.shares[0][0] == "lr"
    assert sum(share for _, share in part.shares) == pytest.approx(1)


def test_a_run_over_time_is_read_from_its_record_and_what_its_machines_did(home: Home) -> None:
    record_search("why-0")
    lines = [
        msgspec.json.encode(WorkerSample("w0", "h", BEGAN_S + n, cpu=1.0, n_cpus=2.0))
        for n in range(20)
    ]
    samples_path("why-0").write_bytes(b"\n".join([*lines, lines[0][:30]]))
    part = analysis_of(state_of("why-0"), GetHistory(5, "why-0"))()
    history = part.history
    assert (part.id, history.n_bars, history.lanes) == (5, 30, ("w0", "w1"))
    assert history.length_s == 60.0
    assert {bar[3] for bar in history.bars} == {"complete", "pruned", "failed"}
    assert history.cpu
    assert set(history.cpu) == {0.5}
    (samples_path("why-0")).unlink()
    assert analysis_of(state_of("why-0"), GetHistory(5, "why-0"))().history.cpu == ()


def test_a_run_without_a_space_says_so(home: Home) -> None:
    record_search("why-2", [], line="run", cell="x = 1")
    part = analysis_of(state_of("why-2"), GetImportance(1, "why-2"))()
    assert part.shares == ()
    assert "this run has none" in part.note


def test_importance_is_worked_out_seldom_and_by_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, asked = 100.0, []
    own = analysis._Importances(lambda: now_s)
    is_busy = threading.Lock()

    def slow(study: object, trials: list[object]) -> Importance:
        assert is_busy.acquire(blocking=False)
        asked.append(len(trials))
        is_busy.release()
        return Importance({"a": 1.0}, len(trials))

    monkeypatch.setattr(analysis, "importance_of", slow)
    study = Search("acc", "max", 3, {})
    trials = [({"a": 1}, 1.0)] * 20
    threads = [threading.Thread(target=own.of, args=("r", study, trials)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked == [20]
    assert own.of("r", study, trials * 2).n_trials == 20  # too early
    now_s += 60
    assert own.of("r", study, trials * 2).n_trials == 40
    now_s += 60
    own.of("r", study, trials * 2)  # nothing new
    assert asked == [20, 40]


def test_any_metric_has_curves(home: Home) -> None:
    record_search("why-3")
    state = state_of("why-3")
    part = analysis_of(state, GetCurves(1, "why-3"))()
    assert part.metric == "val_acc"
    assert part.metrics == ("val_acc", "loss")
    losses = analysis_of(state, GetCurves(2, "why-3", "loss"))()
    assert {curve.metric for curve in losses.curves} == {"loss"}
    best = state.best_number
    (curve,) = [each for each in losses.curves if each.trial == best]
    expected = [(step, 2.0 - value_of(best) - step) for step in range(4)]
    assert list(curve.points) == expected
    assert {state.trials[each.trial].state for each in losses.curves} >= {"complete", "pruned"}


def test_the_best_trial_alone_is_told_finely(home: Home) -> None:
    record_search("why-12", events_of_search(30, n_steps=300))
    state = state_of("why-12")
    (best,) = analysis_of(state, GetCurves(1, "why-12", "loss", is_best=True))().curves
    assert best.trial == state.best_number
    assert [step for step, _ in best.points] == list(range(300))
    many = analysis_of(state, GetCurves(1, "why-12", "loss"))().curves
    assert max(len(each.points) for each in many) <= 60
    # Before there is a best one, the curve is that of the trial which began last.
    record_search("why-13", events_of_search(3, n_steps=4)[:-3], ends=False)
    (last,) = analysis_of(state_of("why-13"), GetCurves(1, "why-13", is_best=True))().curves
    assert last.trial in state_of("why-13").trials
    record_search("why-14", [], ends=False)
    assert analysis_of(state_of("why-14"), GetCurves(1, "why-14", is_best=True))().curves == ()


def test_an_unknown_metric_and_no_trials_are_sentences(home: Home) -> None:
    record_search("why-4")
    record_search("why-5", [], ends=False)
    timed = analysis_of(state_of("why-4"), GetCurves(1, "why-4", "loss", "time"))()
    assert [seconds for seconds, _ in timed.curves[0].points] == [0.0, 0.1, 0.2, 0.3]
    without = analysis_of(state_of("why-4"), GetCurves(1, "why-4", "loss", "epoch"))()
    assert (without.curves, without.note) == ((), "no trial has reported loss with an epoch")
    wrong = analysis_of(state_of("why-4"), GetCurves(1, "why-4", "__proto__"))()
    assert (wrong.curves, wrong.note) == ((), "no trial has reported __proto__")
    none = analysis_of(state_of("why-5"), GetCurves(1, "why-5"))()
    assert (none.curves, none.metrics) == ((), ())
    assert none.note == "no trial has reported anything"


def test_a_second_attempt_overwrites_what_it_repeats(home: Home) -> None:
    events = [
        *events_of_search(1, n_steps=4)[:-1],
        AttemptStarted(0, 2, 1.7e9, worker="w1", pid=9, log="a.log", log_start=0),
        Reported(0, 2, 2, {"loss": 7.0, "val_acc": 0.5}, 1.7e9),
        Reported(0, 1, 3, {"loss": 9.0, "val_acc": 9.0}, 1.7e9),  # of the one that was lost
    ]
    record_search("why-6", events, ends=False)
    part = analysis_of(state_of("why-6"), GetCurves(1, "why-6", "loss"))()
    (curve,) = part.curves
    assert [step for step, _ in curve.points] == [0, 1, 2]
    assert curve.points[-1] == (2, 7.0)


def test_a_trial_is_told_with_its_curves_and_as_a_cell(home: Home) -> None:
    record_search("why-7", name="hand")
    part = analysis_of(state_of("why-7"), GetTrial(3, "why-7", 12))()
    assert part.row.params == params_of(12)
    assert part.row.worker == "w0"
    assert [curve.metric for curve in part.curves] == ["val_acc", "loss"]
    assert part.cell.startswith("# trial 12 of run hand: val_acc 0.")
    names = notebook()
    exec(part.cell, names)
    assert {name: names[name] for name in params_of(12)} == params_of(12)
    assert names["val_acc"] == params_of(12)["lr"]
    assert part.note == ""


def test_what_can_not_be_told_of_a_trial_is_a_sentence(home: Home) -> None:
    record_search("why-8")
    with pytest.raises(TrialError, match="run why-8 has no trial 99"):
        analysis_of(state_of("why-8"), GetTrial(1, "why-8", 99))
    failed = analysis_of(state_of("why-8"), GetTrial(1, "why-8", 7))()
    assert failed.curves == ()
    metrics = {f"m{n}": float(n) for n in range(300)}
    many = [*events_of_search(1)[:-1], Reported(0, 1, 9, metrics, 1.7e9)]
    record_search("why-9", many, ends=False)
    part = analysis_of(state_of("why-9"), GetTrial(1, "why-9", 0))()
    assert len(part.curves) == 24
    assert part.note == "278 more metrics are not shown"
    assert len(analysis_of(state_of("why-9"), GetCurves(1, "why-9"))().metrics) == 300


def test_of_one_trial_all_parameters_are_told_or_how_many_are_not(home: Home) -> None:
    for n_params, n_told, note in ((40, 40, ""), (300, 256, "44 more parameters are not shown")):
        run_id = f"why-params-{n_params}"
        params = {f"p{n}": 0.5 for n in range(n_params)}
        first, *_ = events_of_search(1)
        record_search(run_id, [first, TrialCreated(0, params, 1.7e9)], ends=False)
        part = analysis_of(state_of(run_id), GetTrial(1, run_id, 0))()
        assert len(part.row.params) == n_told
        assert note in part.note


def test_answers_fit_into_what_a_page_is_sent(home: Home) -> None:
    record_search("why-10", events_of_search(120, n_steps=300))
    state = state_of("why-10")
    for ask in (GetCurves(1, "why-10", "loss"), GetTrial(1, "why-10", 3)):
        assert len(msgspec.json.encode(analysis_of(state, ask)())) < 60_000


def test_the_server_answers_them(home: Home) -> None:
    record_search("why-11")

    async def answers() -> list[Any]:
        requests = Requests(Links(), Folds(), lambda: None)
        asks: list[Any] = [GetImportance(1, "why-11"), GetCurves(2, "why-11", "loss")]
        asks += [GetTrial(3, "why-11", 1), GetTrial(4, "why-11", 99)]
        return [await requests.answer(ask, lambda _: None) for ask in asks]

    found = asyncio.run(answers())
    kinds = [each.__struct_config__.tag for each in found]
    assert kinds == ["importance", "curves", "trial", "denied"]
    assert [each.id for each in found] == [1, 2, 3, 4]
