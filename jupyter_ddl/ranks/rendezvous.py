"""``init_process_group`` as any script calls it, in a rank of a group that has met, or alone.

A tutorial's ``setup(rank, world_size)`` names an address of its own, often the same fixed port in
every script.  Its ranks are here, and share a store: they meet in that, whatever port they name, so
that two runs may name the same one, and one script may begin again and again.  A rank that has no
group is one of one.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from jupyter_ddl.formats import format_counted
from jupyter_ddl.protocol.group import RankPlace, ranks_label
from jupyter_ddl.ranks.group_store import join_store_at, open_store_at
from jupyter_ddl.ranks.imports import after_import, replace_everywhere
from jupyter_ddl.ranks.listeners import closed_to_strangers

__all__ = ["AloneRank", "Recorded", "Rendezvous", "Tell", "end_process_groups"]

Tell = Callable[[str], object]
"""Takes a sentence that the user should see."""
Recorded = Callable[[], contextlib.AbstractContextManager[None]]

_TELL_AFTER_S = 15.0
"""A rendezvous that takes longer is told of."""
_LOOK_S = 1.0
"""How long a wait in C++ takes at most: interrupts are heard in between."""
_END_S = 10.0
"""How long the end of process groups may take."""
_SCHEMES = ("env", "tcp")
_Handler = Callable[..., Iterator[tuple[Any, int, int]]]


class Rendezvous:
    """How the code of one rank joins process groups.  Used on the rank's main thread.

    Parameters
    ----------
    store : torch.distributed.Store
        The group's.
    recorded : callable
        A context within which connections are made.
    """

    def __init__(
        self,
        place: RankPlace,
        store: Any,
        tell: Tell,
        recorded: Recorded,
    ) -> None:
        self._place = place
        self._store = store
        # Processes that the code forks have it as well.
        self._token = place.token or secrets.token_hex(16)
        self._opened: dict[tuple[int, str], Any] = {}
        """By process and address, the stores of groups of another size."""
        self._tell = tell
        self._recorded = recorded
        self._round_id = place.group_id
        self._n_met = 0
        """Counted when all have met, so that it is the same on all ranks."""
        self._given: Any = None
        self._kept: Any = None
        """The latest process group, until the next one has been met.  Were it left to a model that
        outlives ``destroy_process_group``, torch could wait for a thread that waits for the GIL."""
        self._wait = ""

    def install(self) -> None:
        """Have torch's functions meet in the group's store, for the life of this process."""
        import torch.distributed as dist

        rendezvous = sys.modules["torch.distributed.rendezvous"]
        # torch has no public way to replace a handler: register_rendezvous_handler() only adds.
        handlers: dict[str, _Handler] = getattr(rendezvous, "_rendezvous_handlers", {})
        for scheme in handlers.keys() & set(_SCHEMES):
            handlers[scheme] = self._meet_by_url
        self._original = dist.init_process_group

        @functools.wraps(self._original)
        def replacement(*args: Any, **options: Any) -> None:
            self._init_process_group(*args, **options)

        replace_everywhere(self._original, replacement)
        replace_everywhere(dist.new_group, closed_to_strangers()(dist.new_group))

    def renew(self, round_id: str) -> None:
        """Meet nothing of what was met before; all ranks do this together."""
        self._round_id, self._n_met = round_id, 0

    def give(self, backend: str, device: Any) -> None:
        """Initialise the default process group before any code of the user's asks for it."""
        import torch.distributed as dist

        place = self._place
        with self._recorded(), closed_to_strangers():
            self._original(
                backend=backend,
                store=dist.PrefixStore(self._key(), self._store),
                rank=place.rank,
                world_size=place.world_size,
                timeout=timedelta(seconds=place.timeout_s),
                device_id=device,
            )
        self._n_met += 1
        self._given = self._kept = dist.group.WORLD

    # -- what the user's code calls ----------------------------------------------------------------

    def _init_process_group(self, *args: Any, **options: Any) -> None:
        import torch.distributed as dist

        if self._given is not None and dist.group.WORLD is self._given:
            # A script that begins as it would elsewhere: with its own backend and timeout.
            dist.destroy_process_group()
        self._given = None
        with self._told(), self._recorded(), closed_to_strangers():
            self._original(*args, **options)
        self._kept = dist.group.WORLD

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Within this, the user hears of a long wait while it goes on."""
        place, began_s = self._place, time.monotonic()
        self._wait = f"in init_process_group ({_address()}): did all of them call it?"

        def tell() -> None:
            waited_s = time.monotonic() - began_s
            self._tell(f"rank {place.rank} has waited {waited_s:.0f} s {self._wait}")

        timer = threading.Timer(_TELL_AFTER_S, tell)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _meet_by_url(
        self, url: str, timeout: timedelta = timedelta(minutes=30), **_: Any
    ) -> Iterator[tuple[Any, int, int]]:
        asked = dict(parse_qsl(urlsplit(url).query))
        place = self._place
        rank = int(asked.get("rank", os.environ.get("RANK", place.rank)))
        size = int(asked.get("world_size", os.environ.get("WORLD_SIZE", place.world_size)))
        where = urlsplit(url).netloc or _address()
        if (rank, size) == (place.rank, place.world_size):
            yield self._meet(where, timeout), rank, size
        else:
            yield self._meet_others(rank, size, where, timeout), rank, size

    def _meet(self, where: str, timeout: timedelta) -> Any:
        """A part of the store that these ranks, at this call, have for themselves."""
        import torch.distributed as dist

        here = dist.PrefixStore(f"jupyter_ddl/init/{self._key()}", self._store)
        self._wait_for_all(here, self._place.rank, self._place.world_size, where, timeout)
        self._n_met += 1
        return here

    def _meet_others(self, rank: int, size: int, where: str, timeout: timedelta) -> Any:
        """The same of another number of ranks: some of this group's, or processes forked here."""
        import torch.distributed as dist

        place = self._place
        said = (
            f", as rank {rank} of {size}: this group has "
            f"{format_counted(place.world_size, 'rank')}, and this is rank {place.rank}"
        )
        self._wait = f"at {where}{said}"
        store = self._store_at(where, rank, timeout)
        come = f"come/{size}/{rank}"
        here = dist.PrefixStore(f"{size}/{store.add(come, 1)}", store)
        try:
            self._wait_for_all(here, rank, size, where, timeout, said)
        except BaseException:
            with contextlib.suppress(RuntimeError):  # rank 0 is gone, and its store with it
                store.add(come, -1)
            raise
        return here

    def _store_at(self, where: str, rank: int, timeout: timedelta) -> Any:
        if rank:
            return join_store_at(where, self._token, timeout)
        key = os.getpid(), where
        if key not in self._opened:
            self._opened[key] = open_store_at(where, self._token, timeout)
        return self._opened[key]

    def _wait_for_all(
        self, here: Any, rank: int, size: int, where: str, timeout: timedelta, said: str = ""
    ) -> None:
        import torch.distributed as dist

        mine, deadline_s = f"here/{rank}", time.monotonic() + timeout.total_seconds()
        here.set(mine, "1")
        try:
            while absent := _absent(here, size):
                who = ranks_label(absent)
                self._wait = f"for {who} in init_process_group at {where}{said}"
                if time.monotonic() > deadline_s:
                    raise dist.DistStoreError(
                        f"rank {rank} timed out waiting for {who} in "
                        f"init_process_group at {where} ({timeout.total_seconds():.0f} s)"
                    )
                with contextlib.suppress(RuntimeError):  # they are not there yet
                    here.wait([f"here/{each}" for each in absent], timedelta(seconds=_LOOK_S))
        except BaseException:
            here.delete_key(mine)  # whoever comes later must not meet this call
            raise

    def _key(self) -> str:
        return f"{self._round_id}/{self._n_met}"


