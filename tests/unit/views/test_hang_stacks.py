"""Stacks of a hang, as a view shows them: who is to blame first, each line of the cell quoted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jupyter_ddl.errors import TrialError
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.events import HangVerdict, RunStarted, RunSubmitted, TrialCreated
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.view_messages import GetStacks, StacksPart
from jupyter_ddl.verbs.ddp import Ddp
from jupyter_ddl.views.stacks import stacks_part

_SOURCE = "\nfor step in range(9):\n    if rank() == 1:\n        time.sleep(1e9)\n"
_STACKS = """\
Thread 0x1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x2 (most recent call first):
  File "{file}", line {line} in <module>
  File "/venv/jupyter_ddl/ranks/main.py", line 99 in execute_all
"""
_ASK = GetStacks(1, "r1")


def _state(verdict: HangVerdict | None) -> RunState:
    program = Program(_SOURCE, "In [7]", sources={"In [3]": "def wait():\n    barrier()\n"})
    spec = RunSpec("r1", Ddp(3), program, 1, "local", 1000.0)
    events = [RunSubmitted(spec, 1000.0), RunStarted(1001.0, 1, 3, 3, 7), TrialCreated(0, {}, 1.0)]
    state = fold_all(events)
    if verdict is not None:
        state.group.hang = verdict
    return state


def _verdict(**fields: object) -> HangVerdict:
    verdict = HangVerdict(0, 1, 1, 1002.0, "rank 1 hangs", 4, stacks_file="stacks/0-a1")
    return msgspec.structs.replace(verdict, **fields)


def _write(directory: Path, **texts: str) -> None:
    (directory / "stacks/0-a1").mkdir(parents=True)
    for name, text in texts.items():
        (directory / "stacks/0-a1" / f"{name.replace('_', '-')}.txt").write_text(text)


def _part(directory: Path, verdict: HangVerdict | None) -> StacksPart:
    return stacks_part(_state(verdict), directory, _ASK)


def test_who_is_to_blame_comes_first_and_lines_of_the_cell_have_their_source(
    tmp_path: Path,
) -> None:
    _write(
        tmp_path,
        rank_0=_STACKS.format(file="In [3]", line=2),
        rank_1=_STACKS.format(file="In [7]", line=4),
    )
    part = _part(tmp_path, _verdict())
    assert [(each.rank, each.is_blamed) for each in part.ranks] == [(1, True), (0, False)]
    blamed, other = part.ranks
    lines = blamed.text.splitlines()
    at = lines.index('  File "In [7]", line 4 in <module>')
    assert lines[at + 1] == "    time.sleep(1e9)"
    # The thread of the cell stands above the others.
    assert lines[0].startswith("Current thread")
    assert "    barrier()" in other.text.splitlines()


def test_nobody_is_blamed_where_the_network_is(tmp_path: Path) -> None:
    _write(tmp_path, rank_0="", rank_1="")
    part = _part(tmp_path, _verdict(is_outside=True))
    assert [(each.rank, each.is_blamed) for each in part.ranks] == [(0, False), (1, False)]


def test_many_ranks_with_long_stacks_fit_an_answer_and_are_counted(tmp_path: Path) -> None:
    long = "\n\n".join(_STACKS.format(file="In [7]", line=4) for _ in range(500))
    _write(tmp_path, **{f"rank_{rank}": long for rank in range(64)})
    part = _part(tmp_path, _verdict(rank=40))
    assert part.ranks[0].rank == 40
    assert part.n_ranks == 64
    assert len(msgspec.json.encode(part)) < 64_000
    assert "threads left out" in part.ranks[0].text


def test_control_characters_and_lines_beyond_the_cell_do_no_harm(tmp_path: Path) -> None:
    _write(tmp_path, rank_1='\x1b[2J  File "In [7]", line 400 in f\n  File "In [7]", line 0 in g\n')
    text = _part(tmp_path, _verdict()).ranks[0].text
    assert "\x1b" not in text
    assert "line 400 in f" in text


@pytest.mark.parametrize("verdict", [None, _verdict(stacks_file=""), _verdict()])
def test_without_stacks_there_is_a_sentence(tmp_path: Path, verdict: HangVerdict | None) -> None:
    with pytest.raises(TrialError, match="stacks of"):
        _part(tmp_path, verdict)
