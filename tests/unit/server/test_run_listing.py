"""The list of runs: complete, newest first, and read again only where something has changed."""

from __future__ import annotations

import errno
from typing import Any

import msgspec
import pytest

from jupyter_ddl.errors import RunNotFoundError
from jupyter_ddl.ledger.writer import LedgerWriter, lock_path
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    RankStarted,
    Reported,
    RunFinished,
    RunStarted,
    RunSubmitted,
    TrialCreated,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.space import Uniform
from jupyter_ddl.protocol.verb import VerbSpec
from jupyter_ddl.server import run_list
from jupyter_ddl.server.run_list import N_RUNS, RECOVERS_S, Driven, Folds, RunListing, was_left
from jupyter_ddl.store.locks import Holder
from jupyter_ddl.store.paths import ledger_path, run_dir, runs_dir
from jupyter_ddl.store.processes import ProcessIdentity, this_process
from jupyter_ddl.verbs.ddp import Ddp
from jupyter_ddl.verbs.search import Search

SEARCH = Search("acc", "max", 2, {"lr": Uniform(0.0, 1.0)})


def record(
    run_id: str, *events: Event, created_at_s: float = 1000.0, verb: VerbSpec = SEARCH
) -> None:
    spec = RunSpec(run_id, verb, Program("x = 1", "In [3]"), 7, "local", created_at_s)
    run_dir(run_id).mkdir(parents=True)
    with LedgerWriter.open(ledger_path(run_id), create=True) as ledger:
        ledger.append([RunSubmitted(spec, created_at_s), *events])


def go_on(run_id: str, *events: Event) -> None:
    with LedgerWriter.open(ledger_path(run_id)) as ledger:
        ledger.append(list(events))


GONE = msgspec.structs.replace(this_process(), pid=2**22 + 1)


def hold(run_id: str, process: ProcessIdentity, since_s: float = 0.0) -> None:
    """Note that a controller holds a run's lock, or held it when it was lost."""
    holder = Holder(process, "here", "", since_s)
    lock_path(ledger_path(run_id)).write_bytes(msgspec.json.encode(holder))


def driven(*run_ids: str) -> Driven:
    return Driven(frozenset(run_ids))


def trial(number: int, value: float) -> list[Event]:
    return [
        TrialCreated(number, {"lr": 0.5}, 1002.0),
        AttemptFinished(number, 1, "complete", 1003.0, 1.0, value),
    ]


STARTED = RunStarted(1001.0, 1, 2, 2, 42)
ENDED = RunFinished(1009.0, "complete", totals={"complete": 2}, best_trial=1, best_value=0.9)


