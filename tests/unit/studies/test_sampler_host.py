"""Own samplers: the host that runs them, alone and driven by a study."""

from __future__ import annotations

import math
import subprocess
import sys
import types
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
import optuna
import pytest

from jupyter_ddl.protocol.sampling import (
    Ask,
    Asked,
    Finish,
    History,
    Sampler,
    SamplerFailed,
    SamplerReply,
    SamplerRequest,
    SamplerSpec,
    SamplerStart,
    ShouldStop,
    StopDecision,
    Tell,
    Told,
    TrialEnd,
    TrialRecord,
)
from jupyter_ddl.protocol.space import Choice, Distribution, ParamValue, RandInt, Uniform
from jupyter_ddl.ranks.sampler_host import SamplerHost
from jupyter_ddl.studies import Exhausted, NeedsRemoteAsk, Proposal, Study, Wait
from jupyter_ddl.verbs.search import Search

Params = dict[str, ParamValue]
SPACE: dict[str, Distribution] = {"x": Uniform(-5.0, 5.0), "kind": Choice(("a", "b"))}


class HillClimber:
    """An own sampler with all four hooks: steps around the best trial known."""

    def __init__(self, step: float = 1.0, seed: int = 0) -> None:
        self.step, self.seed = step, seed
        self.told: list[int] = []
        self.finished_with: int | None = None

    def ask(self, history: History) -> Params | None:
        done = [trial for trial in history.trials if trial.value is not None]
        if not done:
            return {"x": np.float64(4.0), "kind": "a"}  # type: ignore[dict-item]
        best = min(done, key=lambda trial: trial.value or 0.0)
        side = 1 if len(history.trials) % 2 else -1
        x = float(str(best.params["x"])) + side * self.step
        return {"x": min(5.0, max(-5.0, x)), "kind": "b"}

    def tell(self, trial: TrialRecord) -> None:
        self.told.append(trial.number)

    def should_stop(self, trial: TrialRecord, history: History) -> bool:
        return trial.reports[-1][1] > 100 and history.n_trials == 12

    def finish(self, history: History) -> None:
        self.finished_with = len(history.trials)


def make_start(name: str = "mine", in_notebook: bool = True, **changes: object) -> SamplerStart:
    start = SamplerStart(
        name=name,
        in_notebook=in_notebook,
        seed=7,
        metric="loss",
        mode="min",
        n_trials=12,
        space=SPACE,
    )
    return msgspec.structs.replace(start, **changes)


def make_host(made: object, **changes: object) -> SamplerHost:
    return SamplerHost(make_start(**changes), {"mine": made}.__getitem__)


def over_the_wire(host: SamplerHost, request: SamplerRequest) -> SamplerReply:
    """As the transport will do it: everything passes through msgpack."""
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=SamplerRequest)
    reply = msgspec.msgpack.encode(host.handle(sent))
    return msgspec.msgpack.decode(reply, type=SamplerReply)


def search(study: Study, host: SamplerHost) -> list[Params]:
    listed: list[Params] = []
    running: list[int] = []
    while not isinstance(answer := study.ask(), Exhausted):
        if isinstance(answer, Wait):
            number = running.pop(0)
            study.tell(number, "complete", float(str(listed[number]["x"])) ** 2)
            continue
        assert isinstance(answer, NeedsRemoteAsk)
        for record in answer.tells:
            assert over_the_wire(host, Tell(record)) == Told()
        asked = over_the_wire(host, Ask(answer.number))
        assert isinstance(asked, Asked), asked
        proposal = study.supply(asked.number, asked.params)
        if isinstance(proposal, Proposal):
            listed.append(proposal.params)
            running.append(proposal.number)
    return listed


def make_study(name: str = "mine", window: int = 2) -> Study:
    sampler = SamplerSpec(name, in_notebook=True)
    return Study(Search("loss", "min", 12, SPACE, sampler), seed=7, window=window)


def test_own_sampler_drives_a_whole_search() -> None:
    sampler = HillClimber()
    host = make_host(sampler)
    study = make_study()

    listed = search(study, host)
    for record in study.remaining_tells():
        over_the_wire(host, Tell(record))
    over_the_wire(host, Finish())

    assert isinstance(sampler, Sampler)
    assert len(listed) == 12
    assert min(abs(float(str(params["x"]))) for params in listed) <= 1.0
    assert sampler.told == list(range(10))
    assert sampler.finished_with == 10


def test_class_is_made_with_options_and_the_seed_of_the_run() -> None:
    made: list[HillClimber] = []

    class Recorded(HillClimber):
        def __init__(self, step: float, seed: int) -> None:
            super().__init__(step, seed)
            made.append(self)

    host = make_host(Recorded, options={"step": 0.5})
    host.handle(Ask(0))

    assert [(sampler.step, sampler.seed) for sampler in made] == [(0.5, 7)]


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    made = types.ModuleType("own_samplers_of_a_user")
    made.HillClimber = HillClimber  # type: ignore[attr-defined]
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def test_class_is_found_in_an_installed_module(module: types.ModuleType) -> None:
    host = make_host(None, name=f"{module.__name__}:HillClimber", in_notebook=False)

    assert host.handle(Ask(0)) == Asked(0, {"x": 4.0, "kind": "a"})


