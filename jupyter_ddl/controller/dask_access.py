"""What opens the scheduler to the user's own Dask code.

It leaves the controller over its socket, whose other end is the same user (0600, peer's uid
checked), and lies on no disk.
"""

from __future__ import annotations

from typing import Any

from jupyter_ddl.events.replies import DaskAccess

__all__ = ["dask_access"]


def dask_access(client: Any) -> DaskAccess:
    """Address and temporary certificate of the scheduler that ``client`` is connected to."""
    security = client.security
    address = client.scheduler.address
    if address.startswith("gateway://"):  # one certificate, which has signed itself
        return DaskAccess(address, security.tls_cert, security.tls_cert, security.tls_key)
    return DaskAccess(
        address=address,
        ca=security.tls_ca_file or "",
        certificate=security.tls_client_cert or "",
        key=security.tls_client_key or "",
    )
