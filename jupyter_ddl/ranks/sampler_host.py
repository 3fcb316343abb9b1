"""Runs a sampler that is user code, inside a rank process: messages in, messages out.

``SamplerHost`` serves an object with the four hooks of
:class:`~jupyter_ddl.protocol.sampling.Sampler`, or any Optuna sampler, which it drives through
:class:`~jupyter_ddl.ranks.optuna_study.OptunaStudy`.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import Any

from jupyter_ddl.errors import SpecError
from jupyter_ddl.protocol.sampling import (
    Ask,
    Asked,
    History,
    SamplerFailed,
    SamplerReply,
    SamplerRequest,
    SamplerStart,
    ShouldStop,
    StopDecision,
    Tell,
    Told,
    TrialRecord,
)
from jupyter_ddl.protocol.space import ParamValue
from jupyter_ddl.ranks.optuna_study import OptunaStudy

__all__ = ["SamplerHost"]

_MAX_TRACEBACK_CHARS = 20_000
_OWN_PACKAGE = __name__.partition(".")[0]


class SamplerHost:
    """Answers the requests that a driver sends about one sampler.

    Parameters
    ----------
    start
        Which sampler, and of what search.
    resolve_object
        The notebook variable of this name; called once, when ``start.in_notebook``.

    Notes
    -----
    ``handle`` never raises for what user code does: each ``Exception`` becomes a
    ``SamplerFailed``.  The sampler is made at the first request.
    """

    def __init__(self, start: SamplerStart, resolve_object: Callable[[str], object]) -> None:
        self._start = start
        self._resolve_object = resolve_object
        self._sampler: Any = None
        self._optuna_study: OptunaStudy | None = None
        self._trials: list[TrialRecord] = []

    def handle(self, request: SamplerRequest) -> SamplerReply:
        """Pass one request to the sampler and return what it answers."""
        hook = "start"
        try:
            if self._sampler is None:
                self._make()
            if isinstance(request, Ask):
                hook = "ask"
                return Asked(number=request.number, params=self._ask(request.number))
            if isinstance(request, Tell):
                hook = "tell"
                self._tell(request.record)
                return Told()
            if isinstance(request, ShouldStop):
                hook = "should_stop"
                return StopDecision(
                    number=request.record.number, stop=self._should_stop(request.record)
                )
            hook = "finish"
            self._finish()
            return Told()
        except Exception as error:  # noqa: BLE001 - the wall between user code and the driver
            return _failed(hook, error)

    def _make(self) -> None:
        start = self._start
        made = self._resolve_object(start.name) if start.in_notebook else _load(start.name)
        if isinstance(made, type):
            made = _instantiated(made, start)
        elif start.options:
            raise SpecError(
                f"sampler {start.name} is an object, not a class, and takes no options; "
                f"got {', '.join(start.options)}"
            )
        if _is_optuna_sampler(made):
            self._optuna_study = OptunaStudy(made, start.space, start.mode)
        elif not callable(getattr(made, "ask", None)):
            raise SpecError(
                f"sampler {start.name} is a {type(made).__name__} without an ask(history) "
                f"method; give it the hooks of jupyter_ddl.Sampler, or use an Optuna sampler"
            )
        self._sampler = made

    def _ask(self, number: int) -> dict[str, ParamValue] | None:
        if self._optuna_study is not None:
            return self._optuna_study.ask(number)
        params = self._sampler.ask(self._history())
        if params is None:
            return None
        if not isinstance(params, Mapping):
            raise SpecError(
                f"ask() of sampler {self._start.name} returned {type(params).__name__}; "
                f"return a dict of parameters, or None for nothing to propose yet"
            )
        return {str(name): _plain(value) for name, value in params.items()}

    def _tell(self, record: TrialRecord) -> None:
        if self._optuna_study is not None:
            self._optuna_study.tell(record)
            return
        self._trials.append(record)
        hook = getattr(self._sampler, "tell", None)
        if hook is not None:
            hook(record)

    def _should_stop(self, record: TrialRecord) -> bool:
        hook = getattr(self._sampler, "should_stop", None)
        if self._optuna_study is not None or hook is None:
            return False
        return bool(hook(record, self._history()))

    def _finish(self) -> None:
        hook = getattr(self._sampler, "finish", None)
        if self._optuna_study is None and hook is not None:
            hook(self._history())

    def _history(self) -> History:
        start = self._start
        return History(
            metric=start.metric,
            mode=start.mode,
            n_trials=start.n_trials,
            space=start.space,
            trials=tuple(self._trials),
        )


def _load(name: str) -> object:
    module_name, _, attribute = name.partition(":")
    found: Any = importlib.import_module(module_name)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def _instantiated(kind: type, start: SamplerStart) -> object:
    """An object of the class, with the run's seed where its constructor takes one."""
    options = dict(start.options)
    try:
        takes = inspect.signature(kind).parameters
    except ValueError:  # a class written in C may have no signature
        takes = {}  # type: ignore[assignment]
    if "seed" in takes:
        options.setdefault("seed", start.seed % 2**32)
    return kind(**options)


def _is_optuna_sampler(made: object) -> bool:
    # An object of Optuna's class exists only where Optuna has been imported already.
    samplers: Any = sys.modules.get("optuna.samplers")
    return samplers is not None and isinstance(made, samplers.BaseSampler)


def _plain(value: Any) -> Any:
    """A numpy scalar as the Python number it stands for; anything else as it is."""
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        return value.item()
    return value


def _failed(hook: str, error: Exception) -> SamplerFailed:
    frames, line = _user_frames(error.__traceback__)
    last = "".join(traceback.format_exception_only(error))
    return SamplerFailed(
        hook=hook,
        type_name=type(error).__name__,
        message=error.message if isinstance(error, SpecError) else str(error),
        traceback=(frames + last)[-_MAX_TRACEBACK_CHARS:],
        line=line,
    )


def _user_frames(trace: TracebackType | None) -> tuple[str, int | None]:
    """The frames below this package's own, and the innermost line of code not installed."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(trace) if not _is_own(frame)]
    line = next((line for frame, line in reversed(frames) if not _is_installed(frame)), None)
    return "".join(traceback.StackSummary.extract(iter(frames)).format()), line


def _is_own(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == _OWN_PACKAGE


def _is_installed(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    return "site-packages" in path or path.startswith((sys.base_prefix, "<frozen"))
