"""Settings of Python itself and its standard library."""

from __future__ import annotations

import decimal
import functools
import importlib
import locale
import logging
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

from jupyter_ddl.settings.library import Library

__all__ = ["Decimal", "Locale", "Logging", "Recursion", "Warnings"]


_SHELLS = frozenset({"IPython", "_pytest", "absl", "google", "ipykernel"})
"""What these set, they set for themselves and not for the user."""


class Recursion(Library):
    name: ClassVar[str] = "recursion"
    module: ClassVar[str] = "sys"

    def values(self) -> dict[str, Any]:
        return {"limit": sys.getrecursionlimit()}

    def defaults(self) -> Mapping[str, Any]:
        return {"limit": 1000}

    def set(self, values: Mapping[str, Any]) -> None:
        sys.setrecursionlimit(values["limit"])


class Decimal(Library):
    """The context of the main thread."""

    name: ClassVar[str] = "decimal"
    module: ClassVar[str] = "decimal"
    _DEFAULTS: ClassVar[Mapping[str, Any]] = {
        "prec": 28,
        "rounding": decimal.ROUND_HALF_EVEN,
        "Emin": -999999,
        "Emax": 999999,
        "capitals": 1,
        "clamp": 0,
        "traps": ("DivisionByZero", "InvalidOperation", "Overflow"),
    }

    def values(self) -> dict[str, Any]:
        context = decimal.getcontext()
        traps = sorted(signal.__name__ for signal, is_on in context.traps.items() if is_on)
        found = {name: getattr(context, name) for name in self._DEFAULTS}
        return found | {"traps": tuple(traps)}

    def defaults(self) -> Mapping[str, Any]:
        return self._DEFAULTS

    def set(self, values: Mapping[str, Any]) -> None:
        context = decimal.getcontext()
        for name, value in values.items():
            if name == "traps":
                for signal in context.traps:
                    context.traps[signal] = signal.__name__ in value
            else:
                setattr(context, name, value)


