"""A run is meant by its name, its id, the beginning of one, or as the last."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl import Run, replay
from jupyter_ddl.client.run_names import find_run
from jupyter_ddl.errors import RecordingError, RunNotFoundError
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import RunFinished, RunStarted, RunSubmitted
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.paths import ledger_path, private_dir, run_dir
from jupyter_ddl.verbs.map import Map
from tests.leaks import Home


def _keep(run_id: str, name: str, at_s: float) -> None:
    private_dir(run_dir(run_id))
    verb = Map(over="items", element="item", n_items=1)
    spec = RunSpec(run_id, verb, Program("item", "In [1]"), 1, "test", at_s, name=name)
    with LedgerWriter.open(ledger_path(run_id), create=True) as writer:
        ended = RunFinished(at_s + 2, "complete")
        writer.append([RunSubmitted(spec, at_s), RunStarted(at_s + 1, 1, 1, 1, 7), ended])


@pytest.fixture(autouse=True)
def kept(home: Home) -> None:
    _keep("r1121-old", "n500", 1000.0)
    _keep("r1122-new", "n500", 3000.0)
    _keep("r1123-own", "by hand", 2000.0)
    _keep("r1124-odd", "r1121-old", 4000.0)
    _keep("r1125-not", "", 1500.0)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("by hand", "r1123-own"),
        ("n500", "r1122-new"),
        ("r1122", "r1122-new"),
        ("r1121-old", "r1121-old"),  # an id, though a newer run has it for a name
        ("last", "r1124-odd"),
    ],
)
def test_a_name_means_the_newest_run_of_it_and_an_id_always_itself(text: str, meant: str) -> None:
    assert find_run(text, lambda _: None) == meant


def test_that_several_runs_have_a_name_is_told_once_with_the_one_that_is_meant() -> None:
    told: list[str] = []
    find_run("n500", told.append)
    find_run("by hand", told.append)
    find_run("r1121-old", told.append)
    assert told == ["2 runs are named 'n500': r1122-new, the newest, is meant"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("n50", "there is no run 'n50'; did you mean 'n500'?"),
        ("by hend", "there is no run 'by hend'; did you mean 'by hand'?"),
        ("r1123-owm", "there is no run 'r1123-owm'; did you mean 'r1123-own'?"),
        ("", "there is no run ''; `%runs` lists them"),
        ("../../etc", "there is no run '../../etc'; `%runs` lists them"),
        ("r112", "'r112' may mean r1121-old, r1122-new, r1123-own, r1124-odd, r1125-not; type"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(text: str, says: str) -> None:
    with pytest.raises(RunNotFoundError) as refused:
        find_run(text)
    assert says in str(refused.value)


def test_a_run_is_made_of_its_name() -> None:
    assert Run("by hand").id == "r1123-own"
    with pytest.warns(UserWarning, match="r1122-new, the newest") as warned:
        assert Run("n500").id == "r1122-new"
    assert warned[0].filename == __file__


def test_a_run_is_played_by_its_name_and_a_file_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert replay("by hand").snapshot.run_id == "r1123-own"
    with pytest.raises(RunNotFoundError, match="did you mean 'by hand'"):
        replay("by hend")
    with pytest.raises(RecordingError, match="there is no such file"):
        replay("by hand.jsonl")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "by hand").write_text("nonsense\n")
    with pytest.raises(RecordingError, match="by hand"):
        replay("by hand")