class AloneRank:
    """What trials on one rank need, in a process that executes one after another.

    Trials side by side may name the same port, and so may the notebook's own process.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._is_ready = False

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """Within this, the code of a trial may set up process groups; what it leaves is closed."""
        if not self._is_ready:
            self._is_ready = True
            after_import("torch.distributed", self._install)
        try:
            yield
        finally:
            end_process_groups(self._tell)

    def _install(self) -> None:
        import torch.distributed as dist

        if dist.is_available():
            place = RankPlace("alone")
            Rendezvous(place, dist.HashStore(), self._tell, contextlib.nullcontext).install()


def end_process_groups(tell: Tell, within_s: float = _END_S) -> None:
    """Destroy all process groups of this process, if there are any, for ``within_s`` seconds.

    NCCL waits there for whatever its peers or its own threads still have to do, in C++ and without
    a deadline of its own; what is not over by then ends with the process.
    """
    distributed: Any = sys.modules.get("torch.distributed")
    # A module may be there in part, after an import that failed.
    if not getattr(distributed, "is_initialized", bool)():
        return

    def destroy() -> None:
        with contextlib.suppress(RuntimeError):  # its connections may be cut
            distributed.destroy_process_group()

    ending = threading.Thread(target=destroy, name="ddl-groups-end", daemon=True)
    ending.start()
    ending.join(within_s)
    if ending.is_alive():
        tell(
            f"destroy_process_group() of this rank was not over after {within_s:g} s; the rank "
            f"goes on without it"
        )


def _absent(here: Any, size: int) -> list[int]:
    return [rank for rank in range(size) if not here.check([f"here/{rank}"])]


def _address() -> str:
    return f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"
