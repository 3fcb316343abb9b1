"""Every sampler and pruner that is built in keeps what is expected of one."""

from __future__ import annotations

import random

import pytest

from jupyter_ddl.plugins import PRUNERS, SAMPLERS
from jupyter_ddl.protocol.sampling import History, PrunerSpec, SamplerSpec
from jupyter_ddl.protocol.space import Choice, Distribution, ParamValue, RandInt
from jupyter_ddl.testing.pruners import PrunerContract
from jupyter_ddl.testing.samplers import SamplerContract, Search


class TestSamplers(SamplerContract):
    @pytest.fixture(params=[name for name in SAMPLERS.built_in if name not in ("grid", "gp")])
    def sampler(self, request: pytest.FixtureRequest) -> SamplerSpec:
        return SamplerSpec(request.param)


class TestGaussianProcesses(SamplerContract):
    n_trials = 6

    @pytest.fixture
    def sampler(self) -> SamplerSpec:
        pytest.importorskip("torch")
        return SamplerSpec("gp", {"n_startup_trials": 3})


class TestGrid(SamplerContract):
    @pytest.fixture
    def sampler(self) -> SamplerSpec:
        return SamplerSpec("grid")

    @pytest.fixture
    def space(self) -> dict[str, Distribution]:
        return {"depth": RandInt(1, 9, step=2), "kind": Choice(("a", "b", None))}


class Quiet:
    """A user's, which now and then waits for one more result."""

    def __init__(self, seed: int = 0) -> None:
        self._draws = random.Random(seed)
        self._n_asked = 0

    def ask(self, history: History) -> dict[str, ParamValue] | None:
        self._n_asked += 1
        if self._n_asked % 5 == 0 and len(history.trials) + 1 < self._n_asked // 2:
            return None
        from jupyter_ddl.studies.axes import make_axes

        draws = random.Random(self._n_asked)
        return {axis.name: axis.from_unit(draws.random()) for axis in make_axes(history.space)}


class TestOfAUser(SamplerContract):
    @pytest.fixture
    def sampler(self) -> SamplerSpec:
        return SamplerSpec(f"{__name__}:Quiet")


class TestPruners(PrunerContract):
    @pytest.fixture(
        params=[
            *(PrunerSpec(name) for name in PRUNERS.built_in),
            PrunerSpec("median", {"n_startup_trials": 1}),
            PrunerSpec("asha", {"eta": 2}),
            PrunerSpec("hyperband", {"eta": 2, "max_steps": 8}),
        ],
        ids=lambda spec: "-".join((spec.name, *spec.options)),
    )
    def pruner(self, request: pytest.FixtureRequest) -> PrunerSpec:
        found: PrunerSpec = request.param
        return found


# -- the contracts themselves: what does not keep them fails ---------------------------------------


class Careless:
    """Proposes by what it has been told last, and draws from the clock's own numbers."""

    def ask(self, history: History) -> dict[str, ParamValue]:
        return {"depth": random.choice((1, 3, 5, 7, 9)), "kind": "relu", "rate": 0.5}


class Beyond:
    def ask(self, history: History) -> dict[str, ParamValue]:
        return {"depth": 2, "kind": "relu", "rate": 0.5}


def test_a_sampler_that_draws_anew_each_time_does_not_pass() -> None:
    contract, spec = SamplerContract(), SamplerSpec(f"{__name__}:Careless")
    from jupyter_ddl.testing.samplers import SPACE

    with pytest.raises(AssertionError):
        contract.test_the_trials_do_not_depend_on_the_order_in_which_results_come(spec, SPACE)
    with pytest.raises(AssertionError):
        contract.test_a_search_that_is_resumed_goes_on_as_if_it_had_never_stopped(spec, SPACE, 9)


def test_a_proposal_beside_the_space_is_refused_where_it_is_made() -> None:
    from jupyter_ddl.errors import SpecError
    from jupyter_ddl.testing.samplers import SPACE

    with pytest.raises(SpecError, match="depth"):
        Search(SamplerSpec(f"{__name__}:Beyond"), SPACE).ask()
