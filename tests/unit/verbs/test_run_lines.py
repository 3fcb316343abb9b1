"""The line of ``%%distribute run``."""

from __future__ import annotations

import pytest

from jupyter_ddl.cell.options import CellOptions
from jupyter_ddl.errors import OptionError
from jupyter_ddl.verbs.base import Line, parse_line
from jupyter_ddl.verbs.run import CellGroup


def chosen(line: str) -> Line[CellGroup]:
    verb, options = parse_line(line)
    assert isinstance(verb, CellGroup)
    return Line(verb, options)


def test_a_bare_line_means_all_ranks_of_the_open_group() -> None:
    assert chosen("run") == (CellGroup(), CellOptions())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", (1,)), ("0,2", (0, 2)), ("0-2", (0, 1, 2)), ("3,0-1,3", (0, 1, 3)), ("all", None)],
)
def test_targets_are_ranks_and_ranges(text: str, expected: tuple[int, ...] | None) -> None:
    assert chosen(f"run -t {text}").verb.targets == expected


@pytest.mark.parametrize("text", ["x", "2-1", "1,", "-1", "0-100000000"])
def test_wrong_targets_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(OptionError, match="expected"):
        parse_line(f"run -t={text}")


def test_names_to_push_and_bring_are_told_apart() -> None:
    _, found = chosen("run --push a,b --bring c -o r")
    assert (found.push, found.bring, found.out) == (("a", "b"), ("c",), "r")


def test_a_new_group_is_described_by_size_backend_and_initialisation() -> None:
    found = chosen("run -n 4 --backend gloo --no-init --reset --name side")
    assert found.verb == CellGroup(4, "gloo", initialize=False, reset=True, name="side")


def test_how_environments_are_compared_is_said_as_for_other_verbs() -> None:
    assert chosen("run --env-check strict").options.env_check == "strict"
    with pytest.raises(OptionError, match="did you mean 'warn'"):
        parse_line("run --env-check warm")


def test_an_option_of_another_verb_is_refused() -> None:
    with pytest.raises(OptionError, match="unknown option '--metric'"):
        parse_line("run --metric acc")
