"""All trials of a run as columns of numbers: what charts and tables of a view are drawn from.

A trial costs some twenty bytes here, and a hundred times as much as a row of JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from jupyter_ddl.formats import shortened
from jupyter_ddl.ledger.run_state import RunState, TrialState
from jupyter_ddl.protocol.codec import encodable
from jupyter_ddl.protocol.snapshot import TrialStateName
from jupyter_ddl.protocol.view_messages import ColumnHead, ColumnsPart, GetColumns

if TYPE_CHECKING:
    import numpy as np

__all__ = ["columns_part"]

_PART_BYTES = 1_900_000
_MAX_PARAMS = 64
_MAX_CHOICES = 4096
"""Different texts of one column; all others are shown as one."""
_OTHERS = "…"
_MAX_TEXT = 80
_STATES = get_args(TrialStateName)
_FLOAT_DIGITS = 1e-4
"""Values that lie closer together, measured by their size, are not told apart by four bytes."""
_MOST, _TINY = 3e38, 1e-37

_Group: TypeAlias = Literal["trial", "param", "last", "least", "most"]
_Key: TypeAlias = tuple[_Group, str]
_METRICS: tuple[_Group, ...] = ("last", "least", "most")
_OWN: dict[str, Callable[[TrialState], Any]] = {
    "row": lambda trial: trial.row,
    "number": lambda trial: trial.number,
    "state": lambda trial: trial.state,
    "value": lambda trial: trial.objective if trial.state == "running" else trial.value,
    "duration_s": lambda trial: trial.duration_s,
    "worker": lambda trial: trial.worker or None,
    "step": lambda trial: trial.step,
    "attempts": lambda trial: trial.n_attempts,
    "failure": lambda trial: None if trial.failure is None else trial.failure.type_name,
    "started_at_s": lambda trial: trial.started_at_s if trial.state == "running" else None,
}


def columns_part(state: RunState, ask: GetColumns) -> tuple[ColumnsPart, bytes]:
    """What is asked for, and the bytes that follow it.

    Parameters
    ----------
    state : RunState
        Not changed; must not change meanwhile.
    """
    is_whole = ask.since <= 0 or ask.since > state.seq
    trials = list(state.trials.values())
    rows = trials if is_whole else [trial for trial in trials if trial.seq > ask.since]
    parts = _parts(_keys(state, rows, is_whole=is_whole), rows)
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
        n_trials=len(trials),
        columns=tuple(heads),
    )
    return encodable(told, ColumnsPart), b"".join(pieces)


def _keys(state: RunState, rows: Sequence[TrialState], *, is_whole: bool) -> list[_Key]:
    """Columns in their order: what is drawn first stands first."""
    is_dense = all(trial.number == trial.row for trial in rows)
    own = [
        *([] if is_whole else ["row"]),
        *([] if is_dense else ["number"]),
        "state",
        "value",
    ]
    rare = ("step", "attempts", "failure", "started_at_s")
    # Of what has changed all is told: a value may be gone.
    told = (name for name in rare if not is_whole or _is_told(rows, name))
    later = ["duration_s", "worker", *told]
    # Of trials with different parameters, those with most of them tell the order.
    shared = sorted({trial.param_names for trial in rows}, key=lambda each: (-len(each), each))
    params = list(dict.fromkeys(name for names in shared for name in names))[:_MAX_PARAMS]
    return [
        *(("trial", name) for name in own),
        *(("param", name) for name in params),
        *(("trial", name) for name in later),
        *((which, name) for name in state.reported.names for which in _METRICS),
    ]


def _is_told(rows: Sequence[TrialState], name: str) -> bool:
    read, usual = _OWN[name], 1 if name == "attempts" else None
    return any(read(trial) != usual for trial in rows)


def _parts(keys: list[_Key], rows: Sequence[TrialState]) -> list[list[_Key]]:
    """As many columns in each as fit, and what tells its rows in all of them."""
    first = [key for key in keys if key in (("trial", "row"), ("trial", "number"))]
    parts: list[list[_Key]] = [[]]
    left = _PART_BYTES
    for key in keys[len(first) :]:
        cost = len(rows) * _size(rows, *key)
        if cost > left and parts[-1]:
            parts.append([])
            left = _PART_BYTES
        left -= cost
        parts[-1].append(key)
    return [[*first, *part] for part in parts]


def _size(rows: Sequence[TrialState], group: _Group, name: str) -> int:
    """Bytes of each value, as far as the first trial lets expect."""
    if group == "param":
        value = next((v for v in _param_values(rows[:100], name) if v is not _MISSING), None)
        return 4 if type(value) in (int, float) else 1
    return 1 if group == "trial" and name in ("state", "worker", "failure") else 4


def _column(
    state: RunState, rows: Sequence[TrialState], group: _Group, name: str
) -> tuple[Any, tuple[Any, ...] | None, bytes]:
    """Kind, choices and bytes of one column."""
    import numpy as np

    if group in _METRICS:
        column = state.reported.column(name, _METRICS.index(group), len(state.trials))
        chosen = np.asarray(column)
        if len(rows) < len(chosen):
            chosen = chosen[[trial.row for trial in rows]]
        return _floats(chosen)
    if group == "param":
        values = _param_values(rows, name)
    else:
        found = map(_OWN[name], rows)
        values = [_MISSING if value is None else value for value in found]
    if name == "state" and group == "trial":
        return _coded(values, _STATES)
    kinds = {type(value) for value in values} - {object}
    if kinds <= {int} and all(v is _MISSING or abs(v) < -_NONE for v in values):
        return (
            "i4",
            None,
            np.array([_NONE if v is _MISSING else v for v in values], "<i4").tobytes(),
        )
    if kinds <= {int, float}:
        return _floats(np.array([_as_float(value) for value in values], "f8"))
    return _coded(values)


_MISSING: Any = object()
"""A trial has no such value; None is one that it may have."""
_NONE = -(2**31)


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

    size = np.abs(values[np.isfinite(values)])
    known = values[np.isfinite(values)]
    fits = len(size) == 0 or (
        size.max() < _MOST
        and size[size > 0].min(initial=1.0) > _TINY
        and (known.max() - known.min() >= _FLOAT_DIGITS * size.max() or known.max() == known.min())
    )
    kind = "f4" if fits else "f8"
    return kind, None, values.astype(f"<{kind}").tobytes()


def _coded(values: list[Any], known: Sequence[Any] = ()) -> tuple[str, tuple[Any, ...], bytes]:
    """Codes of values that are not all numbers, and what they stand for."""
    import numpy as np

    # By type as well: True is 1, and 1.0 is 1.
    codes: dict[tuple[type, Any], int] = {(type(each), each): n + 1 for n, each in enumerate(known)}
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
    return kind, choices, np.array(told, f"<{kind}").tobytes()


def _param_values(rows: Sequence[TrialState], name: str) -> list[Any]:
    places: dict[tuple[str, ...], int] = {}
    values = []
    for trial in rows:
        names = trial.param_names
        place = places.get(names)
        if place is None:
            place = places[names] = names.index(name) if name in names else -1
        values.append(_MISSING if place < 0 else trial.param_values[place])
    return values
