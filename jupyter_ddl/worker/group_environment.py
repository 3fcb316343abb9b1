"""The environment variables by which frameworks find the other ranks of a group.  Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from jupyter_ddl.spec.group import RankPlace

__all__ = ["group_environment"]

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def group_environment(
    place: RankPlace, addresses: Sequence[str], coordinator_port: int | None
) -> dict[str, str]:
    """Variables of torchrun, of TensorFlow's ``TF_CONFIG``, and of JAX.

    Parameters
    ----------
    addresses : sequence of str
        ``host:port`` by rank.  With torch, the first one is the open store's.
    coordinator_port : int or None
        With torch: a free port at rank 0's host for the coordinator of another framework.
    """
    host, _, port = addresses[0].rpartition(":")
    has_store = coordinator_port is not None
    coordinator = f"{host}:{coordinator_port}" if has_store else addresses[0]
    workers = [_url(address) for address in (coordinator, *addresses[1:])]
    variables = {
        "RANK": place.rank,
        "LOCAL_RANK": place.local_rank,
        "WORLD_SIZE": place.world_size,
        "LOCAL_WORLD_SIZE": place.local_world_size,
        "GROUP_RANK": place.group_rank,
        "GROUP_WORLD_SIZE": place.n_hosts,
        "ROLE_RANK": place.rank,
        "ROLE_WORLD_SIZE": place.world_size,
        "ROLE_NAME": "default",
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": place.group_id,
        "TORCHELASTIC_RESTART_COUNT": place.restart_count,
        "TORCHELASTIC_MAX_RESTARTS": place.max_restarts,
        # The store is open already: `init_process_group("env://")` joins it, also on rank 0.
        "TORCHELASTIC_USE_AGENT_STORE": has_store,
        "TF_CONFIG": json.dumps(
            {"cluster": {"worker": workers}, "task": {"type": "worker", "index": place.rank}}
        ),
        # JAX reads the address only; how many and which one it asks worker.jax_cluster.
        "JAX_COORDINATOR_ADDRESS": workers[0],
        "JAX_NUM_PROCESSES": place.world_size,
        "JAX_PROCESS_ID": place.rank,
    }
    if all(address.rpartition(":")[0] in _LOOPBACK for address in addresses):
        # Else gloo asks for the host's name, which may resolve to an interface that is not up,
        # and JAX's coordinator listens on all interfaces.
        variables["GLOO_SOCKET_IFNAME"] = "lo"
        variables["JAX_COORDINATOR_BIND_ADDRESS"] = workers[0]
    return {name: str(value) for name, value in variables.items()}


def _url(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"[{host}]:{port}" if ":" in host else address
