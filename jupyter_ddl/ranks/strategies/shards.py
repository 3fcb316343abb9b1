"""The parameters that an optimizer trains, shared out over servers; its state as messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

__all__ = [
    "described",
    "group_options",
    "owners_of",
    "put_options",
    "put_state",
    "state_of",
    "trained",
]

_NO_OPTIONS = ("params", "param_names")


def owners_of(sizes: Sequence[int], n_servers: int) -> list[int]:
    """By which server each parameter is kept: the largest first, each by the one with least.

    Parameters
    ----------
    sizes : sequence of int
        Of the parameters, in bytes.
    """
    loads = [0] * n_servers
    found = [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda n: -sizes[n]):
        server = loads.index(min(loads))
        found[number] = server
        loads[server] += sizes[number]
    return found


def trained(optimizer: Any) -> list[Any]:
    """An optimizer's parameters, numbered as in its plain state."""
    return [each for group in optimizer.param_groups for each in group["params"]]


def group_options(optimizer: Any) -> list[dict[str, Any]]:
    """Learning rates and all else that stands in the parameter groups, as plain data."""
    return [
        {
            name: value.item() if isinstance(value, torch.Tensor) else value
            for name, value in group.items()
            if name not in _NO_OPTIONS
        }
        for group in optimizer.param_groups
    ]


def put_options(optimizer: Any, options: Sequence[Mapping[str, Any]]) -> None:
    """Take over what another rank's :func:`group_options` says."""
    for group, given in zip(optimizer.param_groups, options, strict=True):
        for name, value in given.items():
            group[name] = tuple(value) if isinstance(value, list) else value


def state_of(optimizer: Any, numbers: Sequence[int]) -> tuple[dict[str, Any], list[Any]]:
    """An optimizer's state of some parameters: plain data, in which tensors are numbers, and these.

    The state of a parameter is ``{name: [value]}``, or ``{name: n}`` for the tensor ``n``.
    """
    parameters = trained(optimizer)
    states = {number: optimizer.state.get(parameters[number], {}) for number in numbers}
    return described(states, numbers)


def described(
    states: Mapping[int, Mapping[str, Any]], numbers: Sequence[int]
) -> tuple[dict[str, Any], list[Any]]:
    """As :func:`state_of`, of states by the numbers of their parameters."""
    tensors: list[Any] = []
    found: dict[str, Any] = {}
    for number in numbers:
        held: dict[str, Any] = {}
        for name, value in states.get(number, {}).items():
            if isinstance(value, torch.Tensor):
                held[name] = len(tensors)
                tensors.append(value.detach().clone())
            else:
                held[name] = [value]
        if held:
            found[str(number)] = held
    return found, tensors


def put_state(
    described: Mapping[str, Mapping[str, Any]], tensors: Sequence[Any]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The states of parameters, by number, that :func:`state_of` has described."""
    for number, held in described.items():
        yield (
            int(number),
            {
                name: value[0] if isinstance(value, list) else tensors[value]
                for name, value in held.items()
            },
        )