@pytest.fixture
def reads(home: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs whose ledger was opened for the list, in order."""
    found: list[str] = []
    real = run_list.read_run_line

    def counted(path: Any) -> Any:
        found.append(path.parent.name)
        return real(path)

    monkeypatch.setattr(run_list, "read_run_line", counted)
    return found


def test_runs_are_listed_newest_first_with_progress_and_best(home: Any) -> None:
    record("old", STARTED, *trial(0, 0.1), *trial(1, 0.9), ENDED, created_at_s=1000.0)
    record("new", STARTED, *trial(0, 0.3), created_at_s=2000.0)
    new, old = RunListing(Folds()).poll(driven("new"))
    assert (new.run_id, new.state, new.live) == ("new", "running", True)
    assert (new.n_finished, new.n_trials, new.best) == (1, 2, 0.3)
    assert (old.run_id, old.state, old.live, old.best) == ("old", "complete", False, 0.9)
    assert (old.n_finished, old.finished_at_s, old.metric) == (2, 1009.0, "acc")


def test_a_training_tells_its_step_and_round_while_it_runs_and_afterwards(home: Any) -> None:
    verb = Ddp(1)
    begun = [
        STARTED,
        TrialCreated(0, {}, 1002.0),
        AttemptStarted(0, 2, 1003.0, "w", 77, "a.log", 0),
        RankStarted(0, 2, 0, 1003.0, "w", "h", 77, "a.log", 0, world_size=1),
    ]
    reports = [Reported(0, 2, step, {"loss": 0.5}, 1004.0) for step in range(2000)]
    record("running", *begun, *reports, verb=verb)
    assert ledger_path("running").stat().st_size > 1 << 16  # more than a summary folds
    record("over", *begun, RunFinished(1009.0, "complete", totals={"complete": 1}, step=7, round=1),
           verb=verb)  # fmt: skip
    lines = {line.run_id: line for line in RunListing(Folds()).poll(driven("running"))}
    assert (lines["running"].step, lines["running"].round) == (1999, 2)
    assert (lines["over"].step, lines["over"].round) == (7, 1)


def test_a_run_that_ended_is_read_once_and_one_that_goes_on_when_it_grew(
    reads: list[str],
) -> None:
    record("ended", STARTED, ENDED)
    record("active", STARTED)
    listing = RunListing(Folds())
    listing.poll(Driven())
    for _ in range(3):
        listing.poll(Driven())
    assert sorted(reads) == ["active", "ended"]
    go_on("active", *trial(0, 0.3))
    assert {line.run_id: line.best for line in listing.poll(Driven())}["active"] == 0.3
    assert reads.count("active") == 2
    assert reads.count("ended") == 1


def test_runs_come_and_go_with_their_directories(home: Any) -> None:
    record("first", STARTED, ENDED)
    listing = RunListing(Folds())
    assert [line.run_id for line in listing.poll(Driven())] == ["first"]
    record("second", STARTED, created_at_s=2000.0)
    assert [line.run_id for line in listing.poll(Driven())] == ["second", "first"]
    for path in run_dir("first").iterdir():
        path.unlink()
    run_dir("first").rmdir()
    assert [line.run_id for line in listing.poll(Driven())] == ["second"]


def test_a_resumed_run_is_seen_although_it_had_ended(home: Any) -> None:
    record("again", STARTED, RunFinished(1009.0, "cancelled"))
    listing = RunListing(Folds())
    assert listing.poll(Driven())[0].state == "cancelled"
    go_on("again", RunStarted(1010.0, 2, 2, 2, 43))
    assert listing.poll(driven("again"))[0].state == "running"


def test_a_run_that_is_being_created_is_left_out_and_a_damaged_one_marked(home: Any) -> None:
    run_dir("empty").mkdir(parents=True)
    run_dir("noise").mkdir()
    ledger_path("noise").write_bytes(b"no ledger at all" * 10)
    record("good", STARTED)
    (runs_dir() / "notes.txt").write_text("not a run")
    listing = RunListing(Folds())
    lines = listing.poll(Driven())
    assert {line.run_id: line.is_damaged for line in lines} == {"noise": True, "good": False}
    assert listing.trouble == ""


def test_what_can_t_be_read_now_is_told_and_stays_until_it_can(
    home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run_id in ("ended", "grows"):
        record(run_id, STARTED, *([ENDED] if run_id == "ended" else []))
    listing = RunListing(Folds())
    before = listing.poll(Driven())
    go_on("grows", *trial(0, 0.3))
    record("new", STARTED, ENDED, created_at_s=2000.0)

    def refused(path: Any, *_rest: Any) -> int:
        raise OSError(errno.EMFILE, "Too many open files", path)

    with monkeypatch.context() as without_files:
        without_files.setattr("os.open", refused)
        assert listing.poll(Driven()) == before
        assert listing.trouble.startswith("run grows and 1 other run can't be read now: Too many")
        assert "raise `ulimit -n`" in listing.trouble
    new, *others = listing.poll(Driven())
    assert (new.run_id, new.is_damaged, listing.trouble) == ("new", False, "")
    assert {line.run_id: line.best for line in others} == {"ended": 0.9, "grows": 0.3}


def test_only_the_newest_are_listed_however_many_there_are(home: Any) -> None:
    for number in range(N_RUNS + 20):
        record(f"r{number}", STARTED, ENDED, created_at_s=1000.0 + number)
    lines = RunListing(Folds()).poll(Driven())
    assert len(lines) == N_RUNS
    assert lines[0].run_id == f"r{N_RUNS + 19}"


def test_a_run_whose_controller_was_lost_recovers_for_a_while_and_one_that_was_left_does_not(
    home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run_id in ("lost", "left", "ending", "hangs", "taken-up", "old"):
        record(run_id, STARTED)
    record("ended", STARTED, ENDED)
    now_s = [1000.0]
    monkeypatch.setattr(run_list.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(run_list.time, "time", lambda: now_s[0])
    listing = RunListing(Folds())
    hold("lost", GONE, 900.0)
    for run_id in ("ending", "hangs"):
        hold(run_id, this_process(), 900.0)

    def recovering(seen: Driven) -> set[str]:
        return {line.run_id for line in listing.poll(seen) if line.recovering}

    all_of_them = driven("lost", "left", "ending", "hangs", "taken-up", "ended")
    assert recovering(all_of_them) == set()
    now_s[0] += RECOVERS_S - 1
    assert recovering(all_of_them) == set()
    now_s[0] += RECOVERS_S - 1
    # Its new controller has the run's lock, and is not found yet.
    hold("taken-up", this_process(), now_s[0])
    assert recovering(Driven()) == {"lost", "taken-up"}
    # A controller that does not answer has left nothing.
    hangs = Driven(unreachable=frozenset({"local"}))
    assert recovering(hangs) == {"lost", "taken-up", "ending", "hangs"}
    now_s[0] += 2
    assert recovering(hangs) == set()


def test_a_run_whose_note_of_its_controller_can_t_be_read_now_was_not_left(
    home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    record("lost", STARTED)
    assert was_left("lost", 1000.0, False)
    hold("lost", GONE, 900.0)

    def refused(_path: Any) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("pathlib.Path.read_bytes", refused)
    assert not was_left("lost", 1000.0, False)


def test_a_run_that_waits_is_listed_as_such(home: Any) -> None:
    for run_id in ("runs", "waits"):
        record(run_id, STARTED)
    seen = Driven(frozenset({"runs", "waits"}), waiting=frozenset({"waits"}))
    assert {line.run_id: line.waits for line in RunListing(Folds()).poll(seen)} == {
        "runs": False,
        "waits": True,
    }


def test_a_run_is_live_before_the_look_at_clusters_that_finds_it(
    home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(run_list.time, "time", lambda: now_s[0])
    for run_id in ("begun", "died", "never-held"):
        record(run_id, STARTED)
    record("ended", STARTED, ENDED)
    for run_id in ("begun", "ended"):
        hold(run_id, this_process(), 999.0)
    hold("died", GONE, 999.0)
    listing = RunListing(Folds())

    def live(seen: Driven) -> set[str]:
        return {line.run_id for line in listing.poll(seen) if line.live}

    assert live(Driven()) == {"begun"}
    now_s[0] += RECOVERS_S + 1
    assert live(Driven()) == set(), "clusters were looked at often enough since"
    assert live(driven("begun")) == {"begun"}
    assert live(Driven()) == set()


def test_a_record_that_is_removed_between_two_looks_is_gone_and_not_unreadable(
    home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    record("r1", STARTED)
    check = run_list.check_run

    def removing(run_id: str) -> None:
        check(run_id)
        run_dir(run_id).rename(run_dir(run_id).parents[1] / "away")

    monkeypatch.setattr(run_list, "check_run", removing)
    with pytest.raises(RunNotFoundError, match="there is no run r1"):
        Folds().poll("r1", lambda _: None)
