"""Ranks that meet every so many steps, go on without one that is lost, and take it back.

A circle is a process group of those who are there.  Rank 0, without which no round goes on, says
who is in the next one: it knows from the driver who is lost, and from the store who wants to come
back.  Nobody else has to know: who is left alone in a meeting finds its connections closed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from jupyter_ddl.protocol.group import ranks_label
from jupyter_ddl.ranks.strategies.company import CONNECT_S, Company
from jupyter_ddl.ranks.strategies.exchange import Exchange
from jupyter_ddl.ranks.strategies.messages import Message, Post

__all__ = ["Circle"]

T = TypeVar("T")
_WORD_S = 30.0
"""How long a connection that broke waits for the driver to tell why."""
_POLL_S = 0.002


class Circle:
    """As one rank sees it.  Used on its main thread; methods that say nothing else are collective.

    Parameters
    ----------
    exchange : Exchange
        Is given the process group of each circle.
    """

    def __init__(self, company: Company, exchange: Exchange) -> None:
        self._company = company
        self._exchange = exchange
        self._store = company.store
        self._rank = company.place.rank
        self.is_first = self._rank == 0
        self._number = 0
        self._known = -1
        """Changes that the driver had told when this circle was made."""
        self._lives: Mapping[int, int] = {}
        self._group: Any = None
        self._n_met = 0
        self._has_guests = False
        """Whether somebody is let in before the next step."""

    @property
    def lacks_ranks(self) -> bool:
        """Whether somebody who trains is not in it."""
        return len(self._lives) < self._company.place.n_workers

    def begin(self) -> None:
        """Make the first circle, of all that are there."""
        self._renew(dict.fromkeys(self._company.first, 1))

    # -- meetings --------------------------------------------------------------------------------

    def copy_first(self, tensors: Sequence[Any]) -> None:
        """Give all the tensors of rank 0; raises as :meth:`means` does."""

        def copy() -> None:
            for tensor in tensors:
                sent = tensor.detach().contiguous()
                self._group.broadcast(sent, 0).wait()
                tensor.detach().copy_(sent)

        self._together(copy)

    def gather_json(self, value: Any) -> list[Any]:
        """Plain data of all that are there, by rank; raises as :meth:`means` does."""
        return self._together(lambda: self._exchange.gather_json(value))

    def means(self, tensors: Sequence[Any]) -> list[Any]:
        """The means over all that are there at the end, as new tensors.

        Raises
        ------
        RuntimeError
            A connection broke, and nobody is lost.
        """
        return self._together(lambda: self._exchange.means(tensors))

    def _together(self, exchange: Callable[[], T]) -> T:
        """Exchange something, anew when a rank is lost, until all have what comes of it."""
        number = self._n_met + 1
        found: list[T] = []
        while True:
            wanted, broken = 0.0, None
            try:
                if self._is_outdated:
                    raise RuntimeError("a rank of this circle is lost")
                found = [exchange()]
                # Who is through with this knows that all have theirs.
                wanted = self._largest(float(bool(self.is_first and self._guests())))
            except RuntimeError as error:
                broken = _bare(error)
            if broken is not None:
                if found:
                    # Others may have gone on: they look before their next step.
                    self._store.set(f"{self._key}/waits", "1")
                self._await_word(broken, self._lives)
                if self._renew(self._lives) < number or not found:
                    found = []
                    continue
            self._n_met, self._has_guests = number, bool(wanted)
            return found[0]

    def look(self) -> dict[int, int]:
        """Before a step: let in who waits; returns whom this rank has to tell where all are.

        Not collective where nobody is lost, and nobody wants to come back.
        """
        if self._has_guests:
            before = self._lives
            self._renew({**before, **(self._guests() if self.is_first else {})})
            new = {rank: life for rank, life in self._lives.items() if before.get(rank) != life}
            return new if self.is_first else {}
        is_new = self._company.members.number != self._known
        if is_new and self._is_outdated and self._store.check([f"{self._key}/waits"]):
            self._renew(self._lives)
        return {}

    def finish(self) -> None:
        """Behind the last step: stay until all know that the last meeting was complete."""
        deadline_s = time.monotonic() + self._company.place.timeout_s
        while time.monotonic() < deadline_s:
            self._store.set(f"{self._key}/done/{self._rank}", "1")
            there = self._company.lives
            awaited = [rank for rank, life in self._lives.items() if there.get(rank) == life]
            if self._store.check([f"{self._key}/done/{rank}" for rank in awaited]):
                return
            if self._store.check([f"{self._key}/waits"]):
                self._renew(self._lives)
            time.sleep(_POLL_S)

    def _largest(self, number: float) -> float:
        numbers = torch.tensor([number], dtype=torch.float64)
        self._group.allreduce([numbers], dist.ReduceOp.MAX).wait()
        return float(numbers[0])

    # -- who is in it ----------------------------------------------------------------------------

    @property
    def _key(self) -> str:
        return f"jupyter_ddl/circle/{self._number}"

    @property
    def _is_outdated(self) -> bool:
        return self._is_any_lost(self._lives)

    def _is_any_lost(self, lives: Mapping[int, int]) -> bool:
        there = self._company.lives
        return any(there.get(rank) != life for rank, life in lives.items())

    def _await_word(self, error: Exception, lives: Mapping[int, int]) -> None:
        """Rank 0 waits until the driver has told who is lost; the others wait for rank 0."""
        deadline_s = time.monotonic() + _WORD_S
        members = self._company.members
        while self.is_first:
            number = members.number  # before the look at who is there, or a word could be missed
            if self._is_any_lost(lives):
                return
            if not members.wait_beyond(number, deadline_s - time.monotonic()):
                raise error

    def _renew(self, lives: Mapping[int, int]) -> int:
        """Make the next circle of those among these that are there.

        Returns
        -------
        int
            How many meetings they have had, the latest of them: one that is behind has missed the
            end of one only.
        """
        self._leave()
        while True:
            self._number += 1
            if self.is_first:
                self._known = self._company.members.number
                there = self._company.lives
                chosen = {rank: life for rank, life in lives.items() if there.get(rank) == life}
                self._call(chosen)
            else:
                self._known = self._company.members.number
                number, lives_told = json.loads(self._told(f"{self._key}/lives", "rank 0"))
                chosen = {int(rank): life for rank, life in lives_told.items()}
                # By an older word of the driver, who has just come back would look lost.
                self._company.members.wait_beyond(number - 1, _WORD_S)
            self._store.set(f"{self._key}/here/{self._rank}", "1")
            if not self._is_complete(chosen):
                continue
            broken = None
            try:
                ranks = sorted(chosen)
                self._group = self._company.meet(f"circle/{self._number}", ranks, CONNECT_S)
                self._exchange.use(self._group)
                latest = self._largest(self._n_met)
            except RuntimeError as error:
                broken = _bare(error)
            if broken is None:
                self._lives, self._has_guests = chosen, False
                return int(latest)
            self._leave()
            self._await_word(broken, chosen)

    def _leave(self) -> None:
        """Close the connections: who waits for this rank in the old circle hears of it."""
        self._exchange.use(None)
        self._group = None

    def _call(self, lives: Mapping[int, int]) -> None:
        """Rank 0 tells who is in the next circle, also those that wait outside."""
        self._store.set(f"{self._key}/lives", json.dumps([self._company.members.number, lives]))
        for rank, life in lives.items():
            if life > 1:
                self._store.set(_invitation(rank, life), str(self._number))

    def _is_complete(self, lives: Mapping[int, int]) -> bool:
        """Whether all have come; False: one of them is lost, and rank 0 calls anew."""
        key = f"{self._key}/all"
        if not self.is_first:
            return self._told(key, ranks_label(lives)) == "1"
        absent = set(lives)

        def is_decided() -> bool:
            nonlocal absent
            absent = {r for r in absent if not self._store.check([f"{self._key}/here/{r}"])}
            return not absent or self._is_any_lost(lives)

        self._poll(is_decided, ranks_label(lives))
        self._store.set(key, "0" if absent else "1")
        return not absent

    def _told(self, key: str, whom: str) -> str:
        self._poll(lambda: self._store.check([key]), whom)
        return str(self._store.get(key).decode())

    def _poll(self, is_so: Callable[[], bool], whom: str) -> None:
        timeout_s = self._company.place.timeout_s
        deadline_s = time.monotonic() + timeout_s
        while not is_so():
            if time.monotonic() > deadline_s:
                raise RuntimeError(
                    f"rank {self._rank} timed out waiting for {whom} to meet anew "
                    f"({timeout_s:.0f} s)"
                )
            time.sleep(_POLL_S)

    # -- coming back -----------------------------------------------------------------------------

    def tell_place(self, n_steps: int, loss: float) -> None:
        """Rank 0 tells those that are outside how far the others are; not collective."""
        self._store.set(_PLACE, json.dumps([n_steps, loss]))

    @property
    def n_told(self) -> int:
        """Steps that the others had made at their last meeting; 0 where nobody has told."""
        return int(self.place()[0]) if self._store.check([_PLACE]) else 0

    def place(self) -> tuple[int, float]:
        """How far the others were at their last meeting; waits for one; not collective."""
        n_steps, loss = json.loads(self._told(_PLACE, "the others"))
        return n_steps, loss

    def enter(self) -> Message:
        """Come back: ask to be let in, and hear where all are."""
        place = self._company.place
        self._store.set(_question(place.rank, place.life), "1")
        self._number = int(self._told(_invitation(place.rank, place.life), "the others")) - 1
        self._renew({})
        return self._post.receive(0)

    def receive(self, rank: int, content: Mapping[str, Any], tensors: Sequence[Any]) -> None:
        """Rank 0 tells one that came back where all are; not collective."""
        self._post.send(rank, content, tensors)

    def met(self, n_times: int) -> None:
        """So many meetings there have been without this rank."""
        self._n_met = n_times

    @property
    def n_met(self) -> int:
        """Meetings so far."""
        return self._n_met

    @property
    def _post(self) -> Post:
        return Post(self._group, self._exchange, sorted(self._lives))

    def _guests(self) -> dict[int, int]:
        """Those that were lost, are there again, and wait to be let in."""
        n_workers = self._company.place.n_workers
        return {
            rank: life
            for rank, life in self._company.lives.items()
            if rank < n_workers
            and self._lives.get(rank) != life
            and self._store.check([_question(rank, life)])
        }


_PLACE = "jupyter_ddl/circle/place"


def _bare(error: RuntimeError) -> RuntimeError:
    """An error without its frames, which hold the group, and with it its connections."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


def _question(rank: int, life: int) -> str:
    return f"jupyter_ddl/circle/asks/{rank}/{life}"


def _invitation(rank: int, life: int) -> str:
    return f"jupyter_ddl/circle/invited/{rank}/{life}"
