"""What single strategies take on the line; each option is refused with all others."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
from collections.abc import Mapping
from typing import Any

from jupyter_ddl.errors import OptionError
from jupyter_ddl.grammar import Argument, argument, count, one_of
from jupyter_ddl.protocol.group import StrategyOption, n_servers
from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.mesh import (
    PIPELINE_AXES,
    SHARDED_AXES,
    check_mesh,
    parse_mesh,
)
from jupyter_ddl.ranks.strategies.pipeline.schedules import (
    DEFAULT_SCHEDULE,
    SCHEDULES,
    check_microbatches,
)

__all__ = ["ARGUMENTS", "OPTIONS", "check_ranks", "chosen_options", "with_plan"]

_PLAN_KINDS = ("colwise", "rowwise")


def _positive(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (number := float(text)) < math.inf:
            return number
    raise argparse.ArgumentTypeError(f"{text!r}; expected a number above 0")


def _share(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (number := float(text)) < 1:
            return number
    raise argparse.ArgumentTypeError(f"{text!r}; expected a number from 0 to below 1")


def _staleness(text: str) -> int:
    try:
        return count(1)(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(
            f"{error} (no gradient is ever late with --strategy ps-sync)"
        ) from None


_COMPRESS = argument(
    "--compress",
    type=one_of("fp16", "bf16", "powersgd"),
    help="with ddp, ps-sync, ps-async (not powersgd): how gradients are sent; default: as they are",
)
_TUNE_BUCKETS = argument(
    "--tune-buckets",
    action="store_true",
    help="with --strategy ddp and prepare_step: choose how many bytes of gradients are sent at "
    "once by the times of the first steps",
)

_SYNC_EVERY = argument(
    "--sync-every",
    type=count(1),
    metavar="H",
    help="with local-sgd (default: 8) and diloco (50): steps between two meetings of the ranks",
)
_OUTER_LR = argument(
    "--outer-lr",
    type=_positive,
    metavar="X",
    help="with diloco: learning rate from one meeting to the next; default: 0.7",
)
_OUTER_MOMENTUM = argument(
    "--outer-momentum",
    type=_share,
    metavar="X",
    help="with diloco: Nesterov's momentum from one meeting to the next; default: 0.9; try "
    "0.5 with few meetings",
)
_SCHEDULE = argument(
    "--schedule",
    type=one_of(*SCHEDULES),
    help="with --strategy pipeline: the order in which stages compute; default: 1f1b",
)
_MICROBATCHES = argument(
    "--microbatches",
    type=count(1),
    metavar="M",
    help="with --strategy pipeline: parts of a batch; default: 1 to 8 for each rank, by what "
    "forward passes take and what fits into the memory",
)
_SPLIT = argument(
    "--split",
    metavar="NAME,…",
    help="with --strategy pipeline: where stages begin; default: where the slowest is fastest",
)

_MESH = argument(
    "--mesh",
    metavar="AXIS=N,…",
    help="ranks as a grid: with --strategy fsdp of dp, dp_replicate, dp_shard and tp, e.g. "
    "dp=2,tp=2; with --strategy pipeline dp=2,pp=2, pipelines of copies side by side",
)
_TP_PLAN = argument(
    "--tp-plan",
    metavar="NAME",
    help="with --mesh tp=N: a dict of the notebook, names of layers (with *) to colwise or rowwise",
)

_SERVERS = argument(
    "--servers",
    type=count(1),
    metavar="S",
    help="with ps-sync and ps-async: how many of the ranks keep the parameters; default: 1",
)
_MAX_STALENESS = argument(
    "--max-staleness",
    type=_staleness,
    metavar="K",
    help="with ps-async: drop gradients that are more than K updates late; default: none",
)

OPTIONS: dict[str, tuple[Argument, ...]] = {
    "ddp": (_COMPRESS, _TUNE_BUCKETS),
    "fsdp": (_MESH, _TP_PLAN),
    "local-sgd": (_SYNC_EVERY,),
    "diloco": (_SYNC_EVERY, _OUTER_LR, _OUTER_MOMENTUM),
    "ps-sync": (_SERVERS, _COMPRESS),
    "ps-async": (_SERVERS, _MAX_STALENESS, _COMPRESS),
    "pipeline": (_SCHEDULE, _MICROBATCHES, _SPLIT, _MESH),
}
"""By strategy, and by name to its ``__init__``.  What the line leaves out is in no record."""

_BY_NAME = {each.dest: each for options in OPTIONS.values() for each in options}

ARGUMENTS = tuple(_BY_NAME.values())


def check_ranks(strategy: str, n_ranks: int) -> None:
    """Refuse a number of ranks that a strategy can't have.

    Raises
    ------
    OptionError
        One line that says which it can.
    """
    if strategy == "dp" and n_ranks != 1:
        raise OptionError(
            f"%%distribute ddp: --strategy dp is nn.DataParallel, which is one process, and -n is "
            f"{n_ranks}; use -n 1 (and --gpus-per-rank), or --strategy ddp"
        )


def chosen_options(strategy: str, values: Mapping[str, Any]) -> dict[str, StrategyOption]:
    """The options of a strategy that are set among values by name.

    Raises
    ------
    OptionError
        One is set that belongs to another strategy, or has a wrong value (from Python).
    """
    found: dict[str, StrategyOption] = {}
    own = {each.dest for each in OPTIONS.get(strategy, ())}
    for name, option in _BY_NAME.items():
        value = values.get(name)
        if value is None or (value is False and not option.takes_value):
            continue
        flag = option.flags[-1]
        if name not in own:
            owners = " or ".join(
                f"--strategy {each}" for each, options in OPTIONS.items() if option in options
            )
            raise OptionError(
                f"%%distribute ddp: {flag} belongs to {owners}, and --strategy is {strategy}; "
                f"leave it out, or choose that strategy"
            )
        if not option.takes_value:
            if value is not True:
                raise OptionError(f"%%distribute ddp: {flag}: {value!r}; expected True or False")
            found[name] = True
            continue
        try:
            found[name] = option.settings.get("type", str)(str(value))
        except argparse.ArgumentTypeError as error:
            raise OptionError(f"%%distribute ddp: {flag}: {error}") from None
    _check_buckets(found)
    sizes = _check_mesh(strategy, found, values)
    _check_pipeline(found, sizes.get("pp", values["n_ranks"]))
    _check_servers(strategy, found, values)
    return found


def with_plan(
    options: Mapping[str, StrategyOption], namespace: Mapping[str, Any]
) -> dict[str, StrategyOption]:
    """Put what a notebook's dict says in the place of its name, as JSON: ranks have no notebook.

    Raises
    ------
    OptionError
        There is none of that name, or it says something else.
    """
    name = options.get("tp_plan")
    if name is None:
        return dict(options)
    plan = namespace.get(str(name))
    is_plan = (
        isinstance(plan, dict)
        and plan
        and all(isinstance(each, str) for each in plan)
        and all(kind in _PLAN_KINDS for kind in plan.values())
    )
    if not is_plan:
        known = "is not defined" if str(name) not in namespace else f"is {repr(plan)[:80]}"
        raise OptionError(
            f"%%distribute ddp: --tp-plan {name}: {name} {known}; expected a dict of the notebook "
            f"such as {{'layers.*.up': 'colwise', 'layers.*.down': 'rowwise'}}"
        )
    return {**options, "tp_plan": json.dumps(plan)}


def _check_buckets(found: Mapping[str, StrategyOption]) -> None:
    if "tune_buckets" in found and found.get("compress") == "powersgd":
        raise OptionError(
            "%%distribute ddp: --compress powersgd keeps what it has left out by bucket, and "
            "--tune-buckets changes the buckets; leave one of them out"
        )


def _check_mesh(
    strategy: str, found: Mapping[str, StrategyOption], values: Mapping[str, Any]
) -> dict[str, int]:
    """Refuse a grid that these ranks, or this strategy, can't have; returns its sizes by axis."""
    mesh, n_ranks, n_fewest = found.get("mesh"), values["n_ranks"], values.get("min_ranks")
    axes = PIPELINE_AXES if strategy == "pipeline" else SHARDED_AXES
    sizes = parse_mesh(str(mesh), axes) if mesh is not None else {}
    if sizes:
        check_mesh(sizes, n_ranks)
    if sizes and n_fewest is not None and n_fewest < n_ranks:
        raise OptionError(
            f"%%distribute ddp: --mesh {mesh} is for {n_ranks} ranks, and --min-ranks {n_fewest} "
            f"would go on with fewer; leave one of them out"
        )
    if ("tp_plan" in found) != ("tp" in sizes):
        raise OptionError(
            "%%distribute ddp: --tp-plan NAME and a --mesh with tp=N belong together: the "
            "plan says which layers are cut over tp, and nothing can guess it"
        )
    return sizes


