"""A verb as it crosses process boundaries: what it is, can do, and what people call its parts.

Controllers, ledgers, views and clients ask a run's verb and know none by name.  What only the
process with the cell asks (options, and how a cell becomes a program) stands in ``verbs``, where
each verb is one module; ``plugins.VERBS`` finds them, also those of other packages.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import msgspec

from jupyter_ddl.errors import PluginError
from jupyter_ddl.plugins import VERBS
from jupyter_ddl.protocol.group import CollectiveBackend, StrategyOption
from jupyter_ddl.protocol.reading import converted
from jupyter_ddl.protocol.sampling import Objective, StudySpec

__all__ = [
    "Capabilities",
    "Driver",
    "Items",
    "Nouns",
    "RankNeeds",
    "StopHow",
    "VerbSpec",
    "load_verb",
    "read_verb",
]

StopHow: TypeAlias = Literal["next_report", "now", "epoch", "keep_best"]
"""``epoch`` stops a trial at its next report and counts it, ``keep_best`` cancels what runs at its
next report and brings the best trial's values."""

Driver: TypeAlias = Literal["trials", "fits", "cells"]
"""Who drives a run: ``trials`` are sent to ranks as the run proposes them, ``fits`` are fed by a
kernel that runs the cell, ``cells`` are given to ranks that stay."""


class Capabilities(msgspec.Struct, frozen=True):
    """What a verb's runs consist of and what can be done with them: all that views go by."""

    has_trials: bool = False
    """It consists of trials that are listed, counted and rated."""
    has_ranks: bool = False
    """It is one rank group, told by ranks, rounds, restarts and series."""
    has_cells: bool = False
    """It is a persistent group that executes cells."""
    has_items: bool = False
    """Its trials are the elements of a sequence."""
    has_objective: bool = False
    """Its trials are judged by a metric."""
    can_resume: bool = True
    """It can go on after it was stopped."""
    stops: tuple[StopHow, ...] = ("next_report", "now")
    """How views may stop it, in the order of their buttons."""
    brings: Literal["best", "items", "ranks", ""] = ""
    """Whose variables come back."""


class Nouns(msgspec.Struct, frozen=True):
    """What people call the parts of a verb's runs."""

    trial: str = "trial"
    trials: str = "trials"
    step: str = "step"
    """Heading of how far a trial is."""
    total: str = ""
    """Metric of a trial that says how many steps there are; empty: none does."""


class Items(NamedTuple):
    """Trial n sees element n of a captured sequence."""

    over: str
    """Captured name of the sequence."""
    element: str
    """Name that the cell sees the element under, or several, divided by commas."""

    @property
    def is_unpacked(self) -> bool:
        return "," in self.element

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.element.split(",") if name.strip())

    def bound(self, value: Any) -> dict[str, Any]:
        """What the cell sees of an element."""
        if not self.is_unpacked:
            return {self.element: value}
        return dict(zip(self.names, value, strict=True))


class RankNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """The places that each of a run's groups of ranks takes, and how its ranks come together."""

    n_ranks: int = 1
    n_fewest: int = 1
    """The smallest number that a group can begin with."""
    gpus_per_rank: int = 0
    """Whole GPUs."""
    gpus_undecided: bool = False
    """How many GPUs a rank gets is decided by what the workers have."""
    is_group: bool = False
    """Its ranks are started together and meet, even a single one."""
    backend: CollectiveBackend = "auto"
    initialize: bool = True
    strategy: str = "ddp"
    strategy_options: dict[str, StrategyOption] = {}
    hang_timeout_s: float | None = None
    resize_after_s: float = 0.0
    ranks_option: str = "-n"
    """What on the line asks for ranks."""
    gpus_option: str = "--gpus-per-rank"
    """What on the line asks for GPUs, with its value."""


class VerbSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is to do.  Every verb is a subclass whose tag is its word."""

    can: ClassVar[Capabilities]
    nouns: ClassVar[Nouns] = Nouns()
    driver: ClassVar[Driver] = "trials"
    needs_all: ClassVar[bool] = True
    """One trial that failed for good fails the run; otherwise one that succeeded is enough."""

    max_parallel: int | None = None
    """Trials in flight at once; None: the number of slots when the run starts."""

    @property
    def word(self) -> str:
        """What stands behind ``%%distribute``: to be shown, and compared with nothing."""
        return str(self.__struct_config__.tag)

    @property
    def is_fed(self) -> bool:
        """Whether a kernel feeds its runs, and wants the outcomes again when one goes on."""
        return self.driver == "fits"

    @property
    def n_trials(self) -> int | None:
        """Number of trials that the run consists of; None: as many as it is fed."""
        return 1

    @property
    def objective(self) -> Objective | None:
        """By what its trials are judged."""
        return None

    @property
    def study(self) -> StudySpec | None:
        """What proposes the parameters of its trials."""
        return None

    @property
    def items(self) -> Items | None:
        """The sequence whose elements its trials see."""
        return None

    @property
    def ranks(self) -> RankNeeds:
        """The places that each trial takes."""
        return RankNeeds()

    @property
    def imports(self) -> tuple[str, ...]:
        """Modules that its ranks need whatever the cell imports."""
        return ()

    def admitted(self, *, n_slots: int, gpus_per_rank: int) -> VerbSpec:
        """The verb with what is fixed once, at submission, so that the record has it.

        Parameters
        ----------
        n_slots : int
            Of the cluster, at least 1.
        gpus_per_rank : int
            What a rank gets where that was left open.
        """
        return self

    @property
    def group_text(self) -> str:
        """Its ranks and what may happen to them, for people; empty where there is one."""
        return ""

    def describe(self) -> Iterator[str]:
        """What ``--dry-run`` tells of it, line by line."""
        yield from ()


@functools.cache
def load_verb(word: str) -> type[VerbSpec]:
    """The class of a verb.

    Raises
    ------
    OptionError, PluginError
        No package that is installed here has it, or what it offers is not a verb.
    """
    found: type[VerbSpec] = VERBS.load(word)
    if found.__struct_config__.tag != word:
        raise PluginError(
            f"verb {word!r} ({VERBS.target(word)}) has the tag "
            f"{found.__struct_config__.tag!r}; declare it with tag={word!r}"
        )
    return found


def read_verb(fields: dict[str, Any]) -> VerbSpec:
    """A verb from its fields as they travel.

    Raises
    ------
    OptionError, PluginError
        No package that is installed here has such a verb.
    msgspec.ValidationError
        Fields that it does not have like this.
    """
    return converted(fields, load_verb(str(fields.get("type"))))
