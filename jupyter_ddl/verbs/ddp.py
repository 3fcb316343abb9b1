"""``ddp``: one rank group that trains data-parallel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import msgspec

from jupyter_ddl.cell.draft import CellContext, RunDraft, draft_run
from jupyter_ddl.cell.names import read_names
from jupyter_ddl.cell.options import ADMISSION, COMMON, PROFILE, CellOptions
from jupyter_ddl.cell.program import CellParts
from jupyter_ddl.cell.source import read_source
from jupyter_ddl.errors import OptionError
from jupyter_ddl.formats import format_counted, format_duration
from jupyter_ddl.grammar import Argument, Group, argument, count, duration_s, one_of
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.plugins import STRATEGIES
from jupyter_ddl.protocol.group import CollectiveBackend, StrategyOption, may_go_on
from jupyter_ddl.protocol.verb import Capabilities, RankNeeds
from jupyter_ddl.verbs.base import Line, Verb
from jupyter_ddl.verbs.strategy_options import ARGUMENTS, check_ranks, chosen_options, with_plan

__all__ = ["BACKENDS", "Ddp", "gpus_option"]

BACKENDS = ("auto", "gloo", "nccl")
_STRATEGY = "ddp"


class Ddp(Verb, frozen=True, tag="ddp"):
    """One rank group that trains data-parallel: trial 0, whose attempts are the group's rounds."""

    purpose: ClassVar[str] = (
        "Train data-parallel: the cell runs on N ranks that share a process group."
    )
    arguments: ClassVar[tuple[Argument | Group, ...]] = (
        argument(
            "-n", "--ranks", dest="n_ranks", type=count(1), metavar="N", help="number of ranks"
        ),
        argument(
            "--backend",
            type=one_of(*BACKENDS),
            default="auto",
            help="of torch.distributed; default: nccl with GPUs, else gloo",
        ),
        argument(
            "--gpus-per-rank",
            type=count(0),
            metavar="N",
            help="default: 1 if the workers have enough, else 0",
        ),
        argument(
            "--min-ranks", type=count(1), metavar="M", help="fewest ranks to go on with; default: N"
        ),
        argument("--max-restarts", type=count(0), default=3, metavar="K", help="default: 3"),
        ADMISSION,
        argument(
            "--hang-timeout",
            dest="hang_timeout_s",
            type=duration_s,
            metavar="5m",
            help="time without a step that counts as a hang; default: 60 s or 10 median steps",
        ),
        argument(
            "--strategy",
            default=_STRATEGY,
            metavar="NAME",
            help="how the ranks train together: ddp (default), fsdp, pipeline, dp, local-sgd, "
            "diloco, ps-sync, ps-async, or one of a package",
            offers=STRATEGIES.names,
        ),
        *ARGUMENTS,
        argument(
            "--no-init",
            dest="initialize",
            action="store_false",
            help="the cell calls init_process_group itself",
        ),
        *COMMON,
        PROFILE,
    )
    can: ClassVar[Capabilities] = Capabilities(
        has_ranks=True, stops=("epoch", "next_report", "now"), brings="ranks"
    )

    n_ranks: int
    min_ranks: int | None = None
    """With fewer slots than ``n_ranks`` the group goes on with those, down to this number."""
    backend: CollectiveBackend = "auto"
    gpus_per_rank: int | None = None
    """None: one each, where the workers have as many; the record of a run has the number."""
    hang_timeout_s: float | None = None
    """No step for so long is a hang; None: max(60 s, 10 × the median step)."""
    resize_after_s: float = 5.0
    """With ``min_ranks``: how long to wait for slots before going on with fewer, or more, ranks."""
    strategy: str = _STRATEGY
    strategy_options: dict[str, StrategyOption] | msgspec.UnsetType = msgspec.UNSET
    """What the line has set of the strategy's own options, by name."""
    initialize: bool = True
    max_restarts: int = 3

    @classmethod
    def chosen(cls, values: Mapping[str, Any]) -> Line[Self]:
        if values.get("n_ranks") is None:
            raise OptionError("%%distribute ddp needs -n N, the number of ranks; e.g. ddp -n 2")
        cls._check(values)
        own = {each.dest for each in ARGUMENTS}
        line = super().chosen({name: each for name, each in values.items() if name not in own})
        found = chosen_options(values.get("strategy", _STRATEGY), values)
        if not found:
            return line
        return Line(msgspec.structs.replace(line.verb, strategy_options=found), line.options)

    @staticmethod
    def _check(values: Mapping[str, Any]) -> None:
        """Refuse what contradicts itself, also from Python callers."""
        for flag, name, low in (
            ("-n", "n_ranks", 1),
            ("--min-ranks", "min_ranks", 1),
            ("--gpus-per-rank", "gpus_per_rank", 0),
            ("--max-restarts", "max_restarts", 0),
        ):
            number = values.get(name)
            is_whole = isinstance(number, int) and not isinstance(number, bool)
            if number is not None and (not is_whole or number < low):
                raise OptionError(
                    f"%%distribute ddp: {flag}: {number!r}; expected a whole number of at least "
                    f"{low}"
                )
        n_ranks, min_ranks = values["n_ranks"], values.get("min_ranks")
        if min_ranks is not None and min_ranks > n_ranks:
            raise OptionError(
                f"%%distribute ddp: --min-ranks {min_ranks} is more than -n {n_ranks}; "
                f"expected at most {n_ranks}"
            )
        _check_choice("--backend", values.get("backend", "auto"), BACKENDS)
        strategy = STRATEGIES.check(values.get("strategy", _STRATEGY))
        check_ranks(strategy, n_ranks)

    def compile(
        self, cell: str, namespace: Mapping[str, Any], context: CellContext, options: CellOptions
    ) -> RunDraft:
        """A training from a cell as it is: hyper-parameters take their default values.

        Raises
        ------
        CellError, CaptureError
            As for a search; nothing needs to be declared or reported.
        """
        source = read_source(cell, context.cell_number, namespace)
        parts = CellParts.of(options, source, read_names(source.tree), namespace, context)
        captured, modules = parts.gather(known=(), injected=(), also=())
        tunes = "tune_buckets" in (self.strategy_options or {})
        if tunes and not parts.calls("prepare_step", captured, modules):
            raise OptionError(
                "%%distribute ddp: --tune-buckets measures steps of prepare_step(…), which the "
                "cell never calls; write step = prepare_step(model, loss_fn, optimizer), or "
                "leave it out"
            )
        verb = self
        if self.backend == "nccl" and self.gpus_per_rank is None:
            verb = msgspec.structs.replace(self, gpus_per_rank=1)
        if self.strategy_options:
            given = with_plan(self.strategy_options, namespace)
            verb = msgspec.structs.replace(verb, strategy_options=given)
        notes = []
        least = self.n_ranks if may_go_on(self.strategy) else self.min_ranks or self.n_ranks
        if least < self.n_ranks and not parts.calls("checkpoint", captured, modules):
            notes = ["the cell never calls checkpoint(…): with fewer ranks it begins at its start"]
        program, blobs, told = parts.program(captured, modules)
        # A group that restarts k times may fail k + 1 times.
        return draft_run(
            verb, options, program, blobs, max_failures=self.max_restarts + 1, notes=(*told, *notes)
        )

    def describe(self) -> Iterator[str]:
        least = self.min_ranks or self.n_ranks
        fewer = f", at least {least}" if least < self.n_ranks else ""
        gpus = self.gpus_per_rank
        each = "1 if the workers have as many" if gpus is None else str(gpus or "none")
        yield f"Ranks: {self.n_ranks}{fewer}; GPUs per rank: {each}"
        init = f"{'' if self.initialize else 'not '}initialised for the cell"
        yield f"Process group: {self.backend} backend, {init}; prepare() uses {self._strategy_text}"
        hang = self.hang_timeout_s
        waits = "60 s or 10 median steps" if hang is None else format_duration(hang)
        yield f"Restarts: at most {self.max_restarts}; a hang is {waits} without a step"

    # -- what everybody asks -------------------------------------------------------------------

    @property
    def ranks(self) -> RankNeeds:
        return RankNeeds(
            n_ranks=self.n_ranks,
            n_fewest=self.min_ranks or self.n_ranks,
            gpus_per_rank=self.gpus_per_rank or 0,
            gpus_undecided=self.gpus_per_rank is None,
            is_group=True,
            backend=self.backend,
            initialize=self.initialize,
            strategy=self.strategy,
            strategy_options=self.strategy_options or {},
            hang_timeout_s=self.hang_timeout_s,
            resize_after_s=self.resize_after_s,
            gpus_option=gpus_option(self.backend, self.gpus_per_rank or 0),
        )

    @property
    def imports(self) -> tuple[str, ...]:
        return ("torch",)  # the group is made with it, whatever the cell imports

    def admitted(self, *, n_slots: int, gpus_per_rank: int) -> Ddp:
        if self.gpus_per_rank is not None:
            return self
        return msgspec.structs.replace(self, gpus_per_rank=gpus_per_rank)

    @property
    def _strategy_text(self) -> str:
        """The strategy and what was set of its options, as on the line."""
        chosen = self.strategy_options or {}
        words = (
            f"--{name.replace('_', '-')}{'' if value is True else f' {value}'}"
            for name, value in chosen.items()
        )
        return " ".join((self.strategy, *words))

    @property
    def group_text(self) -> str:
        least = f", at least {self.min_ranks}" if self.min_ranks else ""
        gpus = f", {self.gpus_per_rank} GPUs each" if self.gpus_per_rank else ""
        return (
            f"{self.n_ranks}{least}{gpus}; {self._strategy_text} over {self.backend}, "
            f"at most {format_counted(self.max_restarts, 'restart')}"
        )


def gpus_option(backend: CollectiveBackend, gpus_per_rank: int) -> str:
    """What on the line of a rank group asks for GPUs."""
    if backend != "nccl":
        return f"--gpus-per-rank {gpus_per_rank}"
    return "--backend nccl" + ("" if gpus_per_rank == 1 else f" --gpus-per-rank {gpus_per_rank}")


def _check_choice(flag: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise OptionError(
            f"%%distribute ddp: {flag}: {value!r} is not a choice; expected {', '.join(allowed)}"
            f"{did_you_mean(value, allowed)}"
        )
