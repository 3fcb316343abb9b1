"""What clients know of Dask Gateway: whether Dask's configuration names one."""

from __future__ import annotations

import importlib.util
from typing import Any

from jupyter_ddl.backends.base import Backend, BackendPlugin, Finding, Report
from jupyter_ddl.protocol.cluster import ClusterSpec

__all__ = ["GatewayPlugin"]


_NO_ADDRESS = "set gateway.address in Dask's configuration, or DASK_GATEWAY__ADDRESS"


class GatewayPlugin(BackendPlugin):
    """``%cluster start gateway``."""

    purpose = "Asks the Dask Gateway of this hub for a scheduler and workers."
    requires = "jupyter_ddl[gateway]"

    def missing(self) -> str:
        import dask.config

        if importlib.util.find_spec("dask_gateway") is None:
            return f"dask_gateway is not installed: pip install '{self.requires}'"
        return "" if dask.config.get("gateway.address", None) else _NO_ADDRESS

    def make(self, spec: ClusterSpec) -> Backend:
        from jupyter_ddl.backends.gateway import GatewayBackend

        return GatewayBackend(spec)

    async def examine(self, spec: ClusterSpec, **values: Any) -> Report:
        import dask.config

        if importlib.util.find_spec("dask_gateway") is None:
            install = f"`pip install '{self.requires}'` where the notebook runs"
            return Report((Finding("package", "broken", install),))
        package = Finding("package", "ok", "dask_gateway is installed")
        address = dask.config.get("gateway.address", None)
        if not address:
            return Report((package, Finding("gateway", "broken", _NO_ADDRESS)))
        return Report(
            (package, Finding("gateway", "unknown", f"{address} is contacted at a start"))
        )
