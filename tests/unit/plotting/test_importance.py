"""What trials tell about parameters: shares, or a sentence that says why there are none."""

from __future__ import annotations

import math
import random

import pytest

from jupyter_ddl.plotting.importance import MAX_TRIALS, importance_of
from jupyter_ddl.protocol.space import Choice, OneOf, RandInt, Uniform
from jupyter_ddl.verbs.search import Search

SPACE = {
    "lr": Uniform(1e-4, 1.0, log=True),
    "width": RandInt(1, 64),
    "act": Choice((1, 1.0, True, "x")),
}
STUDY = Search("acc", "max", 100, dict(SPACE))


def trials(n_trials, value=lambda params: -abs(math.log10(params["lr"]) + 2), seed=3):
    rng = random.Random(seed)
    found = []
    for _ in range(n_trials):
        lr, width = 10 ** rng.uniform(-4, 0), rng.randint(1, 64)
        params = {"lr": lr, "width": width, "act": rng.choice(SPACE["act"].values)}
        found.append((params, value(params)))
    return found


@pytest.mark.parametrize("mode", ["max", "min"])
def test_what_decides_has_the_largest_share(mode):
    study = Search("acc", mode, 100, dict(SPACE))
    sign = 1 if mode == "max" else -1
    for name in ("lr", "width"):
        found = importance_of(study, trials(200, lambda p, name=name: sign * math.log(p[name])))
        assert next(iter(found.shares)) == name
        assert found.shares[name] > 0.8
        assert set(found.shares) == set(SPACE)
        assert sum(found.shares.values()) == pytest.approx(1)
        assert (found.n_trials, found.note) == (200, "")


def test_the_same_trials_tell_the_same():
    assert importance_of(STUDY, trials(80)) == importance_of(STUDY, trials(80))


def test_of_many_trials_a_thousand_are_taken():
    found = importance_of(STUDY, trials(5 * MAX_TRIALS))
    assert found.n_trials == MAX_TRIALS
    assert found.shares["lr"] > 0.8


@pytest.mark.parametrize(
    ("given", "note"),
    [
        ([], "needs 10 complete trials with a number as acc; there are 0"),
        (trials(9), "there are 9"),
        (trials(30, lambda params: math.nan), "there are 0"),
        (trials(12, lambda params: 0.5), "acc is 0.5000 in all 12 trials"),
        ([({"lr": 0.1}, float(n)) for n in range(20)], "each parameter has one value in all 20"),
        ([({}, float(n)) for n in range(20)], "there are 0"),
    ],
)
def test_what_tells_nothing_is_said_in_a_sentence(given, note):
    found = importance_of(STUDY, given)
    assert found.shares == {}
    assert note in found.note
    assert "\n" not in found.note


def test_parameters_of_branches_have_a_share_or_are_named():
    when = ((OneOf("act", ("x",)),),)
    space = {**SPACE, "C[x]": Uniform(0.0, 1.0, when=when), "one": Choice((3,))}
    rng = random.Random(5)
    given = [
        ({**p, "one": 3, **({"C[x]": rng.random()} if p["act"] == "x" else {})}, value)
        for p, value in trials(100)
    ]
    found = importance_of(Search("acc", "max", 100, space), given)
    assert "C[x]" in found.shares or "only some trials have C[x]" in found.note
    assert "one had one value" in found.note


def test_what_the_library_refuses_is_said_in_a_sentence():
    space = {"lr": Uniform(0.5, 8.0, log=True, step=0.5), "width": RandInt(1, 64)}
    given = [({"lr": 0.5 + n % 3, "width": 1 + n}, float(n)) for n in range(20)]
    found = importance_of(Search("acc", "max", 20, space), given)
    assert found.shares == {}
    assert "no importance: lr: " in found.note


def test_a_name_that_objects_have_is_a_parameter_like_any_other():
    space = {"__proto__": Uniform(0.0, 1.0), "b": Uniform(0.0, 1.0)}
    given = [({"__proto__": n / 40, "b": (n * 7 % 40) / 40}, float(n)) for n in range(40)]
    assert next(iter(importance_of(Search("acc", "max", 40, space), given).shares)) == "__proto__"
