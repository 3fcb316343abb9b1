"""What a failed attempt shows: the user's own lines and nothing of ours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jupyter_ddl.protocol.events import Failure
from jupyter_ddl.ranks import payload
from jupyter_ddl.ranks.tracebacks import failure_of, kind_of, that_waits, with_output


def test_a_traceback_shows_the_cells_lines_in_the_notebooks_words(host: Any) -> None:
    source = "\ndef inverse(x):\n    return 1 / x\n\ninverse(0)\n"
    failure = host.load(source).run().failure
    assert (failure.kind, failure.type_name, failure.line) == ("exception", "ZeroDivisionError", 3)
    assert failure.message == "division by zero"
    lines = [line for line in failure.traceback.splitlines() if "~" not in line]
    assert lines == [
        "Traceback (most recent call last):",
        "  In [12], line 5",
        "    inverse(0)",
        "  In [12], line 3, in inverse",
        "    return 1 / x",
        "ZeroDivisionError: division by zero",
    ]


def test_library_frames_below_the_cell_stay_and_ours_go(host: Any) -> None:
    failure = host.load("import json\njson.loads('{')\n").run().failure
    assert failure.line == 2
    assert "json/decoder.py" in failure.traceback
    assert "jupyter_ddl" not in failure.traceback
    reported = host.load("report(a='x')\n").run().failure
    assert "/jupyter_ddl/" not in reported.traceback
    assert "In [12], line 1" in reported.traceback


def test_causes_are_shown_with_the_users_frames_only(host: Any) -> None:
    source = (
        "try:\n    report(a=[])\nexcept ValueError as error:\n    raise KeyError('b') from error\n"
    )
    failure = host.load(source).run().failure
    assert failure.line == 4
    assert "direct cause" in failure.traceback
    assert "attempt.py" not in failure.traceback
    assert failure.traceback.count("In [12]") == 2


def test_an_exception_group_keeps_its_members(host: Any) -> None:
    source = (
        "def f():\n    raise ValueError('inner')\n"
        "try:\n    f()\nexcept ValueError as e:\n    raise ExceptionGroup('both', [e])\n"
    )
    failure = host.load(source).run().failure
    assert "inner" in failure.traceback
    assert "In [12], line 2, in f" in failure.traceback


def test_a_syntax_error_fails_every_trial_with_its_line(host: Any) -> None:
    rank = host.load("x = 1\ny = (\n")
    failure = rank.run().failure
    assert (failure.type_name, failure.line) == ("SyntaxError", 2)
    assert rank.run(1).failure == failure


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("raise MemoryError", "memory"),
        ("import torch; raise torch.OutOfMemoryError('CUDA')", "memory"),
        ("import torch; torch.empty(1 << 55)", "memory"),
        ("import numpy; numpy.empty(1 << 55)", "memory"),
        ("raise OSError(12, 'Cannot allocate memory')", "memory"),
        ("raise ValueError('ran out of memory slots')", "exception"),
        ("raise OSError(28, 'No space left on device')", "disk"),
        ("raise OSError(2, 'no such file')", "exception"),
        ("from math import no_such_name", "import"),
        ("raise ValueError('plain')", "exception"),
    ],
)
def test_failures_have_their_kinds(host: Any, statement: str, kind: str) -> None:
    assert host.load(f"{statement}\n").run().failure.kind == kind


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
        "MPS backend out of memory (MPS allocated: 7.43 GB)",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "NCCL error: ncclUnhandledCudaError: Call to CUDA function failed.\n'out of memory'",
        "[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes.",
        "OOM when allocating tensor with shape[1024,1024] and type float",
        "[10:00:00] device_helpers.cuh:431: Memory allocation error: cudaErrorMemoryAllocation",
    ],
)
def test_a_library_that_finds_no_memory_on_a_gpu_fails_for_memory(text: str) -> None:
    assert kind_of(RuntimeError(text)) == "memory"


@pytest.mark.parametrize(
    "text",
    ["CUDA error: device-side assert triggered", "CUDNN_STATUS_NOT_SUPPORTED", "out of memory"],
)
def test_other_words_of_the_same_libraries_are_plain_exceptions(text: str) -> None:
    assert kind_of(RuntimeError(text)) == "exception"


def test_a_debugger_on_a_rank_is_told_the_way_out(host: Any) -> None:
    source = "def f():\n    import bdb\n    raise bdb.BdbQuit\nf()\n"
    failure = host.load(source).run().failure
    assert failure.message.startswith("a debugger has nobody to talk to on a rank: print or report")


def test_a_missing_module_is_told_with_what_was_looked_at_and_the_way_out(
    host: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(payload, "_travelled", {"plots", "json"})
    message = (
        host.load("import importlib\nimportlib.import_module('tools.a')\n").run().failure.message
    )
    assert "tools is not one of the modules that travel with the cell (json, plots)" in message
    assert f"no package in {sys.prefix}; a file of yours travels if the cell says" in message
    assert "`import tools`, and `%cluster env sync tools` installs" in message
    message = (
        host.load("import importlib\nimportlib.import_module('json.b')\n").run().failure.message
    )
    assert "of json, those files travel that the cell, or one of them, imports by name" in message
    assert message.endswith("add `import json.b` to the cell")
    message = host.load("from math import no_such_name\n").run().failure.message
    assert message.endswith("(`%cluster env check` shows packages that differ from the notebook's)")


def test_a_full_disk_behind_another_exception_is_found(host: Any) -> None:
    source = (
        "try:\n    raise OSError(28, 'full')\n"
        "except OSError as error:\n    raise RuntimeError('writing failed') from error\n"
    )
    assert host.load(source).run().failure.kind == "disk"


def test_a_file_that_finds_no_room_is_told_with_what_is_free(host: Any, tmp_path: Path) -> None:
    source = f"raise OSError(28, 'No space left on device', {str(tmp_path / 'big')!r})\n"
    message = host.load(source).run().failure.message
    assert f"bytes free at {tmp_path}); the run goes on when there is room" in message


def test_an_exception_whose_text_fails_is_still_shown(host: Any) -> None:
    source = (
        "class Broken(Exception):\n    def __str__(self): raise RuntimeError('no')\nraise Broken\n"
    )
    failure = host.load(source).run().failure
    assert (failure.type_name, failure.line) == ("Broken", 3)
    assert failure.message == "(its message cannot be shown: RuntimeError)"


def test_a_huge_message_and_a_deep_recursion_are_shortened(host: Any) -> None:
    huge = host.load("raise ValueError('x' * 10**6)\n").run().failure
    assert len(huge.message) <= 4_000
    assert len(huge.traceback) < 25_000
    deep = host.load("def f(n):\n    return f(n + 1) + 1\nf(0)\n").run().failure
    assert deep.type_name == "RecursionError"
    assert deep.line == 2
    assert len(deep.traceback) < 5_000


def test_a_failing_capture_shows_its_own_reason(host: Any) -> None:
    class Fails:
        def __reduce__(self) -> Any:
            return int, ("no number",)

    failure = host.load("pass\n", captures={"x": Fails(), "y": np.ones(3)}).run().failure
    assert failure.type_name == "ValueError"
    assert "no number" in failure.message
    assert failure.line is None
    assert "jupyter_ddl" not in failure.traceback


def test_functions_of_other_cells_are_shown_as_the_notebooks(host: Any) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    code = compile("def f():\n    raise KeyError('k')\n", "/tmp/ipykernel_17/4242.py", "exec")
    exec(code, namespace)
    failure = host.load("f()\n", captures={"f": namespace["f"]}).run().failure
    assert "  notebook, line 2, in f\n" in failure.traceback


@pytest.mark.parametrize(
    ("traceback", "is_told"),
    [
        ("SystemExit: 2\n", True),
        ("subprocess.CalledProcessError: Command 'cc'\n\nValueError: no model\n", True),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 0\n", True),
        ("ValueError: SystemExit\n", False),
    ],
)
def test_the_last_lines_stand_below_an_error_that_only_says_that_something_ended(
    traceback: str, is_told: bool
) -> None:
    output = "".join(f"line {number}\n" for number in range(100)) + "x" * 5000 + "\n"
    shown = with_output(Failure("exception", "E", "m", traceback), output).traceback
    assert shown.startswith(traceback)
    assert ("line 99" in shown, "line 80" in shown) == (is_told, False)
    assert len(shown) < 1000


def test_only_an_attempt_is_said_to_go_on_when_there_is_room() -> None:
    """A cell of a persistent group is not repeated; and only what was full is named as full."""
    error = OSError(28, "No space left on device")
    error.__context__ = FileNotFoundError(2, "no such file", "/elsewhere")
    failure = failure_of(error, "")
    assert failure.message == "[Errno 28] No space left on device"
    assert that_waits(failure).message.endswith("; the run goes on when there is room")
    assert that_waits(that_waits(failure)) == that_waits(failure)
