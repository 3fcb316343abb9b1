"""What clients know of ``%cluster connect``: an address, and Dask's configuration for TLS."""

from __future__ import annotations

from typing import Any

import msgspec

from jupyter_ddl.backends.address_settings import AddressSettings, scheduler_settings
from jupyter_ddl.backends.base import (
    Backend,
    BackendPlugin,
    Finding,
    OnPhase,
    Report,
    settings_of,
)
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.grammar import argument
from jupyter_ddl.protocol.cluster import ClusterSpec

__all__ = ["AddressPlugin"]


class AddressPlugin(BackendPlugin):
    """``%cluster connect ADDRESS``."""

    purpose = (
        "Starts nothing: uses a Dask scheduler that is already running, whose workers stay as they "
        "are."
    )
    command = "connect"
    arguments = (
        argument(
            "address", metavar="ADDRESS", help="tls://HOST:PORT, or tcp://HOST:PORT without TLS"
        ),
    )
    settings_type = AddressSettings
    start_timeout_s = 8.0
    stopped = "is disconnected, and goes on where it was started"

    def settings(self, **values: Any) -> msgspec.Struct:
        found = scheduler_settings(str(values.pop("address", None) or ""))
        return super().settings(**{**msgspec.structs.asdict(found), **values})

    def prepare(self, spec: ClusterSpec, on_phase: OnPhase) -> ClusterSpec:
        if not spec.settings.get("address"):
            raise ClusterError(
                f"backend {spec.backend!r} starts nothing; `%cluster connect ADDRESS` uses a "
                f"scheduler that is already running"
            )
        return spec

    async def examine(self, spec: ClusterSpec, **values: Any) -> Report:
        from jupyter_ddl.backends.reaching import check_listens, check_scheduler

        wanted = settings_of(spec, AddressSettings)
        security = wanted.security()
        findings: list[Finding] = []
        for what, check in (("address", check_listens), ("scheduler", check_scheduler)):
            try:
                await check(wanted.address, security)
            except ClusterError as error:
                return Report((*findings, Finding(what, "broken", error.message)))
            findings.append(Finding(what, "ok", f"{wanted.address} answers"))
        return Report(tuple(findings))

    def make(self, spec: ClusterSpec) -> Backend:
        from jupyter_ddl.backends.address import AddressBackend

        return AddressBackend(spec)
