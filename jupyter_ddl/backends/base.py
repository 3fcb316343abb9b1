"""What every backend provides: a Dask scheduler with workers, and the view of them.

A backend is made and used on the controller's event loop only.  ``start`` either returns with a
scheduler that answers, or raises :class:`ClusterError` before its deadline and leaves nothing
behind.  ``close`` may be called at any time, more than once, and ends every process or pod that
``start`` or ``scale`` made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from jupyter_ddl.protocol.group import SeenGpus

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Backend", "WorkerInfo"]


class WorkerInfo(msgspec.Struct, frozen=True):
    """A Dask worker that the scheduler knows."""

    address: str
    name: str
    host: str
    n_slots: int
    gpus: SeenGpus | None = None
    """None: it has not told yet."""


class Backend(Protocol):
    """Obligations of a backend; see the module's text."""

    client: Client

    async def start(self, on_phase: Callable[[str], None]) -> None:
        """Bring up scheduler and workers; ``on_phase`` gets one short sentence a step."""

    async def scale(self, n_workers: int, keep: Sequence[str]) -> None:
        """Ask for ``n_workers``; when shrinking, the addresses in ``keep`` go last."""

    async def repair(self) -> None:
        """Replace workers that are lost for good; called once a second, never during a scale."""

    async def close(self) -> None:
        """End everything this backend started."""

    @property
    def n_wanted(self) -> int:
        """Workers asked for."""
        ...

    @property
    def shared_filesystem(self) -> bool:
        """Whether workers see the controller's run directories and blobs."""
        ...

    @property
    def owns_workers(self) -> bool:
        """Whether the workers are this backend's; others are never scaled, and left as found."""
        ...

    @property
    def image(self) -> str:
        """What the image of the workers was resolved to, with its digest; empty: there is none."""
        ...

    @property
    def trouble(self) -> str:
        """What keeps the cluster from working as it should, in one line; empty: nothing does."""
        ...
