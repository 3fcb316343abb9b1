"""What a cell may call: ``report``, ``checkpoint``, ``resume``, ``rank`` … and distributions.

The same functions work in plain execution, where no attempt is in progress, so a cell runs
anywhere by changing only its first line.  This module imports nothing heavy.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import math
import operator
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol

from jupyter_ddl.ranks.outputs import is_rich

__all__ = [
    "checkpoint",
    "choice",
    "device",
    "device_mesh",
    "local_rank",
    "log",
    "loguniform",
    "prepare",
    "prepare_step",
    "randint",
    "rank",
    "report",
    "resume",
    "uniform",
    "world_size",
]


class AttemptInProgress(Protocol):
    """What these functions need from the attempt that this process executes."""

    rank: int
    world_size: int
    local_rank: int
    on_cpu: bool
    device_index: int

    def report(
        self, step: int | None, metrics: Mapping[str, Any], reduce: str | None = None
    ) -> None: ...
    def prepare(self, objects: tuple[Any, ...], device: Any) -> tuple[Any, ...]: ...
    def device_mesh(self, device: Any) -> Any: ...
    def prepare_step(
        self, model: Any, loss_fn: Any, optimizer: Any, settings: Mapping[str, Any], device: Any
    ) -> Any: ...
    def checkpoint(self, step: int | None, state: Mapping[str, Any]) -> None: ...
    def resume(self) -> dict[str, Any] | None: ...


_attempt: AttemptInProgress | None = None
_plain_step = -1


def set_attempt(attempt: AttemptInProgress | None) -> None:
    """Name the attempt that the following calls belong to; None: plain execution."""
    global _attempt
    _attempt = attempt


def report(step: int | None = None, *, reduce: str | None = None, **metrics: Any) -> None:
    """Record metrics at a step.

    In a run this is also the point at which a pruned or cancelled attempt ends.  In plain
    execution it prints one line.  In a rank group every rank may report, and the metrics of
    rank 0 are the run's.

    Parameters
    ----------
    step : int, optional
        Must grow within an attempt.  Without it, steps count from 0.
    reduce : str, optional
        ``mean``, ``sum``, ``max`` or ``min`` over the ranks of a group, which must all report the
        same names then.  With one process it changes nothing.
    **metrics
        Real numbers, numpy scalars or one-element arrays and tensors.

    Raises
    ------
    ReportError
        A value is not a number, ``step`` does not grow, or ``reduce`` is something else.
    """
    if _attempt is not None:
        _attempt.report(step, metrics, reduce)
        return
    report_plainly(step, metrics, reduce)


def checkpoint(step: int | None = None, **state: Any) -> None:
    """Save state that a later attempt at this trial can go on from.

    The file is whole or absent; the two newest are kept.  In a rank group every rank calls this
    and rank 0 writes; models and optimizers are saved as one process without a strategy would
    save them, so any number of ranks, and any strategy, can go on from the file.

    Parameters
    ----------
    step : int, optional
        Step that the state belongs to; by default the last reported one.
    **state
        Numbers, strings, lists, dicts, arrays, tensors, and objects with ``state_dict()``.
        Prepared loaders are saved without being named.

    Raises
    ------
    ReportError
        A part of the state is none of these; the message says which.
    """
    if _attempt is not None:
        _attempt.checkpoint(step, state)
        return
    checkpoint_plainly(step, state)


def checkpoint_plainly(step: int | None, state: Mapping[str, Any]) -> None:
    """Say that a checkpoint is not saved, where nothing is recorded."""
    at = "" if step is None else f" step {step}"
    _write_line(f"checkpoint{at}: {', '.join(state)} (not saved: the cell runs without a run)")


def resume() -> dict[str, Any] | None:
    """Return the newest saved state of this trial, ``step`` included, or None.

    Prepared loaders go on where they were, those included that are prepared afterwards.  In a
    rank group every rank must call this, and all get the same checkpoint.
    """
    return None if _attempt is None else _attempt.resume()


class _Question:
    """A function without arguments that is compared, and counted with, as its answer.

    ``if rank == 0:`` of pasted code would silently be false on every rank otherwise.
    """

    def __init__(self, ask: Callable[[], int]) -> None:
        functools.update_wrapper(self, ask)
        self._ask = ask

    def __call__(self) -> int:
        return self._ask()

    __index__ = __int__ = __call__
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return self() != 0

    def __str__(self) -> str:
        return str(self())

    def __reduce__(self) -> str:
        return self._ask.__name__


def _answered(operation: str) -> Callable[..., Any]:
    def method(self: _Question, *others: Any) -> Any:
        return getattr(self(), operation)(*map(_as_number, others))

    return method


def _as_number(value: Any) -> Any:
    return value() if isinstance(value, _Question) else value


for _name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "format", "float"):
    setattr(_Question, f"__{_name}__", _answered(f"__{_name}__"))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "xor"):
    for _side in ("__", "__r"):
        setattr(_Question, f"{_side}{_name}__", _answered(f"{_side}{_name}__"))


class _Number(int):
    """What a cell finds as ``rank``: the number itself for libraries, and a function."""

    def __call__(self) -> int:
        return int(self)

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


@_Question
def rank() -> int:
    """Return the number of this process in its rank group, from 0."""
    return 0 if _attempt is None else _attempt.rank


@_Question
def world_size() -> int:
    """Return the number of processes in the rank group."""
    return 1 if _attempt is None else _attempt.world_size


@_Question
def local_rank() -> int:
    """Return the number of this process on its host, from 0."""
    return 0 if _attempt is None else _attempt.local_rank


def device() -> Any:
    """Return this rank's ``torch.device`` (``"cpu"`` as text where torch is not installed)."""
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError:
        return "cpu"
    # A rank without a GPU of its own must not take that of another one.
    on_cpu = (_attempt is not None and _attempt.on_cpu) or not torch.cuda.is_available()
    index = 0 if _attempt is None else _attempt.device_index
    return torch.device("cpu" if on_cpu else f"cuda:{index}")


