"""What clients know of Dask Gateway: whether Dask's configuration names one."""

from __future__ import annotations

import importlib.util
from typing import Any

from jupyter_ddl.backends.base import Backend, BackendPlugin, Finding, Report
from jupyter_ddl.protocol.cluster import ClusterSpec

__all__ = ["GatewayPlugin"]


class GatewayPlugin(BackendPlugin):
    """``%cluster start gateway``."""

    requires = "jupyter_ddl[gateway]"

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
            missing = "set gateway.address in Dask's configuration, or DASK_GATEWAY__ADDRESS"
            return Report((package, Finding("gateway", "broken", missing)))
        return Report(
            (package, Finding("gateway", "unknown", f"{address} is contacted at a start"))
        )
