"""``--mesh dp=2,tp=2``: the ranks of a group as a grid whose axes have names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from jupyter_ddl.errors import OptionError
from jupyter_ddl.nearest import did_you_mean

__all__ = ["AXES", "PIPELINE_AXES", "SHARDED_AXES", "check_mesh", "parse_mesh"]

AXES = ("pp", "dp", "dp_replicate", "dp_shard", "tp")
"""From the outermost, whose ranks exchange least, to the innermost.

Named as in accelerate's ``ParallelismConfig``.  Under ``fsdp`` ``dp`` shards, as ``dp_shard`` does;
beside ``pp`` it has whole copies.
"""
SHARDED_AXES = ("dp", "dp_replicate", "dp_shard", "tp")
"""Those of ``--strategy fsdp``."""
PIPELINE_AXES = ("pp", "dp")
"""Those of ``--strategy pipeline``."""


def parse_mesh(text: str, axes: Sequence[str] = SHARDED_AXES) -> dict[str, int]:
    """Read ``dp=2,tp=2``; the axes come back in the order in which ranks are laid out.

    Parameters
    ----------
    axes : sequence of str
        Those of the strategy.

    Raises
    ------
    OptionError
        It is not of that form, or an axis is unknown, named twice, of another strategy, or
        contradicts another one.
    """
    sizes: dict[str, int] = {}
    for item in text.split(","):
        name, _, size = (part.strip() for part in item.partition("="))
        if name not in AXES:
            raise OptionError(
                f"--mesh {text}: {name!r} is no axis; expected some of {', '.join(AXES)}, each as "
                f"NAME=SIZE{did_you_mean(name, AXES)}"
            )
        if not (size.isascii() and size.isdigit()) or int(size) < 1:
            raise OptionError(
                f"--mesh {text}: {item.strip()!r} gives no size; expected a whole number of at "
                f"least 1, e.g. {name}=2"
            )
        if name in sizes:
            raise OptionError(f"--mesh {text}: {name!r} is named twice; expected each axis once")
        sizes[name] = int(size)
    _check_strategy(text, sizes, axes)
    if "dp" in sizes and ("dp_shard" in sizes or "dp_replicate" in sizes):
        raise OptionError(
            f"--mesh {text}: dp is dp_shard; expected dp alone, or dp_replicate with dp_shard"
        )
    if "dp_replicate" in sizes and "dp_shard" not in sizes:
        raise OptionError(
            f"--mesh {text}: dp_replicate alone cuts no parameters over ranks; expected "
            f"dp_replicate with dp_shard, or --strategy ddp for whole copies"
        )
    return {name: sizes[name] for name in AXES if name in sizes}


def _check_strategy(text: str, sizes: Mapping[str, int], axes: Sequence[str]) -> None:
    others = [name for name in sizes if name not in axes]
    if others and "pp" in axes:
        raise OptionError(
            f"--mesh {text}: {others[0]} is of --strategy fsdp; with --strategy pipeline expected "
            f"dp and pp, as in dp=2,pp=2"
        )
    if others:
        raise OptionError(
            f"--mesh {text}: {others[0]} is of --strategy pipeline, as in dp=2,pp=2; with "
            f"--strategy fsdp expected some of {', '.join(axes)}"
        )
    if "pp" in axes and "pp" not in sizes:
        raise OptionError(
            f"--mesh {text} has no stages; with --strategy pipeline expected dp and pp, as in "
            f"dp=2,pp=2, or --strategy ddp for whole copies"
        )


def check_mesh(sizes: Mapping[str, int], n_ranks: int) -> None:
    """Refuse a mesh that does not multiply to the ranks.

    Raises
    ------
    OptionError
        The message has the meshes of the same axes that these ranks can form.
    """
    asked = _text(sizes)
    product = math.prod(sizes.values())
    if product == n_ranks:
        return
    possible = [_text(dict(zip(sizes, each, strict=True))) for each in _products(n_ranks, sizes)]
    shown = " or ".join(possible[:6]) if possible else f"fewer axes for {n_ranks} ranks"
    raise OptionError(
        f"--mesh {asked} is a grid of {product} ranks, and the group has {n_ranks}; "
        f"expected {shown}, or -n {product}"
    )


def _products(n_ranks: int, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    """Sizes above 1 that multiply to the ranks, for as many axes."""

    def some(left: int, n_axes: int) -> list[tuple[int, ...]]:
        if n_axes == 1:
            return [(left,)] if left > 1 else []
        return [
            (first, *rest)
            for first in range(2, left)
            if left % first == 0
            for rest in some(left // first, n_axes - 1)
        ]

    return some(n_ranks, len(sizes))


def _text(sizes: Mapping[str, int]) -> str:
    return ",".join(f"{name}={size}" for name, size in sizes.items())