def device_mesh() -> Any:
    """Return the ranks as a ``torch.distributed.device_mesh.DeviceMesh`` whose axes have names.

    It is the one that the run's strategy trains on: with ``--mesh dp=2,tp=2`` its axes are ``dp``
    and ``tp``.  Otherwise it has one axis over all ranks: ``dp``, or ``pp`` under
    ``--strategy pipeline``.  For what torch parallelises by a mesh: ``fully_shard``,
    ``parallelize_module``, ``distribute_tensor``, or a collective over ``device_mesh()["tp"]``.
    All ranks must make the first call, which makes a process group for each axis.

    Returns
    -------
    torch.distributed.device_mesh.DeviceMesh

    Raises
    ------
    ReportError
        The cell runs in one process, as in plain execution, or the process group is not
        initialised.
    OptionError
        ``--mesh`` is for another number of ranks than the group has in this round.
    """
    if _attempt is not None:
        return _attempt.device_mesh(device())
    training = importlib.import_module("jupyter_ddl.ranks.training")
    return training.Training(None, 0).device_mesh(device())


def prepare(*objects: Any) -> Any:
    """Make models, optimizers and loaders ready for this rank.

    - A model moves to :func:`device`.  In a rank group it is wrapped by the run's strategy: by
      ``DistributedDataParallel``, or by torch's ``fully_shard`` with ``--strategy fsdp``.
    - An optimizer works on the parameters of the prepared models.  Under ``fsdp`` these are new
      objects, so prepare an optimizer that was made before its model in the same call or later.
    - A ``DataLoader`` yields this rank's share of the samples; ``batch_size`` stays each rank's
      own.  It reshuffles in every epoch without ``set_epoch``, and :func:`checkpoint` and
      :func:`resume` keep its place, also for another number of ranks.  In a cell that calls
      :func:`prepare_step` it is the batch of all ranks together, which is shared out.

    In plain execution the same objects come back for one process.  Everything else comes back
    as it is.

    Returns
    -------
    object or tuple
        The object, or all of them in order when several were given.

    Raises
    ------
    ReportError
        The process group is not initialised, or a loader cannot be shared out.
    """
    ready = objects
    if "torch" in sys.modules:
        if _attempt is not None:
            ready = _attempt.prepare(objects, device())
        else:
            training = importlib.import_module("jupyter_ddl.ranks.training")
            ready = training.prepare_plainly(objects, device())
    return ready[0] if len(ready) == 1 else ready


def prepare_step(
    model: Any,
    loss_fn: Callable[[Any, Any], Any],
    optimizer: Any,
    accumulate: int = 1,
    clip_norm: float | None = None,
    amp: Any = None,
) -> Any:
    """Make one training step that is the same under every strategy.

    ``loss = step(x, y)`` moves the batch to :func:`device` and does forward pass, backward pass,
    exchange and update.  Model and optimizer need no :func:`prepare`, and stay the names of what is
    trained: for :func:`checkpoint`, :func:`resume`, ``--bring`` and learning-rate schedulers.
    Loaders do: ``batch_size`` of a prepared loader is that of all ranks together in such a cell.

    Parameters
    ----------
    model : torch.nn.Module
    loss_fn : callable
        Takes the model's output and the target, and returns the mean over the batch.
    optimizer : torch.optim.Optimizer
    accumulate : int, optional
        Cut each rank's part of a batch into so many, computed one after another: less memory, the
        same result.
    clip_norm : float, optional
        Largest norm of all gradients together.
    amp : str or torch.dtype, optional
        ``"bf16"`` or ``"fp16"``: compute forward passes under torch's autocast.

    Returns
    -------
    callable
        ``step(*inputs, target)``, which returns the loss, a scalar tensor without its graph: the
        mean over the batch of all ranks.

    Raises
    ------
    ReportError
        One of them is not what it should be, or the strategy cannot train the model.
    """
    settings = {"accumulate": accumulate, "clip_norm": clip_norm, "amp": amp}
    if _attempt is not None:
        return _attempt.prepare_step(model, loss_fn, optimizer, settings, device())
    training = importlib.import_module("jupyter_ddl.ranks.training")
    return training.prepare_step_plainly(model, loss_fn, optimizer, settings, device())


