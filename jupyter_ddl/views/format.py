"""Parameters and search spaces as people read them; numbers are written by ``formats``."""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_ddl.formats import format_number
from jupyter_ddl.protocol.space import Choice, Distribution, ParamValue, RandInt, Uniform
from jupyter_ddl.views.escape import plain

__all__ = ["format_distribution", "format_param", "format_params"]

_EXACT = 2**53
"""A browser knows whole numbers below this one exactly."""


def format_param(value: ParamValue, limit: int = 24) -> str:
    """A parameter: whole numbers in full, others to four digits, text cleaned and cut."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, str):
        return plain(value, limit)
    if abs(value) < _EXACT and value == int(value):
        return str(int(value))
    return format_number(value).replace(",", "")


def format_params(params: Mapping[str, ParamValue], limit: int = 24, n_shown: int = 8) -> str:
    """Parameters in one line, ``lr=0.01, width=128``; those past ``n_shown`` as a count."""
    parts = [
        f"{plain(name, limit)}={format_param(value, limit)}"
        for name, value in list(params.items())[:n_shown]
    ]
    if len(params) > n_shown:
        parts.append(f"+{len(params) - n_shown} more")
    return ", ".join(parts)


def format_distribution(dist: Distribution) -> str:
    """A distribution as the cell declares it, ``loguniform(0.0001, 0.1)``."""
    if isinstance(dist, Choice):
        shown = ", ".join(format_param(value, 16) for value in dist.values[:8])
        return f"choice({shown}{', …' if len(dist.values) > 8 else ''})"
    if isinstance(dist, Uniform):
        bounds = f"{format_param(dist.low)}, {format_param(dist.high)}"
        name = "loguniform" if dist.log else "uniform"
        return f"{name}({bounds}{'' if dist.step is None else f', step={format_param(dist.step)}'})"
    return _format_randint(dist)


def _format_randint(dist: RandInt) -> str:
    step = "" if dist.step == 1 else f", step={dist.step}"
    return f"randint({dist.low}, {dist.high}{step}{', log=True' if dist.log else ''})"
