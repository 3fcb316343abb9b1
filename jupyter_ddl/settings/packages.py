"""Settings of the packages that notebooks compute, draw and print with."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

from jupyter_ddl.settings.library import Library

__all__ = ["Matplotlib", "Numpy", "Pandas", "Sklearn", "Torch"]


class _Package(Library):
    def __init_subclass__(cls) -> None:
        cls.module = cls.name

    @property
    def package(self) -> Any:
        return sys.modules[self.module]


class Numpy(_Package):
    """Error state and print options, of the main thread."""

    name: ClassVar[str] = "numpy"
    _ERRORS: ClassVar[tuple[str, ...]] = ("divide", "over", "under", "invalid")
    _DEFAULTS: ClassVar[Mapping[str, Any]] = {
        "divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn",
        "edgeitems": 3, "threshold": 1000, "floatmode": "maxprec", "precision": 8,
        "suppress": False, "linewidth": 75, "nanstr": "nan", "infstr": "inf", "sign": "-",
        "formatter": None, "legacy": False, "override_repr": None,
    }  # fmt: skip

    def values(self) -> dict[str, Any]:
        return {**self.package.geterr(), **self.package.get_printoptions()}

    def defaults(self) -> Mapping[str, Any]:
        return self._DEFAULTS

    def set(self, values: Mapping[str, Any]) -> None:
        errors = {name: values[name] for name in self._ERRORS if name in values}
        options = {name: value for name, value in values.items() if name not in errors}
        if errors:
            self.package.seterr(**errors)
        if options:
            self.package.set_printoptions(**options)

    def left_out(self) -> Iterator[str]:
        if self.package.geterrcall() is not None:
            yield "numpy's seterrcall; call it inside the cell"


class Pandas(_Package):
    name: ClassVar[str] = "pandas"

    def values(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        _flatten(self.package._config.config._global_config, "", found)
        return found

    def defaults(self) -> Mapping[str, Any]:
        options = self.package._config.config._registered_options
        return {name: option.defval for name, option in options.items()}

    def set(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self.package.set_option(name, value)


def _flatten(options: Mapping[str, Any], prefix: str, found: dict[str, Any]) -> None:
    for name, value in options.items():
        if isinstance(value, dict):
            _flatten(value, f"{prefix}{name}.", found)
        else:
            found[prefix + name] = value


class Matplotlib(_Package):
    """All ``rcParams`` but those that are about the window or page a figure is shown in."""

    name: ClassVar[str] = "matplotlib"
    _OF_FRONT_ENDS: ClassVar[tuple[str, ...]] = (
        "backend",
        "backend_fallback",
        "figure.raise_window",
        "interactive",
        "savefig.directory",
        "tk.window_focus",
        "toolbar",
    )

    def values(self) -> dict[str, Any]:
        return self._plain(self.package.rcParams)

    def defaults(self) -> Mapping[str, Any]:
        return self._plain(self.package.rcParamsDefault)

    def set(self, values: Mapping[str, Any]) -> None:
        self.package.rcParams.update(values)

    def _plain(self, parameters: Any) -> dict[str, Any]:
        # As dicts: reading one parameter takes several microseconds, and may choose a backend.
        found = dict(dict.items(parameters))
        for name in self._OF_FRONT_ENDS:
            found.pop(name, None)
        return found


class Sklearn(_Package):
    """The configuration of the main thread."""

    name: ClassVar[str] = "sklearn"

    def values(self) -> dict[str, Any]:
        config: dict[str, Any] = self.package.get_config()
        return config

    def defaults(self) -> Mapping[str, Any]:
        config: Mapping[str, Any] = self.package._config._global_config
        return config

    def set(self, values: Mapping[str, Any]) -> None:
        self.package.set_config(**values)


class Torch(_Package):
    """What decides about results, and how they are printed.  Threads are the slot's."""

    name: ClassVar[str] = "torch"
    _CUDNN: ClassVar[tuple[str, ...]] = (
        "enabled",
        "benchmark",
        "benchmark_limit",
        "deterministic",
        "allow_tf32",
    )
    _PRINTED: ClassVar[tuple[str, ...]] = (
        "precision",
        "threshold",
        "edgeitems",
        "linewidth",
        "sci_mode",
    )
    _DEFAULTS: ClassVar[Mapping[str, Any]] = {
        "default_dtype": "float32", "grad": True, "deterministic": (False, False),
        "fill_uninitialized": True, "anomaly": (False, True), "matmul_precision": "highest",
        "cudnn.enabled": True, "cudnn.benchmark": False, "cudnn.benchmark_limit": 10,
        "cudnn.deterministic": False, "cudnn.allow_tf32": True,
        "print.precision": 4, "print.threshold": 1000, "print.edgeitems": 3,
        "print.linewidth": 80, "print.sci_mode": None,
    }  # fmt: skip

    def values(self) -> dict[str, Any]:
        torch = self.package
        found = {
            "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
            "grad": torch.is_grad_enabled(),
            "deterministic": (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            "fill_uninitialized": torch.utils.deterministic.fill_uninitialized_memory,
            "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        }
        self._add(found, "matmul_precision", torch.get_float32_matmul_precision)
        for name in self._CUDNN:
            self._add(found, f"cudnn.{name}", partial(getattr, torch.backends.cudnn, name))
        shown = torch._tensor_str.PRINT_OPTS
        return found | {f"print.{name}": getattr(shown, name) for name in self._PRINTED}

    def _add(self, found: dict[str, Any], name: str, read: Callable[[], Any]) -> None:
        try:
            value = read()
        except RuntimeError:  # torch's two ways of setting TF32 were mixed: neither has an answer
            return
        if value is not None:
            found[name] = value

    def defaults(self) -> Mapping[str, Any]:
        return self._DEFAULTS

    def set(self, values: Mapping[str, Any]) -> None:
        torch = self.package
        ways: dict[str, Callable[[Any], Any]] = {
            "default_dtype": lambda value: torch.set_default_dtype(getattr(torch, value)),
            "grad": torch.set_grad_enabled,
            "deterministic": lambda value: torch.use_deterministic_algorithms(
                value[0], warn_only=value[1]
            ),
            "fill_uninitialized": lambda value: setattr(
                torch.utils.deterministic, "fill_uninitialized_memory", value
            ),
            "anomaly": lambda value: torch.autograd.set_detect_anomaly(*value),
            "matmul_precision": torch.set_float32_matmul_precision,
        }
        for name, value in values.items():
            group, _, option = name.partition(".")
            if group == "print":
                torch.set_printoptions(**{option: value})
            elif group == "cudnn":
                setattr(torch.backends.cudnn, option, value)
            else:
                ways[name](value)

    def left_out(self) -> Iterator[str]:
        device = self.package.get_default_device()
        if device.type != "cpu":
            yield f"torch's default device {device}; call set_default_device(device()) in the cell"