@pytest.mark.parametrize(
    "make",
    [
        lambda: optuna.samplers.TPESampler(seed=1, n_startup_trials=3),
        lambda: optuna.samplers.RandomSampler(seed=1),
        lambda: optuna.samplers.TPESampler,
    ],
)
def test_optuna_sampler_of_the_notebook_drives_a_search(make: Callable[[], object]) -> None:
    lists = [search(make_study(), make_host(make())) for _ in range(2)]

    assert len(lists[0]) == 12
    assert lists[0] == lists[1]


class Watching(optuna.samplers.RandomSampler):
    """Keeps what an Optuna sampler sees when it is asked."""

    seen: list[tuple[str, dict[str, object], float | None, dict[int, float]]]

    def before_trial(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
        self.seen = [
            (t.state.name, t.params, t.value, t.intermediate_values)
            for t in study.get_trials(states=states)
        ]


@pytest.mark.parametrize("as_proposed", [True, False])
def test_optuna_sampler_learns_the_recorded_parameters_of_each_trial(as_proposed: bool) -> None:
    sampler = Watching(seed=1)
    host = make_host(sampler)
    recorded: list[Params] = []
    ends: list[tuple[TrialEnd, float | None]] = [
        ("complete", 1.0),
        ("pruned", 2.0),
        ("pruned", None),
        ("failed", None),
        ("complete", math.inf),
        ("cancelled", 3.0),
    ]
    for number, (state, value) in enumerate(ends):
        asked = host.handle(Ask(number))
        assert isinstance(asked, Asked)
        assert asked.params is not None
        recorded.append(asked.params if as_proposed else {"x": 0.5 + number / 10, "kind": "b"})
        assert host.handle(Tell(TrialRecord(number, recorded[-1], state, value, 4))) == Told()
    host.handle(Ask(len(ends)))

    assert sampler.seen == [
        ("COMPLETE", recorded[0], 1.0, {}),
        ("PRUNED", recorded[1], 2.0, {4: 2.0}),
        ("PRUNED", recorded[2], None, {}),
    ]


def test_should_stop_gets_the_reports_of_the_running_trial() -> None:
    host = make_host(HillClimber())
    calm = TrialRecord(0, {"x": 1.0}, reports=((0, 1.0), (1, 99.0)))
    wild = TrialRecord(1, {"x": 1.0}, reports=((0, 101.0),))

    assert over_the_wire(host, ShouldStop(calm)) == StopDecision(0, stop=False)
    assert over_the_wire(host, ShouldStop(wild)) == StopDecision(1, stop=True)


def test_hooks_other_than_ask_may_be_left_out() -> None:
    class Bare:
        def ask(self, history: History) -> Params | None:
            return None

    host = make_host(Bare())
    record = TrialRecord(0, {}, "complete", 1.0)

    assert host.handle(Ask(3)) == Asked(3, None)
    assert host.handle(Tell(record)) == Told()
    assert host.handle(ShouldStop(record)) == StopDecision(0, stop=False)
    assert host.handle(Finish()) == Told()


def test_error_in_a_hook_comes_back_with_the_line_of_the_user() -> None:
    namespace: dict[str, object] = {}
    source = "class Broken:\n    def ask(self, history):\n        return 1 / len(history.trials)\n"
    exec(compile(source, "In [4]", "exec"), namespace)
    broken = namespace["Broken"]

    reply = over_the_wire(make_host(broken), Ask(0))

    assert isinstance(reply, SamplerFailed)
    assert (reply.hook, reply.type_name, reply.line) == ("ask", "ZeroDivisionError", 3)
    assert 'File "In [4]", line 3, in ask' in reply.traceback
    assert reply.traceback.endswith("ZeroDivisionError: division by zero\n")
    assert "sampler_host" not in reply.traceback


@pytest.mark.parametrize(
    ("made", "changes", "hook", "message"),
    [
        (object(), {}, "start", "without an ask"),
        (HillClimber(), {"options": {"step": 1}}, "start", "takes no options"),
        (HillClimber, {"options": {"stride": 1}}, "start", "stride"),
        (types.SimpleNamespace(ask=lambda history: [1]), {}, "ask", "returned list"),
        (None, {"name": "no_such_module:X", "in_notebook": False}, "start", "no_such_module"),
        (None, {"name": "json:X", "in_notebook": False}, "start", "X"),
    ],
)
def test_unusable_samplers_are_refused_with_the_reason(
    made: object, changes: dict[str, object], hook: str, message: str
) -> None:
    reply = make_host(made, **changes).handle(Ask(0))

    assert isinstance(reply, SamplerFailed)
    assert reply.hook == hook
    assert message in reply.message


def test_optuna_is_not_loaded_until_a_search_asks_for_it() -> None:
    code = (
        "import sys\n"
        "import jupyter_ddl.studies, jupyter_ddl.ranks.sampler_host\n"
        "heavy = {'optuna', 'torch', 'numpy', 'scipy', 'dask'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr


def test_integers_from_numpy_arrive_as_integers() -> None:
    space: dict[str, Distribution] = {"n": RandInt(1, 9)}
    spec = Search("loss", "min", 2, space, SamplerSpec("mine", in_notebook=True))
    sampler = types.SimpleNamespace(ask=lambda history: {"n": np.int64(3)})
    study, host = Study(spec, seed=0, window=1), make_host(sampler, space=space)
    study.ask()

    asked = over_the_wire(host, Ask(0))

    assert isinstance(asked, Asked)
    assert study.supply(0, asked.params) == Proposal(0, {"n": 3})
