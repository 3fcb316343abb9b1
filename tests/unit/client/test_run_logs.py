"""Which bytes of which file are the output of a trial or of a rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.client.logs import find_pieces, ranks_text, trials_text
from jupyter_ddl.errors import TrialError
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    FoldFinished,
    RankEnded,
    RankStarted,
)


def begun(trial: int, attempt: int, log: str, start: int) -> AttemptStarted:
    return AttemptStarted(trial, attempt, 0.0, "w0", 1, log, start)


def over(trial: int, attempt: int, end: int | None) -> AttemptFinished:
    return AttemptFinished(trial, attempt, "complete", 1.0, 1.0, log_end=end)


def rank_begun(rank: int, attempt: int, log: str, start: int) -> RankStarted:
    return RankStarted(0, attempt, rank, 0.0, f"w{rank}", "h", 1, log, start)


def fold_over(fold: int, log: str, start: int, end: int | None) -> FoldFinished:
    return FoldFinished(0, fold, b"", 1.0, 1.0, log=log, log_start=start, log_end=end)


def rank_over(rank: int, attempt: int, end: int | None) -> RankEnded:
    return RankEnded(0, attempt, rank, "complete", 1.0, 1.0, end)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a").write_text("old a\nnew a\n")
    (tmp_path / "logs" / "b").write_text("old b\nnew b")
    return tmp_path


def test_two_trials_of_one_rank_share_a_file_in_the_order_of_starting(directory: Path) -> None:
    events = [begun(1, 1, "a", 0), over(1, 1, 6), begun(0, 1, "a", 6), over(0, 1, None)]
    pieces = find_pieces(events)
    assert list(pieces) == [1, 0]
    assert ranks_text(pieces[1], directory) == "old a\n"
    assert trials_text(pieces, directory) == "old a\nnew a\n"


def test_of_a_group_the_last_round_counts_with_a_line_in_front_of_each_rank(
    directory: Path,
) -> None:
    events = [
        begun(0, 1, "a", 0),
        rank_begun(0, 1, "a", 0),
        rank_begun(1, 1, "b", 0),
        rank_over(1, 1, 6),
        rank_over(0, 1, 6),
        over(0, 1, 6),
        begun(0, 2, "b", 6),  # which rank comes first is a matter of timing
        rank_begun(1, 2, "b", 6),
        rank_begun(0, 2, "a", 6),
    ]
    ranks = find_pieces(events)[0]
    assert ranks_text(ranks, directory, 1) == "new b"
    assert ranks_text(ranks, directory) == (
        "── rank 0 of 2, worker w0\nnew a\n── rank 1 of 2, worker w1\nnew b\n"
    )


def test_the_end_of_a_round_before_cuts_nothing_of_this_one(directory: Path) -> None:
    events = [
        begun(0, 2, "a", 0),
        rank_begun(0, 2, "a", 0),
        rank_over(0, 1, 1),
        over(0, 1, 1),
    ]
    assert ranks_text(find_pieces(events)[0], directory) == "old a\nnew a\n"


def test_a_rank_that_the_last_round_did_not_have_is_refused_with_those_it_had(
    directory: Path,
) -> None:
    ranks = find_pieces([begun(0, 1, "a", 0), rank_begun(0, 1, "a", 0)])[0]
    with pytest.raises(TrialError, match="no rank 3 in its last round; ranks: 0 to 0"):
        ranks_text(ranks, directory, 3)


def test_a_log_that_is_gone_is_empty(directory: Path) -> None:
    assert trials_text(find_pieces([begun(0, 1, "gone", 0)]), directory) == ""


def test_a_candidate_has_what_all_its_folds_printed_in_the_order_of_folds(directory: Path) -> None:
    events = [begun(0, 1, "b", 0), fold_over(1, "b", 0, 6), fold_over(0, "a", 6, None)]
    pieces = find_pieces([*events, fold_over(2, "a", 6, 6), over(0, 1, 6)])
    text = ranks_text(pieces[0], directory)
    assert text == "── fold 0 of 3\nnew a\n── fold 1 of 3\nold b\n"
    assert ranks_text(pieces[0], directory, 1) == "old b\n"


def test_a_resumed_candidate_keeps_the_folds_of_the_session_before(directory: Path) -> None:
    events = [begun(0, 1, "a", 0), fold_over(0, "a", 0, 6), begun(0, 2, "b", 6)]
    pieces = find_pieces([*events, fold_over(1, "b", 6, None), over(0, 2, None)])
    assert ranks_text(pieces[0], directory) == "── fold 0 of 2\nold a\n── fold 1 of 2\nnew b\n"
