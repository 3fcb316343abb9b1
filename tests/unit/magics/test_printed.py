"""What a training has printed, below the view of its cell."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.snapshots import snapshot_of
from jupyter_ddl.magics.distribute import printed_text
from jupyter_ddl.protocol.events import RunSubmitted
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.snapshot import RankRow, RunSnapshot
from jupyter_ddl.verbs.ddp import Ddp


def _ended(*ranks: RankRow) -> RunSnapshot:
    spec = RunSpec("r1", Ddp(n_ranks=2), Program("", ""), 0, "local", 0.0)
    snapshot = snapshot_of(fold_all([RunSubmitted(spec, 0.0)]), 1.0)
    return msgspec.structs.replace(snapshot, ranks=ranks)


def _rank(rank: int, pid: int) -> RankRow:
    return RankRow(rank, "h", "w", "cpu", pid, "complete", None, {})


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


def test_it_is_rank_0s_of_the_last_round(logs: Path) -> None:
    (logs / "r1-1-1-r0-9.log").write_text("first round\n")
    (logs / "r1-1-2-r0-11.log").write_text("epoch 0\nepoch 1\n")
    (logs / "r1-1-2-r1-12.log").write_text("of rank 1\n")
    text = printed_text(logs.parent, _ended(_rank(0, 11), _rank(1, 12)), "run")
    assert text == "[0] epoch 0\n    epoch 1"


def test_nothing_is_said_where_nothing_was_printed(logs: Path) -> None:
    (logs / "r1-1-2-r0-11.log").write_text("")
    assert printed_text(logs.parent, _ended(_rank(0, 11)), "run") == ""
    assert printed_text(logs.parent, _ended(_rank(0, 12)), "run") == ""
    assert printed_text(logs.parent, _ended(), "run") == ""


@pytest.mark.parametrize("width", [3, 3_000])
def test_of_a_long_output_the_end_is_shown_and_where_the_rest_is(logs: Path, width: int) -> None:
    lines = [f"{number:0{width}d}" for number in range(30)]
    (logs / "r1-1-2-r0-11.log").write_text("\n".join(lines) + "\n")
    first, *shown = printed_text(logs.parent, _ended(_rank(0, 11)), "run").split("\n")
    assert first == "… `run.logs(0)` has the earlier output:"
    assert [line[4:] for line in shown] == lines[-len(shown) :]
    assert len(shown) == (20 if width == 3 else 2)
