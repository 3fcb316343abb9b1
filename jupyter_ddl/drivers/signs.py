"""Signs of life in a snapshot: no events, so the folded state does not have them.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from jupyter_ddl.protocol.snapshot import RunSnapshot

__all__ = ["with_signs"]


def with_signs(snapshot: RunSnapshot, signs: Mapping[int, tuple[str, float]]) -> RunSnapshot:
    """Add each running rank's phase, and the seconds since it last moved."""
    if not signs or not snapshot.ranks:
        return snapshot
    replace = msgspec.structs.replace
    rows = []
    for row in snapshot.ranks:
        sign = signs.get(row.rank) if row.state == "running" else None
        rows.append(row if sign is None else replace(row, phase=sign[0], beat_age_s=sign[1]))
    return replace(snapshot, ranks=tuple(rows))
