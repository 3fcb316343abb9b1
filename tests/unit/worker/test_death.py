"""What is said of an attempt whose rank has died."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from jupyter_ddl.protocol.events import AttemptStarted, Failure
from jupyter_ddl.protocol.rank_messages import CHANNEL_LOST_EXIT_CODE
from jupyter_ddl.ranks import main, program
from jupyter_ddl.ranks.stopping import StopReason
from jupyter_ddl.worker.rank_death import LogTail, finished_by_death, read_log_tail
from jupyter_ddl.worker.rank_process import RankEnd

STARTED = AttemptStarted(7, 2, 100.0, "w", 1234, "r.log", 10)
SEGFAULT = f"""epoch 1
Fatal Python error: Segmentation fault

Thread 0x00007f0000000001 (most recent call first):
  File "{Path(main.__file__)}", line 96 in read_control
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f0000000002 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "In [12]", line 3 in <module>
  File "{Path(program.__file__)}", line 200 in run_trial

Extension modules: numpy.core._multiarray_umath (total: 1)
"""


def told(end: RankEnd, output: str = "", out_of_memory: bool = False) -> tuple[str, str, str]:
    finished = finished_by_death(
        STARTED, end, LogTail(output, 99), stop_reason=None, out_of_memory=out_of_memory
    )
    assert (finished.trial, finished.attempt, finished.log_end) == (7, 2, 99)
    assert finished.outcome == "failed"
    assert finished.failure is not None
    return finished.failure.kind, finished.failure.type_name, finished.failure.message


def test_a_segfault_shows_the_line_of_the_cell_and_none_of_ours() -> None:
    end = RankEnd(signal_number=signal.SIGSEGV)
    finished = finished_by_death(
        STARTED, end, LogTail(SEGFAULT, 99), stop_reason=None, out_of_memory=False
    )
    failure = finished.failure
    assert failure is not None
    assert (failure.type_name, failure.line) == ("SIGSEGV", 3)
    assert failure.message.startswith("the process of the trial died of SIGSEGV")
    assert failure.traceback.startswith("Fatal Python error")
    assert "ranks/program.py" not in failure.traceback
    assert "ranks/main.py" not in failure.traceback
    assert "Extension modules" not in failure.traceback
    assert "string_at" in failure.traceback


@pytest.mark.parametrize("reason", ["pruned", "cancelled"])
@pytest.mark.parametrize(
    "end", [RankEnd("stop", signal_number=9), RankEnd(signal_number=15), RankEnd(exit_code=1)]
)
def test_an_attempt_that_was_being_stopped_ends_with_that_reason(
    reason: StopReason, end: RankEnd
) -> None:
    finished = finished_by_death(STARTED, end, LogTail(), stop_reason=reason, out_of_memory=False)
    assert (finished.outcome, finished.failure) == (reason, None)


def test_a_lost_zygote_evicts() -> None:
    end = RankEnd("zygote", signal_number=9, detail="the zygote was killed")
    finished = finished_by_death(STARTED, end, LogTail(), stop_reason=None, out_of_memory=False)
    expected = Failure("launch", "ZygoteLost", "the zygote was killed")
    assert (finished.outcome, finished.failure) == ("evicted", expected)


def test_a_sigkill_counts_as_memory_only_with_evidence() -> None:
    end = RankEnd(signal_number=signal.SIGKILL)
    assert told(end)[:2] == ("crash", "SIGKILL")
    assert told(end, out_of_memory=True)[:2] == ("memory", "SIGKILL")


def test_our_own_memory_limit_counts_as_memory_with_its_numbers() -> None:
    end = RankEnd("memory", signal_number=9, detail="used 2 GiB, over 1 GiB")
    assert told(end) == ("memory", "SIGKILL", "used 2 GiB, over 1 GiB")


def test_an_exit_code_and_a_strange_signal_are_named() -> None:
    assert told(RankEnd(exit_code=3))[:2] == ("crash", "exit code 3")
    assert told(RankEnd(signal_number=50))[1] == "signal 50"
    assert "file descriptors" in told(RankEnd(exit_code=CHANNEL_LOST_EXIT_CODE))[2]


def test_the_tail_of_a_log_is_the_attempts_own_part(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("0123456789abc")
    assert read_log_tail(log, 10) == LogTail("abc", 13)
    log.write_bytes(b"a" * 100_000 + b"end")
    tail = read_log_tail(log, 10)
    assert (len(tail.text), tail.text[-3:], tail.end) == (32 * 1024, "end", 100_003)
    assert read_log_tail(tmp_path / "missing", 0) == LogTail()
