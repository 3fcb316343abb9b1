"""Numbers, durations, sizes and ages as people read them; the same in HTML and text."""

from __future__ import annotations

import math
from collections.abc import Mapping

from jupyter_ddl.spec.space import Choice, Distribution, ParamValue, RandInt, Uniform
from jupyter_ddl.views.escape import plain

__all__ = [
    "format_age",
    "format_bytes",
    "format_count",
    "format_distribution",
    "format_duration",
    "format_number",
    "format_param",
    "format_params",
    "format_rate",
    "format_score",
]

_MINUTE_S = 60
_HOUR_S = 3600
_DAY_S = 86400


def format_number(value: float) -> str:
    """Four significant digits; whole numbers up to ten million in full.

    >>> format_number(0.94321), format_number(1.2345e-05), format_number(12345.6)
    ('0.9432', '1.234e-5', '12,346')
    """
    if isinstance(value, int) and abs(value) < 10_000_000:
        return f"{value:,}"
    if math.isfinite(value) and 9999.5 <= abs(value) < 10_000_000:
        return f"{value:,.0f}"
    try:
        text = f"{value:.4g}"
    except OverflowError:  # an int beyond the range of a float
        return f"{str(value)[:4]}…"
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else text


def format_score(value: float) -> str:
    """Like :func:`format_number`, with zeros at the end so that a column lines up.

    >>> format_score(0.71)
    '0.7100'
    """
    if isinstance(value, float) and 1e-3 <= abs(value) < 9999.5:
        return f"{value:#.4g}".rstrip(".")
    return format_number(value)


def format_count(value: int) -> str:
    """A count with separators.

    >>> format_count(10000)
    '10,000'
    """
    return f"{value:,}"


def format_param(value: ParamValue, limit: int = 24) -> str:
    """A parameter: floats to four digits, integers in full, text cleaned and cut."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return plain(str(value) if abs(value) < 10**30 else format_number(value), limit)
    if isinstance(value, float):
        return format_number(value).replace(",", "")
    return plain(value, limit)


def format_params(params: Mapping[str, ParamValue], limit: int = 24, n_shown: int = 8) -> str:
    """Parameters in one line, ``lr=0.01, width=128``; those past ``n_shown`` as a count."""
    parts = [
        f"{plain(name, limit)}={format_param(value, limit)}"
        for name, value in list(params.items())[:n_shown]
    ]
    if len(params) > n_shown:
        parts.append(f"+{len(params) - n_shown} more")
    return ", ".join(parts)


def format_duration(seconds: float | None) -> str:
    """A length of time in at most two units; ``–`` when unknown.

    >>> format_duration(0.042), format_duration(72), format_duration(7400)
    ('42 ms', '1 min 12 s', '2 h 03 min')
    """
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return "–"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return _two_units(whole // _MINUTE_S, "min", whole % _MINUTE_S, "s")
    if whole < _DAY_S:
        return _two_units(whole // _HOUR_S, "h", whole % _HOUR_S // _MINUTE_S, "min")
    return _two_units(whole // _DAY_S, "d", whole % _DAY_S // _HOUR_S, "h")


def _two_units(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large:,} {unit} {small:02d} {small_unit}" if small else f"{large:,} {unit}"


def format_age(at_s: float, now_s: float) -> str:
    """How long ago, in one unit.

    >>> format_age(0.0, 130.0)
    '2 min ago'
    """
    age_s = now_s - at_s
    if not math.isfinite(age_s):
        return "–"
    if age_s < 10:
        return "just now"
    if age_s < _MINUTE_S:
        return f"{age_s:.0f} s ago"
    if age_s < _HOUR_S:
        return f"{age_s // _MINUTE_S:.0f} min ago"
    if age_s < _DAY_S:
        return f"{age_s // _HOUR_S:.0f} h ago"
    return f"{age_s // _DAY_S:,.0f} d ago"


def format_bytes(size: int | None) -> str:
    """A size in binary units; ``–`` when unknown.

    >>> format_bytes(1536), format_bytes(8 * 2**30)
    ('1.5 KiB', '8 GiB')
    """
    if size is None:
        return "–"
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1023.95:
            return (
                f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}".replace(".0 ", " ")
            )
        value /= 1024
    return f"{value:,.0f} PiB"


def format_rate(per_s: float | None, noun: str) -> str:
    """A rate in the unit that gives a number near one; empty when unknown or zero."""
    if per_s is None or not math.isfinite(per_s) or per_s <= 0:
        return ""
    if per_s >= 1:
        return f"{per_s:,.0f} {noun}/s" if per_s >= 10 else f"{per_s:.1f} {noun}/s"
    if per_s * 60 >= 1:
        return f"{per_s * 60:.0f} {noun}/min"
    return f"{per_s * 3600:.1f} {noun}/h"


def format_distribution(dist: Distribution) -> str:
    """A distribution as the cell declares it, ``loguniform(0.0001, 0.1)``."""
    if isinstance(dist, Choice):
        shown = ", ".join(format_param(value, 16) for value in dist.values[:8])
        return f"choice({shown}{', …' if len(dist.values) > 8 else ''})"
    bounds = f"{format_param(dist.low)}, {format_param(dist.high)}"
    if isinstance(dist, Uniform):
        name = "loguniform" if dist.log else "uniform"
        return f"{name}({bounds}{'' if dist.step is None else f', step={format_param(dist.step)}'})"
    return _format_randint(dist, bounds)


def _format_randint(dist: RandInt, bounds: str) -> str:
    step = "" if dist.step == 1 else f", step={dist.step}"
    return f"randint({bounds}{step}{', log=True' if dist.log else ''})"
