"""Who trains which parameters of a model that is cut into stages, and what others know of them."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.exchange import Exchange
from jupyter_ddl.ranks.strategies.pipeline.cutting import Part
from jupyter_ddl.ranks.strategies.placing import follow_parameters

__all__ = ["Owners"]


class Owners:
    """Of one model; made, and used, by all ranks together.

    All ranks begin with the parameters of rank 0.

    Parameters
    ----------
    n_copies : int
        Ranks next to each other that train the same stages; of them the first one is the owner.
    """

    def __init__(self, model: Any, exchange: Exchange, n_copies: int = 1) -> None:
        self._model = weakref.ref(model)
        self.exchange = exchange
        self._n_copies = n_copies
        self.optimizer: Any = None
        self.parameters: tuple[Any, ...] = ()
        """This rank's own."""
        self.buffers: tuple[Any, ...] = ()
        """This rank's own."""
        self._owned: dict[int, int] = {}
        """Rank by the id of a parameter or buffer."""
        self._is_stale = False
        self._guards = (
            model.register_forward_pre_hook(_Guard(self, is_call=True)),
            model.register_state_dict_pre_hook(_Guard(self, is_call=False)),
        )
        for tensor in _tensors_of(model):
            _broadcast(tensor, 0)

    @property
    def is_cut(self) -> bool:
        """Whether stages are assigned."""
        return bool(self._owned)

    def assign(
        self, parts: Sequence[Part], starts: Sequence[int], optimizer: Any, device: Any
    ) -> None:
        """Give each rank its stages; what an optimizer knows of the others' is dropped.

        Called again after all of the model was somewhere else, for a look at another shape.
        """
        self._owned.clear()  # a buffer that was moved is another object
        rank = dist.get_rank() // self._n_copies
        n_ranks = dist.get_world_size() // self._n_copies
        own: dict[int, Any] = {}
        own_buffers: dict[int, Any] = {}
        for number, part in enumerate(parts):
            owner = (sum(start <= number for start in starts) - 1) % n_ranks
            if owner == rank:
                part.module.to(device)
            for tensor in _tensors_of(part.module):
                self._owned.setdefault(id(tensor), owner * self._n_copies)
            if owner == rank:
                own.update((id(each), each) for each in part.module.parameters())
                own_buffers.update((id(each), each) for each in part.module.buffers())
        self.parameters = tuple(own.values())
        self.buffers = tuple(own_buffers.values())
        self.optimizer = optimizer
        for parameter in [each for each in optimizer.state if id(each) not in own]:
            del optimizer.state[parameter]
        follow_parameters(optimizer)

    def changed(self) -> None:
        """The owners have trained."""
        self._is_stale = True

    def collect(self) -> None:
        """Bring the other ranks' parameters and buffers up to date, where they have changed."""
        model = self._model()
        if not self._is_stale or model is None:
            return
        self._is_stale = False
        for tensor in _tensors_of(model):
            _broadcast(tensor, self._owned.get(id(tensor), 0))

    def release(self) -> None:
        """Bring the model up to date for good: it is an ordinary one afterwards."""
        self.collect()
        for guard in self._guards:
            guard.remove()

    def read(self, model: Any, *, is_call: bool) -> None:
        """Somebody calls the model, or reads its state.

        Raises
        ------
        ReportError
            It is a forward pass by hand whose gradients nobody would exchange.
        """
        known: Any = self._model()
        if model is not known:  # a copy
            return
        trains = is_call and known.training and torch.is_grad_enabled()
        if trains and dist.get_world_size() > 1:
            raise ReportError(
                f"{type(model).__name__} was called for training, and under --strategy pipeline "
                f"each rank trains some of its layers; write step = prepare_step(model, loss_fn, "
                f"optimizer) and step(x, y), and call the model under torch.no_grad()"
            )
        self.collect()

    def optimizer_state(self) -> Mapping[str, Any]:
        """The optimizer's state of all stages, as one process would have it.  Collective."""
        mine = self.optimizer.state_dict()
        rank = dist.get_rank()
        parameters = [each for group in self.optimizer.param_groups for each in group["params"]]
        described = {
            str(index): {name: _described(value) for name, value in values.items()}
            for index, values in mine["state"].items()
            if self._owned.get(id(parameters[index]), 0) == rank
        }
        whole: dict[int, dict[str, Any]] = {}
        for owner, states in enumerate(self.exchange.gather_json(described)):
            for key, values in states.items():
                index = int(key)
                held = mine["state"].get(index, {}) if owner == rank else {}
                whole[index] = {
                    name: _received(kind, held.get(name), owner) for name, kind in values.items()
                }
        return {**mine, "state": dict(sorted(whole.items()))}


class _Guard:
    """What other ranks have trained is brought before it is read; copies of the model share it."""

    def __init__(self, owners: Owners, *, is_call: bool) -> None:
        self._owners = owners
        self._is_call = is_call

    def __call__(self, model: Any, *_: Any) -> None:
        self._owners.read(model, is_call=self._is_call)

    def __deepcopy__(self, _memo: Any) -> _Guard:
        return self


def _tensors_of(model: Any) -> list[Any]:
    return [*model.parameters(), *model.buffers()]


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
    return [value]


def _received(kind: Any, value: Any, owner: int) -> Any:
    """What the owner has, on the CPU."""
    if isinstance(kind, list):
        return kind[0]
    if value is None:
        value = torch.empty(kind["shape"], dtype=getattr(torch, kind["dtype"]))
    else:
        value = value.detach().clone()
    _broadcast(value, owner)
    return value.cpu()


def _broadcast(tensor: Any, source: int) -> None:
    """Whatever device it is on: NCCL sends from GPUs only, and not all ranks have it on theirs."""
    on_gpus = dist.get_backend() == "nccl"
    place = torch.device("cuda", torch.cuda.current_device()) if on_gpus else torch.device("cpu")
    sent = tensor.detach().to(place).contiguous()
    dist.broadcast(sent, source)
    if dist.get_rank() != source and sent.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(sent)
