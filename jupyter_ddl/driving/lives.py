"""Which ranks of a round are there, and what it means when one is lost.  Pure.

Most strategies lose the round with a rank.  With those of which :attr:`RankPlace.goes_on` is true
the others go on: the lost rank is started again, under its own number, and joins them; where its
worker is lost, on another one as soon as there is a free slot.  A rank for which there was no slot
when the round began is as one that was lost.  For a server whose process died the workers wait
until it is back.
"""

from __future__ import annotations

from collections import Counter

from jupyter_ddl.ledger.fold_group import words_of
from jupyter_ddl.protocol.events import RankEnded
from jupyter_ddl.protocol.group import RankPlace

__all__ = ["Lives"]

_MOST_LIVES = 5
"""So many processes of a rank may be lost in a round: one that dies again and again does so by
itself."""
_OTHERS_S = 60.0
"""One that was lost with its worker after so long is not counted: machines come and go."""
_PATIENCE_S = 5.0


class Lives:
    """Of one round.

    Parameters
    ----------
    place : RankPlace or None
        Of any of its ranks.
    """

    def __init__(self, place: RankPlace | None, n_ranks: int) -> None:
        self._place = place
        self._lives = dict.fromkeys(range(n_ranks), 1)
        self._lost = set[int]() if place is None else set(place.absent)
        self._n_lost = Counter[int]()
        """Of its processes, those that may have been lost by their own doing."""
        self._is_settled = False
        self._n_told = 0

    def settle(self) -> None:
        """All have met: nobody waits any more for one that is lost."""
        self._is_settled = True

    def next_number(self) -> int:
        """Of what the ranks are told of each other."""
        self._n_told += 1
        return self._n_told

    @property
    def may_join(self) -> frozenset[int]:
        """The ranks that are not there now, and that the others would take in."""
        lost = self._lost & self.dispensable
        return frozenset(rank for rank in lost if self._n_lost[rank] < _MOST_LIVES)

    @property
    def dispensable(self) -> frozenset[int]:
        """Ranks without which the others go on."""
        if self._place is None or not self._is_settled:
            return frozenset()
        return frozenset(filter(self._place.is_dispensable, self._lives))

    def is_lost(self, rank: int) -> bool:
        """Whether a rank without which the others go on, or for which they wait, is not there."""
        return rank in self._lost

    @property
    def there(self) -> dict[int, int]:
        """The ranks that are there, and which of its processes each is."""
        return {rank: life for rank, life in self._lives.items() if rank not in self._lost}

    def goes_on_without(self, end: RankEnded) -> bool:
        """Whether the others go on when a rank has ended like this."""
        if self._place is None or not self._is_settled:
            return False
        if self._place.is_awaited(end.rank):
            # Nothing is done without it: it has to be one that can be started again.
            return _is_death(end) and self._n_lost[end.rank] + 1 < _MOST_LIVES
        if not self._place.is_dispensable(end.rank):
            return False
        if self._lives[end.rank] > 1:
            # Whatever it was: the others have gone on without it before.
            return end.outcome != "complete"
        return _is_loss(end)

    def lose(self, end: RankEnded, lived_s: float) -> str:
        """A rank is there no more, after so long; returns what to tell of it."""
        self._lost.add(end.rank)
        self._n_lost[end.rank] += _is_death(end) or lived_s < _OTHERS_S
        failure = end.failure
        if end.outcome == "cancelled":
            return f"rank {end.rank} was not back before the others were through"
        did = "lost its worker" if failure is None else words_of(failure)
        if self.is_awaited(end.rank):
            return f"rank {end.rank}, a server, {did}; the others wait until it is back"
        return f"rank {end.rank} {did}; the others go on without it"

    def is_awaited(self, rank: int) -> bool:
        """Whether the others wait for a rank that is lost."""
        return self._place is not None and rank in self._lost and self._place.is_awaited(rank)

    def begin_again(self, rank: int) -> int | None:
        """Start a rank once more, as its process of that number; None: it had its chances."""
        if self._n_lost[rank] >= _MOST_LIVES:
            return None
        self._lives[rank] += 1
        self._lost.remove(rank)
        return self._lives[rank]

    def is_over(self, complete: set[int]) -> bool:
        """Whether nobody is waited for but ranks that were lost before, given who is complete."""
        if self._place is None:
            return False
        first = [rank for rank in range(self._place.n_workers) if self._lives[rank] == 1]
        return all(rank in complete or rank in self._lost for rank in first)

    @property
    def patience_s(self) -> float:
        """How long ranks that came back may be behind the others' end: where all meet, as long as
        one takes that comes from the last meeting."""
        is_served = self._place is not None and self._place.n_workers < self._place.world_size
        return 0.0 if is_served else _PATIENCE_S

    def returned(self) -> tuple[int, ...]:
        """Ranks that are there again, and train; servers end with those whom they serve."""
        n_workers = 0 if self._place is None else self._place.n_workers
        return tuple(rank for rank, life in self.there.items() if life > 1 and rank < n_workers)


def _is_loss(end: RankEnded) -> bool:
    """Whether its process or its worker was lost; what its code raises ends the round."""
    return _is_death(end) or (end.failure is not None and end.failure.kind == "launch")


def _is_death(end: RankEnded) -> bool:
    """Whether its process was lost, and its worker was not."""
    failure = end.failure
    if failure is None:
        return False
    if failure.kind == "memory":
        return not failure.type_name.endswith("Error")
    return failure.kind == "crash"