def log(*values: object) -> None:
    """Print values after the time of day and, in a rank group, the rank."""
    of_rank = f"[rank {rank()}] " if world_size() > 1 else ""
    _write_line(f"{of_rank}{time.strftime('%H:%M:%S')} {' '.join(map(str, values))}")


def display(*values: object, **options: Any) -> Any:
    """Show values as a notebook would; those that are only text are printed."""
    if options or any(map(is_rich, values)):
        return importlib.import_module("IPython.display").display(*values, **options)
    for value in values:
        _write_line(str(value))
    return None


def get_ipython() -> None:
    """Return None, as IPython's function does where there is no shell."""


def replace_builtins() -> None:
    """Have Python's own names do in a rank what they do in a script that nobody watches."""
    vars(builtins).update(input=_input, exit=_exit, quit=_exit)


def _input(prompt: object = "", /) -> str:
    """Raise what ``input`` raises where nobody types, and say so."""
    raise EOFError(
        f"input({str(prompt)!r}) has nobody to ask on a rank; "
        f"ask in an earlier cell, and use the variable here"
    )


def _exit(code: object = None) -> NoReturn:
    """Leave as in a script; Python's own would close the streams that later trials need."""
    raise SystemExit(code)


def namespace_defaults() -> dict[str, Any]:
    """Names that every cell of this attempt sees unless it, or the notebook, has its own."""
    names = _defaults().copy()
    put_numbers(names)
    return names


@functools.cache
def _defaults() -> dict[str, Any]:
    names = {name: globals()[name] for name in (*__all__, "display", "get_ipython")}
    return {"jupyter_ddl": importlib.import_module("jupyter_ddl"), **names}


def put_numbers(namespace: dict[str, Any]) -> None:
    """Have ``rank`` and its kin be numbers; functions of the notebook bring them as functions."""
    for name in ("rank", "world_size", "local_rank"):
        value = namespace.get(name)
        if isinstance(value, _Question):
            namespace[name] = _Number(value())


def uniform(
    low: float, high: float, *, default: float | None = None, step: float | None = None
) -> float:
    """Return a float in ``[low, high]``: the trial's under ``search``, else the default.

    Without ``default`` the middle of the range.
    """
    _check("uniform", low, high, default=default, step=step)
    if default is not None:
        return default
    middle = low + (high - low) / 2
    return middle if step is None else low + (middle - low) // step * step


def loguniform(low: float, high: float, *, default: float | None = None) -> float:
    """Return a float in ``[low, high]`` whose logarithm is drawn evenly; ``low > 0``.

    Without ``default`` the geometric mean.
    """
    _check("loguniform", low, high, default=default)
    return _geometric_mean(low, high) if default is None else default


def randint(
    low: int, high: int, *, default: int | None = None, log: bool = False, step: int = 1
) -> int:
    """Return an integer in ``[low, high]``, both ends included.

    Without ``default`` the middle of the range (the geometric mean with ``log``).
    """
    _check("randint", low, high, default=default, log=log, step=step)
    if default is not None:
        return default
    middle = round(_geometric_mean(low, high)) if log else low + (high - low) // 2
    return low + (middle - low) // step * step


def choice(*values: Any, default: Any = None) -> Any:
    """Return one of the values: the trial's under ``search``, else the default or the first.

    A single list or tuple stands for its elements.
    """
    _check("choice", *values, default=default)
    if default is not None:
        return default
    first = values[0]
    return first[0] if len(values) == 1 and isinstance(first, list | tuple) else first


def _geometric_mean(low: float, high: float) -> float:
    return math.sqrt(low) * math.sqrt(high)


def _check(function: str, *bounds: Any, **options: Any) -> None:
    """Refuse in plain execution what a search would refuse."""
    # Only here: specs are heavier than all of this module.
    dist = importlib.import_module("jupyter_ddl.dist")
    getattr(dist, function)(*bounds, **options)


def report_plainly(step: int | None, metrics: Mapping[str, Any], reduce: str | None = None) -> None:
    """Print a report, where nothing is recorded."""
    from jupyter_ddl.ranks.metrics import ReportError, as_number, check_reduction, shown

    check_reduction(reduce)
    global _plain_step
    _plain_step = _plain_step + 1 if step is None else operator.index(step)
    parts = [f"step {_plain_step}"]
    for name, value in metrics.items():
        number = as_number(value)
        if number is None:
            raise ReportError(
                f"metric {name!r} is {shown(value)} ({type(value).__name__}); expected a number",
                metric=name,
            )
        parts.append(f"{name}={number:.6g}")
    _write_line("  ".join(parts))


def _write_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
