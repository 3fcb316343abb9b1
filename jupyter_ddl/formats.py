"""Numbers, sizes, times and shares as people read them, in messages and in all views.

``views/live/format.js`` writes the same texts: both round halves away from zero and do the same
arithmetic with the same doubles.  A table of examples and random numbers hold them together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TypeGuard

__all__ = [
    "format_age",
    "format_bytes",
    "format_count",
    "format_counted",
    "format_duration",
    "format_held",
    "format_money",
    "format_number",
    "format_percent",
    "format_rate",
    "format_score",
    "format_ticks",
    "shortened",
]

_UNKNOWN = "–"
_MINUTE_S = 60
_HOUR_S = 3600
_DAY_S = 86400


def _digits(n: int) -> Context:
    return Context(prec=n, rounding=ROUND_HALF_UP)


_FOUR, _THREE = _digits(4), _digits(3)


def format_number(value: float | None) -> str:
    """Four significant digits; whole numbers up to ten million in full; ``–`` when unknown.

    >>> format_number(0.94321), format_number(1.23456e-05), format_number(12345.6)
    ('0.9432', '1.235e-5', '12,346')
    """
    if value is None:
        return _UNKNOWN
    number = Decimal(value)
    if number.is_nan():
        return "nan"
    sign, size = "-" if number < 0 else "", number.copy_abs()
    if size.is_infinite():
        return f"{sign}inf"
    if size < 10_000_000 and (size == int(size) or size >= Decimal("9999.5")):
        return f"{sign}{int(size + Decimal('0.5')):,}"
    four = _FOUR.plus(size)
    if -4 <= four.adjusted() < 4:
        return f"{sign}{_FOUR.normalize(four):,f}"
    return sign + _scientific(size, 3)


def format_score(value: float | None) -> str:
    """Like :func:`format_number`, with zeros at the end so that a column lines up.

    >>> format_score(0.71)
    '0.7100'
    """
    if value is None or not 1e-3 <= abs(value) < 9999.5:
        return format_number(value)
    four = _FOUR.create_decimal(value)
    return f"{four:,.{3 - four.adjusted()}f}"


def format_ticks(values: Sequence[float], step: float) -> tuple[str, ...]:
    """Numbers beside an axis, each with as many digits as tell neighbours apart.

    >>> format_ticks((0.85, 0.9, 0.95), 0.05), format_ticks((0, 2.5e7), 2.5e7)
    (('0.85', '0.90', '0.95'), ('0', '2.5e7'))
    """
    # The place of the last digit that counts: of 2.5, the one behind the point.
    power = _last_place(_digits(2).create_decimal(step))
    largest = max(abs(value) for value in values)
    is_short = largest < 10_000_000 and step >= 1e-4
    n_digits = max(0, -power) if is_short else min(17, max(0, Decimal(largest).adjusted() - power))
    texts = []
    for value in values:
        size = Decimal(value).copy_abs()
        text = f"{_fixed(size, n_digits):,f}" if is_short else _scientific(size, n_digits)
        texts.append(f"-{text}" if value < 0 and text.strip("0.") else text)
    return tuple(texts)


def format_count(n: int | None) -> str:
    """A whole number with separators; ``–`` when unknown.

    >>> format_count(10000)
    '10,000'
    """
    return _UNKNOWN if n is None else f"{n:,}"


def format_counted(n: int, one: str, many: str | None = None) -> str:
    """A count and what is counted.

    >>> format_counted(1, "run"), format_counted(2000, "run")
    ('1 run', '2,000 runs')
    """
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"


def format_duration(seconds: float | None) -> str:
    """A length of time in at most two units; ``–`` when unknown.

    >>> format_duration(0.042), format_duration(72), format_duration(7400)
    ('42 ms', '1 min 12 s', '2 h 03 min')
    """
    if not _is_known(seconds):
        return _UNKNOWN
    if seconds < 0.9995:
        return f"{_rounded(seconds * 1000)} ms"
    if seconds < 9.95:
        return f"{_one_digit(seconds)} s"
    whole = _rounded(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return _two_units(whole // _MINUTE_S, "min", whole % _MINUTE_S, "s")
    if whole < _DAY_S:
        return _two_units(whole // _HOUR_S, "h", whole % _HOUR_S // _MINUTE_S, "min")
    return _two_units(math.floor(whole / _DAY_S), "d", whole % _DAY_S // _HOUR_S, "h")


def _two_units(large: int, unit: str, small: int, small_unit: str) -> str:
    # Beside thousands of days, hours say nothing.
    is_whole = small == 0 or large >= 1000
    number = format_number(large)
    return f"{number} {unit}" if is_whole else f"{number} {unit} {small:02d} {small_unit}"


def format_age(seconds: float | None) -> str:
    """How long ago, in one unit; ``–`` when unknown.

    >>> format_age(130.0)
    '2 min ago'
    """
    if seconds is None or not math.isfinite(seconds):
        return _UNKNOWN
    if seconds < 10:
        return "just now"
    if seconds < _MINUTE_S:
        return f"{math.floor(seconds)} s ago"
    if seconds < _HOUR_S:
        return f"{math.floor(seconds / _MINUTE_S)} min ago"
    if seconds < _DAY_S:
        return f"{math.floor(seconds / _HOUR_S)} h ago"
    return f"{format_number(math.floor(seconds / _DAY_S))} d ago"


def format_bytes(size: float | None) -> str:
    """A size in binary units; ``–`` when unknown.

    >>> format_bytes(1536), format_bytes(8 * 2**30)
    ('1.5 KiB', '8 GiB')
    """
    if not _is_known(size):
        return _UNKNOWN
    if size < 1023.5:
        return f"{_rounded(size)} B"
    value = size / 1024
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1023.95:
            return f"{_one_digit(value).removesuffix('.0')} {unit}"
        value /= 1024
    return f"{format_number(_rounded(value))} PiB"


def format_percent(share: float | None) -> str:
    """A share as a percentage; ``–`` when unknown.

    >>> format_percent(0.374)
    '37 %'
    """
    if not _is_known(share) or not _is_known(share * 100):
        return _UNKNOWN
    return f"{format_number(_rounded(share * 100))} %"


def format_rate(per_s: float | None, noun: str) -> str:
    """A rate in the unit that gives a number near one; empty when unknown or zero."""
    if not _is_known(per_s) or per_s == 0:
        return ""
    if per_s >= 9.95:
        return f"{format_number(_rounded(per_s))} {noun}/s"
    if per_s >= 1:
        return f"{_one_digit(per_s)} {noun}/s"
    if per_s * 60 >= 1:
        return f"{_rounded(per_s * 60)} {noun}/min"
    return f"{format_number(per_s * 3600)} {noun}/h"


def format_held(hours: float, unit: str) -> str:
    """What a run has held of the machines.

    >>> format_held(3.2, "GPU"), format_held(0.024, "GPU")
    ('3.2 GPU-hours', '86.4 GPU-seconds')
    """
    value, span = (hours, "hours") if hours >= 0.1 else (hours * _HOUR_S, "seconds")
    return f"{format_number(float(_THREE.create_decimal(value)))} {unit}-{span}"


_SYMBOLS = {"EUR": "€", "USD": "$", "GBP": "£", "JPY": "¥"}
_LEAST_SHOWN = 1e-4


def format_money(amount: float | None, currency: str, rough: bool = False) -> str:
    """An amount of money, ``rough`` where it is a guess.

    >>> format_money(1.837, "EUR"), format_money(0.0042, "CHF"), format_money(7.34, "USD", True)
    ('€ 1.84', 'CHF 0.0042', '$ 7.3')
    """
    sign = _SYMBOLS.get(currency, currency)
    if not _is_known(amount):
        return f"{sign} {_UNKNOWN}"
    if 0 < amount < _LEAST_SHOWN:
        return f"{sign} <0.0001"
    if rough or 0 < amount < 0.095:
        return f"{sign} {format_number(float(_digits(2).create_decimal(amount)))}"
    if amount < 9999.5:
        return f"{sign} {_fixed(Decimal(amount), 2):,f}"
    return f"{sign} {format_number(float(_rounded(amount)))}"


def _is_known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value) and value >= 0


def _rounded(size: float) -> int:
    return math.floor(size + 0.5)


def _one_digit(size: float) -> str:
    return str(_fixed(Decimal(size), 1))


def _fixed(size: Decimal, n_digits: int) -> Decimal:
    return size.quantize(Decimal((0, (1,), -n_digits)), ROUND_HALF_UP)


def _scientific(size: Decimal, n_digits: int) -> str:
    if size == 0:
        return "0"
    shown = _digits(n_digits + 1)
    rounded = shown.plus(size)
    power = rounded.adjusted()
    return f"{shown.normalize(shown.scaleb(rounded, -power)):f}e{power}"


def _last_place(number: Decimal) -> int:
    return int(number.normalize().as_tuple().exponent)


def shortened(text: str, limit: int) -> str:
    """A text of at most ``limit`` characters: of a longer one its beginning and ``…``."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
