"""Several ranks in few words."""

from __future__ import annotations

from collections.abc import Collection, Iterable

__all__ = ["ranks_label", "spans"]


def ranks_label(ranks: Collection[int]) -> str:
    """``rank 2`` or ``ranks 0-2, 5``."""
    return f"rank{'' if len(ranks) == 1 else 's'} {spans(ranks)}"


def spans(ranks: Iterable[int], separator: str = ", ") -> str:
    """``0-2, 5``."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and parts[-1][1] == rank - 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return separator.join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
