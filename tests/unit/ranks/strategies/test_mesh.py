"""``--mesh``: the ranks of a group as a grid whose axes have names."""

from __future__ import annotations

import pytest

from jupyter_ddl.errors import OptionError
from jupyter_ddl.ranks.strategies.mesh import PIPELINE_AXES, check_mesh, parse_mesh


def test_axes_are_laid_out_from_the_one_that_exchanges_least() -> None:
    assert list(parse_mesh("tp=2, dp=3").items()) == [("dp", 3), ("tp", 2)]
    assert list(parse_mesh("dp_shard=2,dp_replicate=4")) == ["dp_replicate", "dp_shard"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dq=2", "'dq' is no axis; expected some of pp, dp, dp_replicate, dp_shard, tp"),
        ("dp", "'dp' gives no size"),
        ("dp=0", "'dp=0' gives no size"),
        ("dp=two", "e.g. dp=2"),
        ("", "'' is no axis"),
        ("tp=2,tp=2", "'tp' is named twice"),
        ("dp=2,dp_shard=2", "dp is dp_shard"),
        ("dp_replicate=2,tp=2", "dp_replicate alone cuts no .* with dp_shard, or --strategy ddp"),
        ("dp=2,pp=2", "pp is of --strategy pipeline, as in dp=2,pp=2; with --strategy fsdp"),
    ],
)
def test_what_is_no_mesh_is_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_mesh(text)


def test_a_mesh_of_pipelines_has_stages_outside_and_copies_inside() -> None:
    assert list(parse_mesh("dp=2, pp=4", PIPELINE_AXES).items()) == [("pp", 4), ("dp", 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pp=2,tp=2", "tp is of --strategy fsdp; with --strategy pipeline expected dp and pp"),
        ("pp=2,dp_shard=2", "dp_shard is of --strategy fsdp"),
        ("dp=4", "has no stages; .* expected dp and pp, as in dp=2,pp=2, or --strategy ddp"),
    ],
)
def test_what_is_no_mesh_of_pipelines_is_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_mesh(text, PIPELINE_AXES)


def test_a_mesh_that_does_not_multiply_is_refused_with_those_that_do() -> None:
    check_mesh({"dp": 2, "tp": 2}, 4)
    with pytest.raises(
        OptionError,
        match="a grid of 6 ranks, and the group has 8; expected dp=2,tp=4 or dp=4,tp=2, or -n 6",
    ):
        check_mesh({"dp": 3, "tp": 2}, 8)
    with pytest.raises(OptionError, match="expected fewer axes for 3 ranks, or -n 4"):
        check_mesh({"dp": 2, "tp": 2}, 3)
