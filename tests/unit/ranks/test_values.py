"""What a trial sends back: brought names, and the values of a map."""

from __future__ import annotations

import pickle
from typing import Any

import pytest


def _load(host: Any, finished: Any) -> Any:
    assert finished.failure is None, finished.failure
    return pickle.loads((host.run_dir / "values" / finished.values_file).read_bytes())


def test_brought_names_are_saved_by_name(host: Any) -> None:
    source = "class Model:\n    def size(self): return 3\nmodel = Model()\nacc = 1.0\n"
    rank = host.load(source, metric="acc", bring=("model", "acc"))
    finished = rank.run(7, attempt=2)
    assert finished.values_file == "trial-7-a2.pkl"
    loaded = _load(host, finished)
    assert loaded["acc"] == 1.0
    assert loaded["model"].size() == 3


@pytest.mark.parametrize(
    ("mode", "best", "saved"),
    [("max", 0.4, True), ("max", 0.5, False), ("min", 0.6, True), ("min", 0.5, False)],
)
def test_only_a_trial_that_beats_the_best_saves(
    host: Any, mode: str, best: float, saved: bool
) -> None:
    rank = host.load("acc = 0.5\n", metric="acc", mode=mode, bring=("acc",), best_value=best)
    finished = rank.run()
    assert finished.outcome == "complete"
    assert (finished.values_file is not None) is saved
    assert (host.run_dir / "values").exists() is saved


def test_a_missing_brought_name_fails_and_shows_what_there_is(host: Any) -> None:
    failure = host.load("acc = 1\nnet = 2\n", metric="acc", bring=("model",)).run().failure
    assert failure.kind == "values"
    assert failure.message == (
        "brought value 'model' does not exist at the end of the cell; names seen: acc, net"
    )


def test_an_unpicklable_brought_value_is_named_and_leaves_no_file(host: Any) -> None:
    source = "good = 1\nstream = (i for i in [])\nacc = 1\n"
    failure = host.load(source, metric="acc", bring=("good", "stream")).run().failure
    assert failure.kind == "values"
    assert failure.message.startswith("brought value 'stream' is <generator object")
    assert "cannot be pickled" in failure.message
    assert list((host.run_dir / "values").iterdir()) == []


def test_a_pruned_trial_saves_nothing(host: Any) -> None:
    rank = host.load("x = 1\nreport(acc=1)\n", metric="acc", bring=("x",))
    rank.stop.request(0, 1, "pruned")
    assert rank.run().values_file is None


def test_bringing_a_model_leaves_the_model_alone_and_sends_no_more_than_it_shows(host: Any) -> None:
    source = (
        "import torch\n"
        "model = torch.nn.Linear(3, 2)\n"
        "model.tied = model.weight\n"
        "part = torch.zeros(1_000_000)[:2]\n"
        "acc = 1\n"
    )
    rank = host.load(source, metric="acc", bring=("model", "part"))
    finished = rank.run()
    loaded = _load(host, finished)
    assert loaded["model"].tied is loaded["model"].weight
    assert loaded["model"].weight.requires_grad
    assert tuple(loaded["part"].shape) == (2,)
    assert (host.run_dir / "values" / finished.values_file).stat().st_size < 20_000


def _map(host: Any, source: str, **fields: Any) -> Any:
    captures = {"items": [1, 2]}
    program = {"ends_in_expression": fields.pop("ends_in_expression", True)}
    return host.load(
        source, captures=captures, program=program, over="items", element="item", **fields
    ).run(item=1)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("None", None),
        ("True", True),
        ("item / 4", 0.5),
        ("'ä' * 512", "ä" * 512),
        ("2**62", 2**62),
        ("__import__('numpy').float64(0.5)", 0.5),
        ("__import__('numpy').int32(5)", 5),
    ],
)
def test_small_plain_values_travel_in_the_event(host: Any, expression: str, value: Any) -> None:
    finished = _map(host, f"{expression}\n")
    assert (finished.has_inline_value, finished.inline_value) == (True, value)
    assert type(finished.inline_value) is type(value)
    assert finished.values_file is None
    assert not (host.run_dir / "values").exists()


@pytest.mark.parametrize("expression", ["[item]", "'x' * 1025", "'ä' * 513", "2**64", r"'\ud800'"])
def test_other_values_go_to_a_file(host: Any, expression: str) -> None:
    finished = _map(host, f"{expression}\n")
    assert (finished.has_inline_value, finished.inline_value) == (False, None)
    assert _load(host, finished) == {"value": eval(expression, {"item": 2})}


def test_a_map_without_a_last_expression_has_the_value_none(host: Any) -> None:
    finished = _map(host, "x = item\n", ends_in_expression=False)
    assert (finished.has_inline_value, finished.inline_value) == (True, None)


def test_a_map_brings_names_beside_its_value(host: Any) -> None:
    finished = _map(host, "x = [item]\nx + x\n", bring=("x",))
    assert _load(host, finished) == {"value": [2, 2], "x": [2]}
    finished = _map(host, "x = [item]\n3\n", bring=("x",))
    assert (finished.inline_value, _load(host, finished)) == (3, {"x": [2]})


def test_a_mapped_value_that_cannot_be_pickled_fails_by_name(host: Any) -> None:
    failure = _map(host, "(i for i in [])\n").failure
    assert failure.kind == "values"
    assert failure.message.startswith("brought value 'value' is <generator")
