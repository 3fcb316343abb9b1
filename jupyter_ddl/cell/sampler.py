"""Which sampler a search uses, and how many trials it makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_ddl.cell.modules import is_installed
from jupyter_ddl.cell.options import SearchOptions
from jupyter_ddl.cell.space import CellSpace, check_grid, is_finite
from jupyter_ddl.errors import CellError
from jupyter_ddl.plugins import SAMPLERS
from jupyter_ddl.protocol.sampling import SamplerSpec

__all__ = ["DEFAULT_TRIALS", "check_installed", "choose_sampler", "count_trials", "sampler_module"]

DEFAULT_TRIALS = 20


def choose_sampler(
    options: SearchOptions, space: CellSpace, namespace: Mapping[str, Any]
) -> SamplerSpec:
    """The sampler that was asked for, or the one that fits.

    A search whose parameters all come from ``--grid``, without ``--trials``, is a grid; any
    other is random.

    Raises
    ------
    OptionError
        For a name that is no sampler, with the nearest one.
    CellError
        For ``module:Class`` whose module is not installed.
    """
    name = options.sampler
    if name is None:
        whole_grid = space.grid_only and options.trials is None and is_finite(space.space)
        return SamplerSpec(name="grid" if whole_grid else "random")
    if name in SAMPLERS.built_in:
        return SamplerSpec(name=name)
    if name in namespace:
        return SamplerSpec(name=name, in_notebook=True)
    module, colon, kind = name.partition(":")
    dotted = all(part.isidentifier() for part in (*module.split("."), kind))
    if not colon or not dotted:
        variables = [key for key in namespace if not key.startswith("_")]
        SAMPLERS.check(name, also=("module:Class", "a notebook variable"), near=variables)
        # A package's: its code is a user's, and so it runs where that of cells does.
        return SamplerSpec(name=SAMPLERS.target(name))
    return SamplerSpec(name=name)


def sampler_module(sampler: SamplerSpec) -> str | None:
    """Module of a sampler given as ``module:Class``."""
    module, colon, _ = sampler.name.partition(":")
    return module if colon else None


def check_installed(sampler: SamplerSpec, local_tops: frozenset[str]) -> None:
    """Refuse ``module:Class`` whose package is neither installed nor beside the notebook."""
    module = sampler_module(sampler)
    if module is None:
        return
    top = module.partition(".")[0]
    if top not in local_tops and not is_installed(top):
        raise CellError(
            f"--sampler {sampler.name}: module {top!r} is not installed here and no {top}.py lies "
            f"beside the notebook",
            module=top,
        )


def count_trials(options: SearchOptions, sampler: SamplerSpec, space: CellSpace) -> int:
    """Number of trials: ``--trials``, or all points of a grid, or 20.

    Raises
    ------
    SpaceError
        For a grid that is continuous or too large.
    """
    if sampler.name != "grid":
        return options.trials or DEFAULT_TRIALS
    n_points = check_grid(space.space)
    return min(options.trials, n_points) if options.trials else n_points