def _check_servers(
    strategy: str, found: Mapping[str, StrategyOption], values: Mapping[str, Any]
) -> None:
    n_kept = n_servers(strategy, found)
    if not n_kept:
        return
    n_ranks, n_fewest = values["n_ranks"], values.get("min_ranks")
    if n_kept >= n_ranks:
        raise OptionError(
            f"%%distribute ddp: --strategy {strategy} keeps the parameters on {n_kept} of -n "
            f"{n_ranks} ranks (--servers), which leaves none to train; -n counts both: use at "
            f"least -n {n_kept + 1}"
        )
    if n_fewest is not None and n_kept >= n_fewest:
        raise OptionError(
            f"%%distribute ddp: --min-ranks {n_fewest} would leave no rank to train beside the "
            f"{n_kept} of --servers; use at least --min-ranks {n_kept + 1}"
        )
    if found.get("compress") == "powersgd":
        raise OptionError(
            f"%%distribute ddp: --compress powersgd needs gradients that all ranks average, and "
            f"--strategy {strategy} has servers; use --compress fp16 or bf16"
        )


def _check_pipeline(found: Mapping[str, StrategyOption], n_ranks: int) -> None:
    """Refuse here what a rank would refuse after its start."""
    n_microbatches = found.get("microbatches")
    if not isinstance(n_microbatches, int):
        return
    few = "gpipe" if n_microbatches < n_ranks else DEFAULT_SCHEDULE
    try:
        check_microbatches(n_microbatches, str(found.get("schedule", few)), n_ranks)
    except ReportError as error:
        raise OptionError(f"%%distribute ddp: {error.message}") from None
