"""The planner: what is shared is planned once, and in an order in which all is there."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_ddl.sklearn_fit.prefix import Chain, Link, Saving, plan


def chain(*keys: str) -> Chain:
    return Chain(tuple(Link(key.encode(), f"step{i}") for i, key in enumerate(keys)))


def union(name: str, *parts: str) -> Link:
    """A union of one-step parts."""
    inner = tuple(Chain((Link(key.encode(), f"part{i}"),), b"", i) for i, key in enumerate(parts))
    return Link((name + "|".join(parts)).encode(), "union", inner)


def test_a_step_is_planned_once_for_all_that_have_it() -> None:
    found = plan([chain("a", "b"), chain("a", "b"), chain("a", "c"), chain("a", "c")])
    assert [(p.n_steps, p.parents) for p in found.prefixes] == [(1, ()), (2, (0,)), (2, (0,))]
    assert found.of_candidate == ((0, 1), (0, 1), (0, 2), (0, 2))
    assert found.savings == (Saving("step0", 1, 4), Saving("step1", 2, 4))


def test_steps_that_go_together_are_computed_together() -> None:
    found = plan([chain("a", "b")] * 3)
    assert [p.n_steps for p in found.prefixes] == [2]
    assert found.of_candidate == ((0,),) * 3


def test_what_one_candidate_has_alone_is_left_to_it() -> None:
    found = plan([chain("a", "b"), chain("a", "c")])
    assert [p.n_steps for p in found.prefixes] == [1]
    assert plan([chain("a"), chain("b")]).prefixes == ()
    assert plan([chain("a"), chain("b")]).savings == ()


def test_equal_steps_behind_different_ones_are_different() -> None:
    found = plan([chain("a", "x"), chain("a", "x"), chain("b", "x"), chain("b", "x")])
    assert found.of_candidate[0] != found.of_candidate[2]
    assert Saving("step1", 2, 4) in found.savings


def test_parts_that_several_unions_have_are_computed_apart() -> None:
    links = [union("u", "p", "q"), union("u", "p", "r")]
    found = plan([Chain((link,)) for link in links for _ in range(2)])
    parts = [p for p in found.prefixes if p.path]
    wholes = [p for p in found.prefixes if not p.path]
    assert [p.path for p in parts] == [(0, 0)]
    assert [p.parts for p in wholes] == [(0,), (0,)]
    assert Saving("part0", 1, 4) in found.savings


def test_a_union_of_its_own_is_computed_apart_when_its_parts_are() -> None:
    found = plan([Chain((union("u", "p", k),)) for k in "qr"])
    assert [bool(p.path) for p in found.prefixes] == [True, False, False]
    assert all(found.of_candidate)


keys = st.sampled_from("abc")
chains = st.lists(keys, max_size=4).map(lambda k: chain(*k))


@settings(deadline=None)
@given(st.lists(chains, min_size=1, max_size=12))
def test_every_plan_can_be_carried_out(given_chains: list[Chain]) -> None:
    found = plan(given_chains)
    for number, prefix in enumerate(found.prefixes):
        assert all(parent < number for parent in (*prefix.parents, *prefix.parts))
        assert number in found.of_candidate[prefix.candidate]
    for candidate, path in enumerate(found.of_candidate):
        lengths = [found.prefixes[i].n_steps for i in path]
        assert lengths == sorted(set(lengths))
        for index in path:
            mine = given_chains[candidate].links[: found.prefixes[index].n_steps]
            owner = given_chains[found.prefixes[index].candidate]
            assert mine == owner.links[: found.prefixes[index].n_steps]
    # Nothing that two candidates have in common is computed twice.
    seen = {}
    for candidate, path in enumerate(found.of_candidate):
        for index in path:
            steps = given_chains[candidate].links[: found.prefixes[index].n_steps]
            assert seen.setdefault(steps, index) == index
