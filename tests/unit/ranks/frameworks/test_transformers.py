"""What of a Trainer's logs is a metric."""

from __future__ import annotations

from jupyter_ddl.ranks.frameworks.transformers import without_speed

_EVALUATED = {
    "eval_loss": 0.5,
    "eval_inference_runtime": 3.0,
    "eval_runtime": 0.1,
    "eval_samples_per_second": 9.0,
    "eval_steps_per_second": 2.0,
    "epoch": 1.0,
}


def test_speeds_of_a_trainer_are_no_metrics_but_those_of_the_user_are() -> None:
    assert without_speed(_EVALUATED) == {
        "eval_loss": 0.5,
        "eval_inference_runtime": 3.0,
        "epoch": 1.0,
    }
    mine = {"loss": 1.0, "decoding_runtime": 2.0, "samples_per_second": 3.0}
    assert without_speed(mine) == mine
    ended = {"train_runtime": 2.0, "train_tokens_per_second": 1, "train_steps_per_second": 8.0}
    assert without_speed(ended | {"train_loss": 0.2}) == {"train_loss": 0.2}


def test_a_search_for_the_speed_keeps_it() -> None:
    kept = without_speed(_EVALUATED, "eval_samples_per_second")
    assert kept.keys() == without_speed(_EVALUATED).keys() | {"eval_samples_per_second"}