class Locale(Library):
    """All but ``LC_CTYPE``, which is about the terminal of a process."""

    name: ClassVar[str] = "locale"
    module: ClassVar[str] = "locale"
    _NAMES: ClassVar[tuple[str, ...]] = (
        "LC_COLLATE",
        "LC_MESSAGES",
        "LC_MONETARY",
        "LC_NUMERIC",
        "LC_TIME",
    )

    def values(self) -> dict[str, Any]:
        return {name: locale.setlocale(getattr(locale, name)) for name in self._NAMES}

    def defaults(self) -> Mapping[str, Any]:
        return dict.fromkeys(self._NAMES, "C")

    def set(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            locale.setlocale(getattr(locale, name), value)


class _PlainHandler(NamedTuple):
    """A handler that writes to a standard stream, as ``logging.basicConfig`` makes it."""

    stream: str
    level: int
    format: str
    date_format: str | None
    style: str

    @classmethod
    def of(cls, handler: logging.Handler) -> _PlainHandler | None:
        if type(handler) is not logging.StreamHandler or handler.filters:
            return None
        formatter = handler.formatter or logging.Formatter("%(message)s")
        if type(formatter) is not logging.Formatter:
            return None
        is_out = handler.stream in (sys.stdout, sys.__stdout__)
        if not is_out and handler.stream not in (sys.stderr, sys.__stderr__):
            return None
        style = {"PercentStyle": "%", "StrFormatStyle": "{", "StringTemplateStyle": "$"}
        mark = style.get(type(formatter._style).__name__)
        if mark is None:
            return None
        stream = "stdout" if is_out else "stderr"
        return cls(stream, handler.level, formatter._style._fmt, formatter.datefmt, mark)

    def made(self) -> logging.Handler:
        handler = logging.StreamHandler(getattr(sys, self.stream))
        handler.setLevel(self.level)
        style: Any = self.style
        handler.setFormatter(logging.Formatter(self.format, self.date_format, style))
        return handler


class Logging(Library):
    """Levels of all loggers, and the root logger's handlers that write to standard streams."""

    name: ClassVar[str] = "logging"
    module: ClassVar[str] = "logging"
    _OF_LIBRARIES: ClassVar[frozenset[tuple[str, int]]] = frozenset({
        ("torch", 30), ("torch.__trace", 10), ("c10d-NullHandler-default", 10),
        ("torch.fx.passes.infra.pass_manager", 30), ("torch.fx.passes.utils.matcher_utils", 30),
        ("strobelight_compile_time_profiler", 20), ("strobelight_function_profiler", 20),
        ("IPKernelApp", 10), ("optuna", 20), ("transformers", 30), ("datasets", 30), ("bokeh", 40),
        ("tornado", 50), ("tornado.application", 40), ("distributed", 20),
        ("distributed.client", 30), ("distributed.gc", 30),
    })  # fmt: skip
    """Levels that libraries set when they are imported: in ranks they do so too."""
    _BY_NAME: ClassVar[str] = "logger "

    def values(self) -> dict[str, Any]:
        root = logging.root
        levels = {
            f"{self._BY_NAME}{name}": logger.level
            for name, logger in root.manager.loggerDict.copy().items()
            if isinstance(logger, logging.Logger) and logger.level
        }
        plain = (_PlainHandler.of(handler) for handler in root.handlers)
        return {
            "root": root.level,
            "disabled": root.manager.disable,
            "handlers": tuple(handler for handler in plain if handler is not None),
            **levels,
        }

    def defaults(self) -> Mapping[str, Any]:
        return {"root": logging.WARNING, "disabled": logging.NOTSET, "handlers": ()}

    def changed(self) -> dict[str, Any]:
        defaults = self.defaults()
        return {
            name: value
            for name, value in self.values().items()
            if defaults.get(name) != value
            and (name.removeprefix(self._BY_NAME), value) not in self._OF_LIBRARIES
        }

    def set(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if name == "root":
                logging.root.setLevel(value)
            elif name == "disabled":
                logging.disable(value)
            elif name == "handlers":
                self._set_handlers(value)
            else:
                logger = logging.getLogger(name.removeprefix(self._BY_NAME))
                logger.setLevel(logging.NOTSET if value is None else value)

    def _set_handlers(self, wanted: tuple[_PlainHandler, ...]) -> None:
        for handler in [each for each in logging.root.handlers if _PlainHandler.of(each)]:
            logging.root.removeHandler(handler)
        for plain in wanted:
            logging.root.addHandler(plain.made())

    def left_out(self) -> Iterator[str]:
        for handler in logging.root.handlers:
            package = type(handler).__module__.partition(".")[0]
            if package in _SHELLS or isinstance(handler, logging.NullHandler):
                continue
            if _PlainHandler.of(handler) is None:
                yield (
                    f"a {type(handler).__name__} of the root logger; add it inside the cell, or "
                    f"log to a standard stream, which the ranks' logs keep"
                )

    def text(self, values: Mapping[str, Any]) -> str:
        shown = []
        for name, value in values.items():
            if name == "handlers":
                shown += [f"{each.format!r} to {each.stream}" for each in value] or ["no handler"]
            else:
                level = "NOTSET" if value is None else logging.getLevelName(value)
                shown.append(f"{name.removeprefix(self._BY_NAME)} {level}")
        return ", ".join(shown)


class _Filter(NamedTuple):
    """A warning filter without what can't be pickled or compared."""

    action: str
    message: str | None
    flags: int
    category: str
    module: str | None
    line: int

    @classmethod
    def of(cls, entry: tuple[Any, ...]) -> _Filter:
        action, message, category, module, line = entry
        flags = 0 if message is None or isinstance(message, str) else message.flags
        kind = f"{category.__module__}:{category.__qualname__}"
        return cls(action, _pattern(message), flags, kind, _pattern(module), line)

    def made(self) -> tuple[Any, ...]:
        package, _, name = self.category.partition(":")
        category = attrgetter(name)(importlib.import_module(package))
        message = None if self.message is None else re.compile(self.message, self.flags)
        module = None if self.module is None else re.compile(self.module)
        return self.action, message, category, module, self.line

    @property
    def is_of_library(self) -> bool:
        """Whether a library adds it when it is imported, which it does in ranks too."""
        return (
            self.package in _SHELLS
            or (self.action, self.message, self.category) in _FILTERS_OF_LIBRARIES
        )

    @property
    def package(self) -> str:
        return self.category.partition(":")[0].partition(".")[0]

    @property
    def is_known_here(self) -> bool:
        return self.package in sys.modules or self.package in sys.stdlib_module_names

    @property
    def is_of_notebook(self) -> bool:
        return self.category.startswith("__main__:")

    def __str__(self) -> str:
        kind = self.category.rpartition(":")[2]
        return f"{self.action} {kind}" + (f" {self.message!r}" if self.message else "")


_FILTERS_OF_PYTHON = (
    _Filter("default", None, 0, "builtins:DeprecationWarning", "__main__", 0),
    _Filter("ignore", None, 0, "builtins:DeprecationWarning", None, 0),
    _Filter("ignore", None, 0, "builtins:PendingDeprecationWarning", None, 0),
    _Filter("ignore", None, 0, "builtins:ImportWarning", None, 0),
    _Filter("ignore", None, 0, "builtins:ResourceWarning", None, 0),
)
_FILTERS_OF_LIBRARIES = frozenset({
    ("ignore", "numpy.ndarray size changed", "builtins:Warning"),
    ("ignore", "numpy.ufunc size changed", "builtins:Warning"),
    ("ignore", "numpy.dtype size changed", "builtins:Warning"),
    ("always", None, "numpy.exceptions:RankWarning"),
    ("always", None, "scipy.special._sf_error:SpecialFunctionWarning"),
    ("ignore", "the matrix subclass is not the recommended way", "builtins:Warning"),
    ("ignore", "torch::jit::fuser::cuda", "builtins:Warning"),
    ("ignore", ".*Trio's signal handling code might have collided.*", "builtins:RuntimeWarning"),
    ("ignore", None, "torch.jit._trace:TracerWarning"),
})  # fmt: skip


class Warnings(Library):
    name: ClassVar[str] = "warnings"
    module: ClassVar[str] = "warnings"
    restored: ClassVar[bool] = False

    def values(self) -> dict[str, Any]:
        return {"filters": _filters(tuple(warnings.filters))}

    def defaults(self) -> Mapping[str, Any]:
        return {"filters": _FILTERS_OF_PYTHON}

    def changed(self) -> dict[str, Any]:
        filters = self.values()["filters"]
        plain = tuple(each for each in filters if not each.is_of_library)
        if {*plain} == {*_FILTERS_OF_PYTHON}:
            return {}
        return {"filters": tuple(each for each in plain if not each.is_of_notebook)}

    def set(self, values: Mapping[str, Any]) -> None:
        wanted = [each for each in values["filters"] if each.is_known_here]
        of_libraries = [
            entry
            for entry in warnings.filters
            if (known := _Filter.of(entry)).is_of_library and known not in wanted
        ]
        filters: Any = warnings.filters
        filters[:] = [*(each.made() for each in wanted), *of_libraries]
        with warnings.catch_warnings():
            pass  # tells the interpreter that the filters are others

    def waits_for(self, values: Mapping[str, Any]) -> frozenset[str]:
        return frozenset(each.package for each in values["filters"] if not each.is_known_here)

    def left_out(self) -> Iterator[str]:
        for each in self.values()["filters"]:
            if each.is_of_notebook:
                yield (
                    f"the filter of warnings {str(each)!r}, whose category the notebook defines; "
                    f"set it inside the cell"
                )

    def text(self, values: Mapping[str, Any]) -> str:
        own = [
            str(each)
            for each in values["filters"]
            if each not in _FILTERS_OF_PYTHON and not each.is_of_library
        ]
        return ", ".join(own) or "without Python's own filters"


@functools.lru_cache(maxsize=4)
def _filters(entries: tuple[tuple[Any, ...], ...]) -> tuple[_Filter, ...]:
    return tuple(_Filter.of(entry) for entry in entries)


def _pattern(regex: Any) -> str | None:
    return regex if regex is None or isinstance(regex, str) else regex.pattern
