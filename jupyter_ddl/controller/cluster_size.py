"""How many workers a cluster is to have: as asked for, or as its runs need within bounds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from jupyter_ddl.backends.base import Backend
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.placement.slots import SlotBook, wanted_workers
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.store.awake import awake_s

__all__ = ["ClusterSize"]

log = logging.getLogger(__name__)

_SCALE_TIMEOUT_S = 60.0


class ClusterSize:
    """Used on the controller's loop only.

    Parameters
    ----------
    demand_slots : callable
        Slots that runs could use at once.
    on_scaled : callable
        Called when the backend has followed.

    Attributes
    ----------
    bounds : (int, int) or None
        Least and most workers between which the size follows the demand; None: it stays.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        backend: Backend,
        slots: SlotBook,
        *,
        demand_slots: Callable[[], int],
        on_scaled: Callable[[], None],
    ) -> None:
        self.bounds: tuple[int, int] | None = None
        self._spec = spec
        self._backend = backend
        self._slots = slots
        self._demand_slots = demand_slots
        self._on_scaled = on_scaled
        self._surplus_since_s: float | None = None
        self._changing = asyncio.Lock()

    def check_scalable(self) -> None:
        """Raise :class:`ClusterError` where the number of workers is for others to decide."""
        if not self._backend.owns_workers:
            raise ClusterError(
                f"cluster {self._spec.name} was connected to, not started here: it is scaled where "
                f"it was started"
            )

    async def scale(self, n_workers: int) -> None:
        """Ask for ``n_workers``; one change of size at a time.

        Raises
        ------
        ClusterError
            The backend did not follow within a minute.
        """
        log.info("scaling to %d workers", n_workers)
        async with self._changing:
            try:
                async with asyncio.timeout(_SCALE_TIMEOUT_S):
                    await self._backend.scale(n_workers, keep=self._slots.busy_addresses())
            except TimeoutError:
                raise ClusterError(
                    f"scaling cluster {self._spec.name} to {n_workers} workers took longer than "
                    f"{_SCALE_TIMEOUT_S:.0f} s; see `%cluster logs`"
                ) from None
        self._on_scaled()

    async def repair(self) -> None:
        """Replace lost workers."""
        async with self._changing, asyncio.timeout(_SCALE_TIMEOUT_S):
            await self._backend.repair()

    async def follow_demand(self) -> None:
        """Grow or shrink while there are bounds for that."""
        if self.bounds is None:
            self._surplus_since_s = None
            return
        target = self._wanted(*self.bounds)
        if target != self._backend.n_wanted:
            await self.scale(target)

    def n_wanted_slots(self) -> int:
        """Slots of the workers that were asked for."""
        return self._backend.n_wanted * self._backend.slots_per_worker

    def n_possible_slots(self) -> int:
        """The most slots that the cluster can have without a person's doing."""
        n_workers = max(self._backend.n_wanted, 0 if self.bounds is None else self.bounds[1])
        return n_workers * self._backend.slots_per_worker

    def _wanted(self, minimum: int, maximum: int) -> int:
        now = awake_s()
        current, demand = self._backend.n_wanted, self._demand_slots()
        slots = self._backend.slots_per_worker
        if demand > (current - 1) * slots:
            self._surplus_since_s = None
        elif self._surplus_since_s is None:
            self._surplus_since_s = now
        surplus_for_s = 0.0 if self._surplus_since_s is None else now - self._surplus_since_s
        return wanted_workers(
            demand,
            current,
            minimum,
            maximum,
            may_shrink=surplus_for_s >= self._spec.shrink_after_s,
            slots_per_worker=slots,
        )
