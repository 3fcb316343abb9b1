"""The backend of ``%cluster connect``: a scheduler that somebody else has started and keeps.

Nothing is started, scaled or stopped there.  The controller registers its plugin with the workers
and removes it when it ends; one controller at a time, by an entry in the scheduler's metadata.
Workers may be on any host, those that join later too: files are carried.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from distributed import Client

from jupyter_ddl.backends.address_settings import AddressSettings
from jupyter_ddl.backends.base import Backend, OnPhase, settings_of
from jupyter_ddl.backends.reaching import (
    check_listens,
    check_scheduler,
    check_versions,
    close_client,
)
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.reading import converted
from jupyter_ddl.store.awake import awake_s
from jupyter_ddl.store.connection import is_lost
from jupyter_ddl.store.processes import ProcessIdentity, is_alive, this_process

__all__ = ["AddressBackend"]

log = logging.getLogger(__name__)

_OWNER = "jupyter-ddl-controller"
_CALL_S = 3.0
_RENEW_S = 10.0
_SILENT_S = 40.0
"""A controller on another host that has been silent for so long is gone."""
_LOOK_S = 0.5


class AddressBackend(Backend):
    """Made and used on the controller's loop."""

    client: Client

    def __init__(self, spec: ClusterSpec) -> None:
        settings = self._settings = settings_of(spec, AddressSettings)
        self._spec = spec
        self._address = settings.address
        self._security = settings.security()
        self._identity: dict[str, Any] = {}
        self._is_owner = False
        self._n_renewed = 0
        self._renewed_at_s = 0.0
        self._rival: tuple[Any, float] | None = None
        self._is_lost = False
        self._silent_since_s: float | None = None

    @property
    def n_wanted(self) -> int:
        """As many as there are: others decide."""
        return len(self._identity.get("workers", ()))

    @property
    def owns_workers(self) -> bool:
        return False

    @property
    def trouble(self) -> str:
        if self._is_lost:
            return "the scheduler is lost: reconnecting to its address; runs wait"
        if self._silent_since_s is not None:
            silent_s = awake_s() - self._silent_since_s
            return f"the scheduler is connected but silent for {silent_s:.0f} s: runs go on"
        return ""

    async def start(self, on_phase: OnPhase) -> None:
        on_phase(f"connecting to {self._address}")
        if self._address.startswith("tcp://"):
            on_phase("its connections are not encrypted: whoever reaches them can run code there")
        try:
            async with asyncio.timeout(self._spec.start_timeout_s):
                await check_listens(self._address, self._security)
                await check_scheduler(self._address, self._security)
                self.client = await self._connect()
                await check_versions(self.client)
                await self._become_owner(self.client, on_phase)
                await self._poll()
        except TimeoutError:
            await self.close()
            raise ClusterError(
                f"can't connect to {self._address}: timed out after "
                f"{self._spec.start_timeout_s:.0f} s; is the scheduler overloaded?"
            ) from None
        except BaseException:
            await asyncio.shield(self.close())
            raise

    async def _connect(self) -> Client:
        try:
            return await Client(
                self._address,
                security=self._security,
                asynchronous=True,
                set_as_default=False,
                timeout=_CALL_S,
            )
        except (OSError, TimeoutError, ValueError) as error:
            raise ClusterError(f"can't connect to {self._address}: {error}") from None

    # -- one controller at a time ----------------------------------------------------------------

    async def _become_owner(self, client: Client, on_phase: OnPhase = log.info) -> None:
        while found := await client.get_metadata([_OWNER], default=None):
            match self._use_by(found):
                case "none":
                    break
                case "certain":
                    raise ClusterError(
                        f"{self._address} is in use by another controller (pid {found['pid']}, "
                        f"cluster {found['name']!r}); `%cluster stop {found['name']}` where it "
                        f"runs releases it"
                    )
            on_phase(f"seeing whether a controller of another host still uses {self._address}")
            await asyncio.sleep(_LOOK_S)
        self._is_owner = True
        await self._renew(client)

    def _use_by(self, found: dict[str, Any]) -> Literal["none", "certain", "unclear"]:
        """Whether the controller of this entry lives; clocks of other hosts are not believed."""
        owner = converted(found, ProcessIdentity)
        if owner == this_process() or is_lost(owner):
            return "none"
        if is_alive(owner):
            return "certain"
        now_s = awake_s()
        seen, since_s = self._rival = self._rival or (found, now_s)
        if found != seen:
            self._rival = None
            return "certain"
        return "none" if now_s - since_s > _SILENT_S else "unclear"

    async def _renew(self, client: Client) -> None:
        process = msgspec.to_builtins(this_process())
        self._n_renewed += 1
        record = {"name": self._spec.name, "n_renewed": self._n_renewed, **process}
        await client.set_metadata([_OWNER], record)
        self._renewed_at_s = awake_s()

    # -- while it runs ---------------------------------------------------------------------------

    async def repair(self) -> None:
        """Connect again when the scheduler is gone; its workers are not ours to replace.

        Gone is one whose connection is closed, as the end of a process does at once and the loss of
        a host after half a minute (TCP's own deadline).  One that is silent while the connection
        stands is slow: what it has to do goes on, until its deadline is over.
        """
        if not self._is_lost:
            await self._look_after_scheduler()
        if self._is_lost:
            await self._connect_again()

    async def _look_after_scheduler(self) -> None:
        if not self._is_connected():
            await self._lose("the connection is closed")
            return
        try:
            await self._poll()
            if awake_s() - self._renewed_at_s > _RENEW_S:
                async with asyncio.timeout(_CALL_S):
                    await self._renew(self.client)
        except OSError as error:  # a TimeoutError is one, too
            await self._be_patient(error)
        else:
            if self._silent_since_s is not None:
                log.warning("the scheduler %s answers again", self._address)
            self._silent_since_s = None

    def _is_connected(self) -> bool:
        """Whether the client is connected to this scheduler, and was to no other before.

        Dask's client connects again by itself, to whoever answers at the address.
        """
        if self.client.status != "running":
            return False
        return bool(self.client.scheduler_info().get("id") == self._identity["id"])

    async def _poll(self) -> None:
        async with asyncio.timeout(_CALL_S):
            self._identity = await self.client.scheduler.identity(n_workers=-1)

    async def _be_patient(self, error: OSError) -> None:
        now_s = awake_s()
        if self._silent_since_s is None:
            log.warning("the scheduler %s does not answer: %r", self._address, error)
            self._silent_since_s = now_s
        elif now_s - self._silent_since_s > self._settings.lost_after_s:
            await self._lose(f"no answer for {now_s - self._silent_since_s:.0f} s")

    async def _lose(self, why: str) -> None:
        log.warning("the scheduler %s is lost: %s; connecting again", self._address, why)
        self._is_lost, self._silent_since_s, self._identity = True, None, {}
        # It would find the next scheduler by itself, work would be sent that way, and be lost a
        # second time when our own connection takes its place.
        await close_client(self.client)

    async def _connect_again(self) -> None:
        try:
            client = await self._connect()
        except ClusterError as error:
            log.info("%s", error.message)
            return
        try:
            async with asyncio.timeout(_CALL_S):
                await self._become_owner(client)
                self._identity = await client.scheduler.identity(n_workers=-1)
        except (ClusterError, OSError) as error:
            log.warning("connecting to %s again failed: %s", self._address, error)
            await close_client(client)
            return
        self.client, self._is_lost = client, False

    async def scale(self, n_workers: int, keep: Sequence[str]) -> None:
        raise ClusterError(
            f"{self._address} was connected to, not started here: change its number of workers "
            "where it was started"
        )

    async def close(self) -> None:
        """Disconnect; the cluster goes on."""
        client = getattr(self, "client", None)
        if client is None:
            return
        if self._is_owner:
            self._is_owner = False
            with contextlib.suppress(OSError, TimeoutError, ValueError):
                async with asyncio.timeout(_CALL_S):
                    await client.set_metadata([_OWNER], None)
        await close_client(client)
