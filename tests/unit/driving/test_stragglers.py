"""One worker of four is ten times as slow: an asynchronous search is not held up by it."""

from __future__ import annotations

from jupyter_ddl.protocol.events import AttemptFinished, Notice
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.sampling import PrunerSpec, SamplerSpec
from jupyter_ddl.protocol.space import Uniform
from jupyter_ddl.testing.dispatcher import Faults
from jupyter_ddl.testing.interleave import _PROGRAM
from jupyter_ddl.testing.world import World
from jupyter_ddl.verbs.search import Search

_N_TRIALS = 240


def _took_s(slowness: dict[str, float], n_workers: int, seed: int) -> float:
    verb = Search(
        "loss",
        "min",
        _N_TRIALS,
        {"x": Uniform(0.0, 1.0)},
        sampler=SamplerSpec("random"),
        pruner=PrunerSpec("asha"),
    )
    spec = RunSpec("r0", verb, _PROGRAM, 1, "test", 0.0)
    world = World(seed, [spec], Faults(), workers=(1,) * n_workers)
    world.dispatcher.slowness = slowness
    world.begin()
    world.finish()
    ends = [e for e in world.runs[0].ledger if isinstance(e, AttemptFinished)]
    assert len(ends) == _N_TRIALS
    return world.clock.now_s


def test_the_others_go_on_as_if_it_were_not_there() -> None:
    seeds = range(5)
    alone = sum(_took_s({}, 3, seed) for seed in seeds)
    beside = sum(_took_s({"w4": 10.0}, 4, seed) for seed in seeds)
    print(f"{alone:.0f} s without it, {beside:.0f} s with it")
    assert beside <= 1.2 * alone


class _OfEvolution(World):
    """Knows what random search proposes, and not what evolution does."""

    def expected_params(self, spec: RunSpec, number: int) -> None:
        return None


def test_who_keeps_free_slots_waiting_for_a_minute_is_named_once() -> None:
    """Evolution proposes a generation when it knows all of the one before."""
    space = {"x": Uniform(0.0, 1.0)}
    sampler = SamplerSpec("de", {"population": 4})
    spec = RunSpec(
        "r0", Search("loss", "min", 12, space, sampler=sampler), _PROGRAM, 1, "test", 0.0
    )
    world = _OfEvolution(3, [spec], Faults(), workers=(1,) * 4)
    world.dispatcher.slowness = {"w4": 1000.0}
    world.begin()
    world.finish()
    told = [e.text for e in world.runs[0].ledger if isinstance(e, Notice)]
    waits = [
        text for text in told if "slots are free, and the sampler is waiting for trial" in text
    ]
    assert waits
    assert len(waits) == len(set(waits))
    assert all(text.endswith("before it proposes another trial") for text in waits)
