"""Plain Dask code on this cluster: a connected ``distributed.Client``.

What Dask itself executes runs in the Dask workers, beside the rank processes and not in them: it is
Dask's own work, under Dask's own rules.  A worker that dies of it is started again by its nanny.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from jupyter_ddl.client.session import session
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.replies import DaskAccess
from jupyter_ddl.protocol.requests import GetDask

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Client

__all__ = ["connect_client", "connected_client", "forget_client"]

_clients: dict[str, Client] = {}


def connect_client(on_phase: Callable[[str], None] = lambda _: None) -> Client:
    """The ``distributed.Client`` of the cluster in use, which is the default for Dask from now on.

    A cluster is started where there is none.  Its certificate comes over the controller's own
    socket, and is kept in memory only.

    Raises
    ------
    ClusterError
        It can't be reached.
    """
    from distributed import Client, Security

    name = session().ensure(on_phase)
    known = _clients.get(name)
    if known is not None and known.status == "running":
        return known
    access = session().ask(name, GetDask())
    if not isinstance(access, DaskAccess):
        raise ClusterError(f"cluster {name} does not say how to reach its scheduler")
    security = Security(
        tls_ca_file=access.ca,
        tls_client_cert=access.certificate,
        tls_client_key=access.key,
        require_encryption=True,
    )
    try:
        _clients[name] = Client(access.address, security=security if access.ca else None)
    except (OSError, TimeoutError) as error:
        raise ClusterError(
            f"the scheduler of cluster {name} ({access.address}) can't be reached: {error}; "
            f"`%cluster` shows its state"
        ) from error
    return _clients[name]


def connected_client() -> Client | None:
    """The client of the cluster in use, if one is connected."""
    known = _clients.get(session().current or "")
    return known if known is not None and known.status == "running" else None


def forget_client(name: str) -> None:
    """Close the client of a cluster that is about to end; harmless where there is none."""
    client = _clients.pop(name, None)
    if client is not None:
        with contextlib.suppress(Exception):  # the scheduler may be gone, which is all the same
            client.close(timeout=2)
