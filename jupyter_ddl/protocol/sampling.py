"""What a sampler sees, the four hooks of a user's own sampler, and the messages to its process.

User code never runs in the controller, so a sampler from the notebook (or from a module that is
not Optuna's) lives in a rank process: the driver sends the requests below, the process answers.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from jupyter_ddl.protocol.assignment import Assignment
from jupyter_ddl.protocol.space import Distribution, ParamValue

__all__ = [
    "Ask",
    "Asked",
    "Finish",
    "History",
    "Mode",
    "Objective",
    "PrunerSpec",
    "Sampler",
    "SamplerAnswers",
    "SamplerCall",
    "SamplerFailed",
    "SamplerReply",
    "SamplerRequest",
    "SamplerSpec",
    "SamplerStart",
    "ShouldStop",
    "StopDecision",
    "StudySpec",
    "Tell",
    "Told",
    "TrialEnd",
    "TrialRecord",
]

Mode: TypeAlias = Literal["max", "min"]


class SamplerSpec(msgspec.Struct, frozen=True):
    """Which sampler proposes parameters.

    ``name`` is one of ours (``grid``, ``random``, ``tpe``, ``cmaes``, ``gp``, ``qmc``, ``de``), or
    ``module:Class``, or the name of a captured notebook variable when ``in_notebook``.
    """

    name: str = "random"
    options: dict[str, bool | int | float | str | None] = {}
    in_notebook: bool = False


class PrunerSpec(msgspec.Struct, frozen=True):
    """Which pruner stops trials early (``none``, ``median``, ``asha``, ``hyperband``)."""

    name: str = "none"
    options: dict[str, bool | int | float | str | None] = {}


class Objective(Protocol):
    """By what trials are judged."""

    @property
    def metric(self) -> str: ...

    @property
    def mode(self) -> Mode: ...


class StudySpec(Objective, Protocol):
    """What a study is made of: any verb that proposes parameters has these."""

    @property
    def n_trials(self) -> int: ...

    @property
    def space(self) -> dict[str, Distribution]: ...

    @property
    def sampler(self) -> SamplerSpec: ...

    @property
    def pruner(self) -> PrunerSpec: ...

    @property
    def window(self) -> int | None: ...


TrialEnd: TypeAlias = Literal["complete", "pruned", "failed", "cancelled"]
"""The states that end a trial."""


class TrialRecord(msgspec.Struct, frozen=True):
    """One trial as samplers see it."""

    number: int
    params: dict[str, ParamValue]
    state: TrialEnd | Literal["running"] = "running"
    value: float | None = None
    """The objective; for a pruned trial its last reported value."""
    step: int | None = None
    """The last step that was reported."""
    reports: tuple[tuple[int, float], ...] = ()
    """(step, value) of the metric, where the sender has them (always in ``should_stop``)."""


class History(msgspec.Struct, frozen=True):
    """What a user's own sampler may base its next proposal on."""

    metric: str
    mode: Mode
    n_trials: int
    """How many trials the study will have at most."""
    space: dict[str, Distribution]
    trials: tuple[TrialRecord, ...] = ()
    """Finished trials by number.  Which ones depends on the number asked for and the study's
    window, never on timing."""


@runtime_checkable
class Sampler(Protocol):
    """The four hooks of a sampler of one's own (``--sampler my_sampler`` or ``module:Class``).

    A package adds one by the entry point group ``jupyter_ddl.samplers``: a name, and a class with
    these hooks, or one of Optuna's samplers.  ``jupyter_ddl.testing.samplers`` has the tests that
    each one is to pass.

    All hooks are called on one thread of one process, one at a time.  Only ``ask`` is
    required; a hook that is missing does nothing.  For the same seed and the same history
    ``ask`` should propose the same parameters: then a run that is resumed goes on as if
    it had never stopped.
    """

    def ask(self, history: History) -> dict[str, ParamValue] | None:
        """Propose the next trial: a value for every parameter of ``history.space``.

        Parameters with a condition (``when``) may be left out where it does not hold; trials do
        not have them there.

        None means "nothing until more results are known"; the study then asks again with
        the next result, and ends when there is none left to wait for.
        """

    def tell(self, trial: TrialRecord) -> None:
        """Learn how a trial ended.  Called once per trial, in the order of the numbers."""

    def should_stop(self, trial: TrialRecord, history: History) -> bool:
        """Whether to stop a running trial, given its ``reports`` so far."""

    def finish(self, history: History) -> None:
        """Called once after the last trial."""


class SamplerStart(msgspec.Struct, frozen=True, tag="sampler_start"):
    """Build the sampler; the first message to its process."""

    name: str
    """A captured notebook variable when ``in_notebook``, else ``module:Class``."""
    in_notebook: bool
    seed: int
    metric: str
    mode: Mode
    n_trials: int
    space: dict[str, Distribution]
    options: dict[str, bool | int | float | str | None] = {}
    program: str | None = None
    """Digest of the program blob that holds the notebook variable."""
    folder: str = ""
    """Where the notebook is, if the sampler's process sees that."""


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    number: int


class Tell(msgspec.Struct, frozen=True, tag="tell"):
    record: TrialRecord


class ShouldStop(msgspec.Struct, frozen=True, tag="should_stop"):
    record: TrialRecord


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    pass


SamplerRequest: TypeAlias = Ask | Tell | ShouldStop | Finish


class Asked(msgspec.Struct, frozen=True, tag="asked"):
    number: int
    params: dict[str, ParamValue] | None
    """None: nothing to propose until more results are known."""


class Told(msgspec.Struct, frozen=True, tag="told"):
    """Answer to ``Tell`` and ``Finish``."""


class StopDecision(msgspec.Struct, frozen=True, tag="stop_decision"):
    number: int
    stop: bool


class SamplerFailed(msgspec.Struct, frozen=True, tag="sampler_failed"):
    """A hook raised, or returned something that it must not return."""

    hook: str
    """``start``, ``ask``, ``tell``, ``should_stop`` or ``finish``."""
    type_name: str
    message: str
    traceback: str = ""
    """The user's own frames, ending in the message."""
    line: int | None = None
    """Line of the innermost frame of the user's code."""


SamplerReply: TypeAlias = Asked | Told | StopDecision | SamplerFailed


class SamplerCall(msgspec.Struct, frozen=True, tag="sampler_call"):
    """Requests to the sampler of one run, which a worker keeps in a rank process.

    ``offset`` is how many requests this sampler was sent before.  A process that has seen another
    number (it is new, the old one was lost) answers nothing, and the caller sends all again.
    """

    run_id: str
    start: SamplerStart
    program: str
    """Digest of the run's program: the sampler may be a captured variable or a shipped module."""
    run_dir: str
    blob_dirs: tuple[str, ...]
    offset: int
    requests: tuple[SamplerRequest, ...]
    timeout_s: float = 300.0
    close: bool = False
    """End the sampler's process after these requests."""

    @property
    def assignment(self) -> Assignment:
        """No trials, but what the sampler's process is started and finds the program with."""
        return Assignment(
            run_id=self.run_id,
            assignment_id=f"{self.run_id}-sampler",
            program=self.program,
            trials=(),
            run_dir=self.run_dir,
            blob_dirs=self.blob_dirs,
            topic="",
            fresh_process=True,
        )


class SamplerAnswers(msgspec.Struct, frozen=True, tag="sampler_answers"):
    replies: tuple[SamplerReply, ...]
    n_seen: int
    """Requests that the process had seen before this call; equal to ``offset`` if it answers."""
