"""From an exception in a trial to a :class:`Failure` that shows the user's own lines."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import msgspec

from jupyter_ddl.errors import CapacityError, JupyterDDLError
from jupyter_ddl.formats import shortened
from jupyter_ddl.protocol.events import LAST_LINES, Failure, FailureKind
from jupyter_ddl.ranks.metrics import MetricError
from jupyter_ddl.ranks.payload import import_hint
from jupyter_ddl.ranks.values import ValuesError
from jupyter_ddl.ranks.work_folder import hint_for
from jupyter_ddl.store.exhaustion import GOES_ON, NO_SPACE, room_at, used_up

__all__ = ["failure_of", "kind_of", "last_lines", "message_of", "that_waits", "with_output"]

_OUR_FILES = str(Path(__file__).parents[1]) + "/"
_HIDDEN_FILES = (_OUR_FILES, "<frozen importlib")
_NOTEBOOK_FILE = re.compile(r"ipykernel_\d+/\d+\.py$|^<ipython-input-")
"""What IPython names the cells that captured functions come from."""
_A_PAGE = 4096
"""Less room than that is none."""
_MESSAGE_CHARS = 4_000
_TRACEBACK_CHARS = 20_000
_N_OUTPUT_LINES = 12
_LINE_CHARS = 300
_TOLD_IN_OUTPUT = re.compile(
    r"^(?:[\w.]+\.)?(?:SystemExit|CalledProcessError|TimeoutExpired|CppCompileError"
    r"|Process(?:Exited|Raised)Exception)\b",
    re.MULTILINE,
)
"""What only says that something ended: why, it has printed."""
_NO_MEMORY = re.compile(
    r"(?:CUDA|HIP|XPU|MPS)\b.{0,40}out of memory"  # torch, where its allocator was not asked
    r"|(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE|CUFFT)\w*_ALLOC_FAILED|ncclUnhandled.*out of memory"
    r"|DefaultCPUAllocator: (?:can't allocate|not enough) memory|\bstd::bad_alloc\b"
    r"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"  # numba, XGBoost, RAPIDS
    r"|RESOURCE_EXHAUSTED: |\AOOM when allocating",  # JAX, TensorFlow
    re.DOTALL,
)
"""What libraries say in exceptions that are no MemoryError."""


def failure_of(error: BaseException, filename: str, *, kind: FailureKind | None = None) -> Failure:
    """Describe why an attempt failed.

    Parameters
    ----------
    error : BaseException
        As caught, with its traceback.
    filename : str
        The cell's, as ``Program.filename`` gives it.
    kind : str, optional
        Overrides what :func:`kind_of` finds.
    """
    kind = kind or kind_of(error)
    message = message_of(error, kind)
    return Failure(
        kind=kind,
        type_name=type(error).__name__,
        message=message,
        traceback=_shown_traceback(error, filename, message),
        line=_cell_line(error, filename),
    )


def with_output(failure: Failure, output: str) -> Failure:
    """Add the last lines that the attempt has printed, where the cause stands in them."""
    if not _TOLD_IN_OUTPUT.search(failure.traceback):
        return failure
    return msgspec.structs.replace(failure, traceback=failure.traceback + last_lines(output))


def last_lines(output: str) -> str:
    """The end of what a rank has printed, to stand below its error; empty without any."""
    lines = [line.rstrip()[:_LINE_CHARS] for line in output.rstrip().splitlines()]
    if not lines:
        return ""
    return "\n".join([LAST_LINES, *lines[-_N_OUTPUT_LINES:], ""])


def kind_of(error: BaseException) -> FailureKind:
    """Class of failure that an exception belongs to."""
    for each in _with_causes(error):
        if isinstance(each, CapacityError):
            return "disk"
        if isinstance(each, OSError) and each.errno in NO_SPACE:
            return "disk"
    if isinstance(error, MetricError):
        return "metric"
    if isinstance(error, ValuesError):
        return "values"
    if _is_of_memory(error):
        return "memory"
    return "import" if isinstance(error, ImportError) else "exception"


def _is_of_memory(error: BaseException) -> bool:
    # torch's and CuPy's own are a RuntimeError and a MemoryError of this name.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return _NO_MEMORY.search(_text_of(error)) is not None


def message_of(error: BaseException, kind: FailureKind) -> str:
    """The exception's message, with what its kind lacks: where a missing module was looked for."""
    if isinstance(error, SystemExit):
        return f"the cell ended by sys.exit({error.code!r})"
    text = _text_of(error)
    if kind == "import":
        text += import_hint(error)
    if type(error).__name__ == "BdbQuit":
        text = (
            "a debugger has nobody to talk to on a rank: print or report there what you want to "
            "see, or run the cell in the notebook, without its first line"
        )
    if kind == "disk" and not isinstance(error, CapacityError):
        text += _room_of(error)
    text += hint_for(error) + used_up(error)
    return shortened(text, _MESSAGE_CHARS)


