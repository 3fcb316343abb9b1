"""All trials of a run as columns of numbers: what charts and tables of a view are drawn from.

A trial costs some twenty bytes here, and a hundred times as much as a row of JSON.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from jupyter_ddl.formats import shortened
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.trial_columns import Codes, Floats, Ints, Plain
from jupyter_ddl.ledger.trials import STATES
from jupyter_ddl.protocol.codec import encodable
from jupyter_ddl.protocol.view_messages import ColumnHead, ColumnsPart, GetColumns

if TYPE_CHECKING:
    import numpy as np

__all__ = ["columns_part"]

_PART_BYTES = 1_900_000
_MAX_PARAMS = 256
"""Parameters that are told of all trials; of one trial all are."""
_MAX_CHOICES = 4096
"""Different texts of one column; all others are shown as one."""
_OTHERS = "…"
_MAX_TEXT = 80
_FLOAT_DIGITS = 1e-4
"""Values that lie closer together, measured by their size, are not told apart by four bytes."""
_MOST, _TINY = 3e38, 1e-37

_Group: TypeAlias = Literal["trial", "param", "last", "least", "most"]
_Key: TypeAlias = tuple[_Group, str]
_Rows: TypeAlias = "np.ndarray[Any, Any]"
"""Places among all trials."""
_METRICS: tuple[_Group, ...] = ("last", "least", "most")


def columns_part(state: RunState, ask: GetColumns) -> tuple[ColumnsPart, bytes]:
    """What is asked for, and the bytes that follow it.

    Parameters
    ----------
    state : RunState
        Not changed; must not change meanwhile.
    """
    is_whole = ask.since <= 0 or ask.since > state.seq
    rows = _rows(state, 0 if is_whole else ask.since)
    params = _params(state, rows)
    parts = _parts(state, _keys(state, rows, params[:_MAX_PARAMS], is_whole=is_whole), rows)
    part = min(max(ask.part, 0), len(parts) - 1)
    heads: list[ColumnHead] = []
    pieces: list[bytes] = []
    at = 0
    names: set[tuple[str, str]] = set()
    for group, name in parts[part]:
        kind, choices, data = _column(state, rows, group, name)
        shown = shortened(name, _MAX_TEXT)
        if (group, shown) in names:
            shown = f"{shown}{len(heads)}"
        names.add((group, shown))
        heads.append(ColumnHead(group, shown, kind, at, choices))
        pieces.append(data + b"\0" * (-len(data) % 8))
        at += len(pieces[-1])
    told = ColumnsPart(
        id=ask.id,
        run_id=ask.run_id,
        seq=state.seq,
        part=part,
        n_parts=len(parts),
        n_rows=len(rows),
        n_trials=len(state.trials),
        n_params=len(params),
        n_metrics=state.reported.n_metrics,
        columns=tuple(heads),
    )
    return encodable(told, ColumnsPart), b"".join(pieces)


def _rows(state: RunState, since: int) -> _Rows:
    """Trials that have changed since then; 0: all."""
    import numpy as np

    n = len(state.trials)
    if since == 0:
        return np.arange(n)
    return np.flatnonzero(np.array(state.trials.seq)[:n] > since)


def _params(state: RunState, rows: _Rows) -> list[str]:
    """Of trials with different parameters, those with most of them tell the order."""
    names, _ = _values(state.trials.param_names, rows)
    shared = sorted(names, key=lambda each: (-len(each), each))
    return list(dict.fromkeys(name for names in shared for name in names))


def _keys(state: RunState, rows: _Rows, params: Sequence[str], *, is_whole: bool) -> list[_Key]:
    """Columns in their order: what is drawn first stands first."""
    trials = state.trials
    is_dense = all(trials.number(row) == row for row in rows.tolist())
    own = [
        *([] if is_whole else ["row"]),
        *([] if is_dense else ["number"]),
        "state",
        "value",
    ]
    rare = ("step", "attempts", "failure", "started_at_s")
    # Of what has changed all is told: a value may be gone.
    told = (name for name in rare if not is_whole or _is_told(state, rows, name))
    later = ["duration_s", "worker", *told]
    return [
        *(("trial", name) for name in own),
        *(("param", name) for name in params),
        *(("trial", name) for name in later),
        *((which, name) for name in state.reported.names for which in _METRICS),
    ]


def _is_told(state: RunState, rows: _Rows, name: str) -> bool:
    if name == "started_at_s":
        return bool(state.running)  # told of no others
    usual = 1 if name == "attempts" else _MISSING
    return any(value != usual for value in _own_values(state, rows, name)[0])


def _parts(state: RunState, keys: list[_Key], rows: _Rows) -> list[list[_Key]]:
    """As many columns in each as fit, and what tells its rows in all of them."""
    first = [key for key in keys if key in (("trial", "row"), ("trial", "number"))]
    parts: list[list[_Key]] = [[]]
    left = _PART_BYTES
    for key in keys[len(first) :]:
        cost = len(rows) * _size(state, rows, *key)
        if cost > left and parts[-1]:
            parts.append([])
            left = _PART_BYTES
        left -= cost
        parts[-1].append(key)
    return [[*first, *part] for part in parts]


def _size(state: RunState, rows: _Rows, group: _Group, name: str) -> int:
    """Bytes of each value, as far as the first trials let expect."""
    if group == "param":
        values = _param_values(state, rows[:100], name)[0]
        value = next((each for each in values if each is not _MISSING), None)
        return 4 if isinstance(value, int | float) and not isinstance(value, bool) else 1
    if group == "trial" and name == "started_at_s":
        return 8  # seconds of today differ too little for four
    return 1 if group == "trial" and name in ("state", "worker", "failure") else 4


def _column(
    state: RunState, rows: _Rows, group: _Group, name: str
) -> tuple[Any, tuple[Any, ...] | None, bytes]:
    """Kind, choices and bytes of one column."""
    import numpy as np

    if group in _METRICS:
        column = state.reported.column(name, _METRICS.index(group), len(state.trials))
        return _floats(np.asarray(column)[rows])
    if group == "trial" and name == "state":
        codes = np.array(state.trials.state)[rows] + 1
        return "u1", STATES, codes.astype("u1").tobytes()
    read = _param_values if group == "param" else _own_values
    values, places = read(state, rows, name)
    if isinstance(values, np.ndarray):
        return _floats(values[places])
    kinds = {type(value) for value in values} - {object}
    if kinds <= {int} and all(v is _MISSING or abs(v) < -_NONE for v in values):
        told = np.array([_NONE if v is _MISSING else v for v in values], "<i4")
        return "i4", None, told[places].tobytes()
    if kinds <= {int, float}:
        return _floats(np.array([_as_float(value) for value in values], "f8")[places])
    return _coded(values, places)


_MISSING: Any = object()
"""A trial has no such value; None is one that it may have."""
_NONE = -(2**31)

_Told: TypeAlias = tuple[Any, "np.ndarray[Any, Any]"]
"""Different values, and which of them each row has.  An array of them is one of numbers, in which
NaN is what is missing."""


def _own_values(state: RunState, rows: _Rows, name: str) -> _Told:
    """What trials are told by their own fields."""
    import numpy as np

    trials = state.trials
    each_row = np.arange(len(rows))
    if name in ("row", "number"):
        told = rows.tolist() if name == "row" else [trials.number(row) for row in rows.tolist()]
        return told, each_row
    if name == "attempts":
        return [trials.n_attempts[row] for row in rows.tolist()], each_row
    if name == "failure":
        failures = [trials.failure.get(row) for row in rows.tolist()]
        return [_MISSING if each is None else each.type_name for each in failures], each_row
    values, places = _values(getattr(trials, name), rows)
    if name == "worker":
        return [each or _MISSING for each in values], places
    if name not in ("value", "started_at_s"):
        return values, places
    # Of running trials what they have reported so far; of others it is over when they began.
    known = np.full(len(trials), np.nan)
    if name == "value":
        known[rows] = values
    for number in state.running:
        trial = trials[number]
        now = trial.objective if name == "value" else trial.started_at_s
        known[trial.row] = np.nan if now is None else now
    return known, rows


def _param_values(state: RunState, rows: _Rows, name: str) -> _Told:
    import numpy as np

    names, which = _values(state.trials.param_names, rows)
    has = np.array([name in each for each in names], bool)[which]
    values, places = _values(state.trials.params[name], rows[has])
    if has.all():
        return values, places
    if isinstance(values, np.ndarray):
        values, places = np.append(values, np.nan), places
    else:
        values = [*values, _MISSING]
    spread = np.full(len(rows), len(values) - 1)
    spread[has] = places
    return values, spread


def _values(column: Codes[Any] | Floats | Ints | Plain, rows: _Rows) -> _Told:
    import numpy as np

    # Copies: a column that somebody reads could not grow.
    if isinstance(column, Floats):
        return np.array(column.data)[rows], np.arange(len(rows))
    if isinstance(column, Codes):
        codes = np.array(column.data)[rows]
        found, first, places = np.unique(codes, return_index=True, return_inverse=True)
        # In the order in which they come.
        order = np.argsort(first)
        return [column.values[code] for code in found[order].tolist()], np.argsort(order)[places]
    values = [column[row] for row in rows.tolist()]
    if isinstance(column, Ints):
        values = [_MISSING if value is None else value for value in values]
    return values, np.arange(len(rows))


def _as_float(value: Any) -> float:
    if value is _MISSING:
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _floats(values: np.ndarray[Any, Any]) -> tuple[str, None, bytes]:
    """In four bytes each where that moves nothing that is drawn of them."""
    import numpy as np

    known = values[np.isfinite(values)]
    size = np.abs(known)
    # One value alone says nothing of those that it is drawn beside: a time of today, in four bytes,
    # is a minute off.
    fits = len(size) == 0 or (
        size.max() < _MOST
        and size[size > 0].min(initial=1.0) > _TINY
        and (known.max() - known.min() >= _FLOAT_DIGITS * size.max() or size.max() == 0)
    )
    kind = "f4" if fits else "f8"
    return kind, None, values.astype(f"<{kind}").tobytes()


def _coded(
    values: Sequence[Any], places: np.ndarray[Any, Any]
) -> tuple[str, tuple[Any, ...], bytes]:
    """Codes of values that are not all numbers, and what they stand for."""
    import numpy as np

    # By type as well: True is 1, and 1.0 is 1.
    codes: dict[tuple[type, Any], int] = {}
    told = []
    for value in values:
        if value is _MISSING:
            told.append(0)
            continue
        code = codes.get((type(value), value))
        if code is None:
            if len(codes) < _MAX_CHOICES:
                code = codes[(type(value), value)] = len(codes) + 1
            else:
                code = codes.setdefault((object, _OTHERS), len(codes) + 1)
        told.append(code)
    kind = "u1" if len(codes) < 256 else "u2"
    choices = tuple(
        shortened(each, _MAX_TEXT) if isinstance(each, str) else each for _, each in codes
    )
    return kind, choices, np.array(told, f"<{kind}")[places].tobytes()
