"""Gradients that are sent in fewer bytes: torch's own hooks of DDP, and how much they send."""

from __future__ import annotations

from typing import Any

from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from jupyter_ddl.ranks.strategies.exchange import Exchange

__all__ = ["register_compression"]

_HALVES = {
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
}
_HALF_BYTES = 2
_POWERSGD_RANK = 4
_POWERSGD_AFTER = 10
"""Steps with whole gradients first: the directions of the first ones say little about the rest."""


def register_compression(model: Any, kind: str, exchange: Exchange) -> None:
    """Have a ``DistributedDataParallel`` send its gradients so.

    Parameters
    ----------
    kind : str
        ``fp16``, ``bf16`` or ``powersgd``.
    """
    if kind in _HALVES:
        hook = _HALVES[kind]

        def send(_: Any, bucket: Any) -> Any:
            exchange.count(bucket.buffer().numel() * _HALF_BYTES)
            return hook(None, bucket)

        _register(model, None, send)
        return
    state = PowerSGDState(
        process_group=None,
        matrix_approximation_rank=_POWERSGD_RANK,
        start_powerSGD_iter=_POWERSGD_AFTER,
    )

    def approximate(state: Any, bucket: Any) -> Any:
        before = state.total_numel_after_compression
        size_bytes = bucket.buffer().element_size()
        n_elements = bucket.buffer().numel()
        result = powerSGD_hook(state, bucket)
        n_sent = state.total_numel_after_compression - before
        exchange.count((n_sent or n_elements) * size_bytes)
        return result

    _register(model, state, approximate)


def _register(model: Any, state: Any, hook: Any) -> None:
    hook.__annotations__.clear()  # DDP compares them with torch's own types, and these are texts
    model.register_comm_hook(state, hook)