def that_waits(failure: Failure) -> Failure:
    """Of an attempt: one that found no room on a disk is made again when there is some."""
    if failure.kind != "disk" or GOES_ON in failure.message:
        return failure
    return msgspec.structs.replace(failure, message=f"{failure.message}; {GOES_ON}")


def _room_of(error: BaseException) -> str:
    """Where a cell could not write, if that is known, and what is free there."""
    full = (each for each in _with_causes(error) if isinstance(each, OSError))
    paths = (each.filename for each in full if each.errno in NO_SPACE)
    place = next((str(path) for path in paths if path), "") or _full_output()
    return f" ({room_at(place)})" if place else ""


def _full_output() -> str:
    """The file that gets what is printed, where its disk is full: ``print`` does not name it."""
    with contextlib.suppress(OSError):
        stat = os.fstatvfs(1)
        path = Path("/proc/self/fd/1").readlink()
        if path.is_absolute() and stat.f_bavail * stat.f_frsize < _A_PAGE:
            return str(path)
    return ""


def _text_of(error: BaseException) -> str:
    try:
        return error.message if isinstance(error, JupyterDDLError) else str(error)
    except Exception as broken:  # noqa: BLE001 - a broken __str__ of the user must not hide the fault
        return f"(its message cannot be shown: {type(broken).__name__})"


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or each.__context__


def _cell_line(error: BaseException, filename: str) -> int | None:
    """Line of the innermost frame of the cell."""
    line = None
    step: TracebackType | None = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == filename:
            line = step.tb_lineno
        step = step.tb_next
    if line is None and isinstance(error, SyntaxError) and error.filename == filename:
        return error.lineno
    return line


class _UserFrames(traceback.StackSummary):
    """Frames in the notebook's own words: ``In [12], line 5`` instead of a file."""

    def format_frame_summary(self, frame_summary: traceback.FrameSummary) -> str:
        text = super().format_frame_summary(frame_summary)
        name = frame_summary.filename
        if _NOTEBOOK_FILE.search(name):
            place = "notebook"
        elif name.startswith("In ["):
            place = name
        else:
            return text
        _, _, rest = text.partition("\n")
        inside = "" if frame_summary.name == "<module>" else f", in {frame_summary.name}"
        return f"  {place}, line {frame_summary.lineno}{inside}\n{rest}"


def _shown_traceback(error: BaseException, filename: str, message: str) -> str:
    try:
        shown = traceback.TracebackException.from_exception(error, compact=True)
        _keep_user_frames(shown, filename)
        text = "".join(shown.format())
    except Exception as broken:  # noqa: BLE001 - a foreign exception may break its own rendering
        text = f"{type(error).__name__}: {message} (no traceback: {type(broken).__name__})"
    if len(text) <= _TRACEBACK_CHARS:
        return text
    half = _TRACEBACK_CHARS // 2
    return f"{text[:half]}\n  … {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"


def _keep_user_frames(shown: traceback.TracebackException, filename: str) -> None:
    for each in _linked(shown):
        frames = list(each.stack)
        first = next((i for i, frame in enumerate(frames) if frame.filename == filename), 0)
        each.stack = _UserFrames(
            frame for frame in frames[first:] if not frame.filename.startswith(_HIDDEN_FILES)
        )


def _linked(shown: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    waiting = [shown]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += [link for link in (each.__cause__, each.__context__) if link is not None]
        waiting += each.exceptions or []
