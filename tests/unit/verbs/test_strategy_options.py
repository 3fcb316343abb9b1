"""What strategies take on the line: refused at once where it can't be."""

from __future__ import annotations

import json

import pytest

from jupyter_ddl.errors import OptionError
from jupyter_ddl.verbs.strategy_options import chosen_options, with_plan


@pytest.mark.parametrize(
    ("strategy", "values", "message"),
    [
        ("ddp", {"mesh": "dp=2,tp=2"}, "--mesh belongs to --strategy fsdp or --strategy pipeline"),
        ("fsdp", {"microbatches": 4}, "--microbatches belongs to --strategy pipeline"),
        ("fsdp", {"mesh": "dp=3"}, "a grid of 3 ranks, and the group has 4"),
        ("fsdp", {"mesh": "dp=2,tp=2"}, "--tp-plan NAME and a --mesh with tp=N belong together"),
        ("fsdp", {"tp_plan": "plan"}, "--tp-plan NAME and a --mesh with tp=N belong together"),
        ("fsdp", {"mesh": "dp=4", "min_ranks": 2}, "--min-ranks 2 would go on with fewer"),
        ("fsdp", {"tune_buckets": True}, "--tune-buckets belongs to --strategy ddp"),
        ("ddp", {"tune_buckets": "yes"}, "--tune-buckets: 'yes'; expected True or False"),
        ("ddp", {"tune_buckets": True, "compress": "powersgd"}, "leave one of them out"),
        ("pipeline", {"schedule": "1f1b", "microbatches": 2}, "a micro-batch for each rank"),
        ("pipeline", {"microbatches": 0}, "--microbatches"),
        ("pipeline", {"mesh": "dp=2,pp=3"}, "a grid of 6 ranks, and the group has 4"),
        ("pipeline", {"mesh": "dp=4"}, "--mesh dp=4 has no stages"),
        ("pipeline", {"mesh": "dp=2,pp=2", "min_ranks": 2}, "--min-ranks 2 would go on with fewer"),
        (
            "pipeline",
            {"mesh": "dp=2,pp=2", "microbatches": 1, "schedule": "1f1b"},
            "--microbatches is 1 for 2 ranks",
        ),
        ("fsdp", {"mesh": "dp=2,pp=2"}, "pp is of --strategy pipeline, as in dp=2,pp=2"),
        ("ps-sync", {"servers": 4}, "4 of -n 4 ranks .* at least -n 5"),
        ("ps-sync", {"servers": 2, "min_ranks": 2}, "use at least --min-ranks 3"),
        ("ps-sync", {"max_staleness": 2}, "--max-staleness belongs to --strategy ps-async"),
        ("ps-async", {"max_staleness": 0}, "at least 1 .*with --strategy ps-sync"),
        ("ps-async", {"compress": "powersgd"}, "use --compress fp16 or bf16"),
        ("ddp", {"servers": 1}, "--servers belongs to --strategy ps-sync or --strategy ps-async"),
    ],
)
def test_an_option_that_can_not_be_is_refused(
    strategy: str, values: dict[str, object], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        chosen_options(strategy, {"n_ranks": 4, **values})


def test_what_is_chosen_goes_to_the_strategy() -> None:
    found = chosen_options("pipeline", {"n_ranks": 4, "microbatches": 1, "split": "2,4,6"})
    assert found == {"microbatches": 1, "split": "2,4,6"}
    found = chosen_options("pipeline", {"n_ranks": 4, "mesh": "dp=2,pp=2", "microbatches": 2})
    assert found == {"mesh": "dp=2,pp=2", "microbatches": 2}
    assert chosen_options("fsdp", {"n_ranks": 4, "tune_buckets": False}) == {}
    found = chosen_options("ddp", {"n_ranks": 4, "tune_buckets": True, "compress": "fp16"})
    assert found == {"compress": "fp16", "tune_buckets": True}
    found = chosen_options("fsdp", {"n_ranks": 4, "mesh": "dp=2,tp=2", "tp_plan": "plan"})
    plan = {"layers.*": "colwise"}
    assert with_plan(found, {"plan": plan}) == {"mesh": "dp=2,tp=2", "tp_plan": json.dumps(plan)}


@pytest.mark.parametrize("plan", [None, {}, {"0": "both"}, {0: "colwise"}, ["0"]])
def test_a_plan_that_says_something_else_is_refused(plan: object) -> None:
    namespace = {} if plan is None else {"plan": plan}
    with pytest.raises(OptionError, match=r"--tp-plan plan: plan is .*; expected a dict"):
        with_plan({"tp_plan": "plan"}, namespace)
