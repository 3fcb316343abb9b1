"""Services of other frameworks between ranks, which ask nobody who he is.

JAX's coordinator answers whoever reaches its port, and torch's RPC (parameter servers) executes
what it is sent, and aborts its process at a word that it does not understand.  Both listen where
the ranks are and nowhere else, and let nobody in once all ranks are.
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.ranks.imports import after_import
from jupyter_ddl.ranks.listeners import closed_to_strangers

__all__ = ["close_services"]

_MEET_S = 120.0
_N_PADDING = 1 << 18
"""Numbers that a first call carries: it then opens what large ones travel by, too."""
_met: set[str] = set()
_changed = threading.Condition()


def close_services() -> None:
    """For the life of this process, as soon as it imports them."""
    after_import("jax._src.distributed", _close_jax)
    after_import("torch.distributed.rpc", _close_rpc)


def _close_jax() -> None:
    state: Any = getattr(sys.modules["jax._src.distributed"], "State", None)
    initialize = getattr(state, "initialize", None)
    if initialize is not None:
        # It returns when all processes are connected, by one connection each.
        state.initialize = closed_to_strangers(but_nccl=False)(initialize)


def _close_rpc() -> None:
    rpc: Any = sys.modules["torch.distributed.rpc"]
    original = getattr(rpc, "init_rpc", None)
    if original is None:  # a torch without it
        return

    @functools.wraps(original)
    def init_rpc(
        name: str,
        backend: Any = None,
        rank: int = -1,
        world_size: int | None = None,
        rpc_backend_options: Any = None,
    ) -> None:
        options = _by_tcp_only(rpc, rpc_backend_options)
        _met.clear()
        with closed_to_strangers(but_nccl=False):
            original(name, backend, rank, world_size, options)
            _meet_all(rpc)

    rpc.init_rpc = init_rpc


def _by_tcp_only(rpc: Any, given: Any) -> Any:
    """The same options, without sockets of a kind that can't be closed to other users."""
    kind = rpc.TensorPipeRpcBackendOptions
    if given is not None and not isinstance(given, kind):
        return given
    known = (
        {}
        if given is None
        else {
            "num_worker_threads": given.num_worker_threads,
            "rpc_timeout": given.rpc_timeout,
            "init_method": given.init_method,
            "device_maps": given.device_maps,
            "devices": given.devices,
        }
    )
    return kind(**known, _transports=["uv"])


def _meet_all(rpc: Any) -> None:
    """Connect to every rank, and wait until every rank has connected to this one."""
    import torch

    me = rpc.get_worker_info()
    agent = sys.modules["torch.distributed.rpc.api"].__dict__["_get_current_rpc_agent"]()
    others = [info for info in agent.get_worker_infos() if info.name != me.name]
    padding = torch.zeros(_N_PADDING)
    calls = [rpc.rpc_async(other, _meet, args=(me.name, padding)) for other in others]
    for call in calls:
        call.wait()
    with _changed:
        if not _changed.wait_for(lambda: len(_met) >= len(others), _MEET_S):
            absent = sorted({other.name for other in others} - _met)
            raise LaunchError(
                f"{me.name} waited {_MEET_S:.0f} s in init_rpc for {', '.join(absent)}: did all "
                f"ranks call it?"
            )


def _meet(name: str, _padding: Any) -> None:
    """Called by another rank: it has connected to this one."""
    with _changed:
        _met.add(name)
        _changed.notify_all()
