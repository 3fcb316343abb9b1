"""``{expression}`` and ``$name`` on the first line of a magic."""

from __future__ import annotations

import pytest

from jupyter_ddl.errors import OptionError
from jupyter_ddl.magics.face import expand_line


@pytest.mark.parametrize(
    ("line", "expanded"),
    [
        ("search --trials {n}", "search --trials 7"),
        ("search --trials {n * 2}", "search --trials 14"),
        ("search --trials $n --name $unknown", "search --trials 7 --name '$unknown'"),
        ("search --name {title}", "search --name 'two words'"),
        ("search --grid lr={rates}", "search --grid 'lr=[0.1, 0.01]'"),
        ("search --name {{n}}", "search --name '{n}'"),
        ("search --name 'as  it is'", "search --name 'as  it is'"),
    ],
)
def test_values_of_the_notebook_stand_in_for_expressions_each_as_one_word(
    line: str, expanded: str
) -> None:
    namespace = {"n": 7, "title": "two words", "rates": [0.1, 0.01]}
    assert expand_line(line, namespace) == expanded


def test_an_expression_without_a_value_is_refused_with_its_text() -> None:
    with pytest.raises(OptionError, match=r"\{trails\} .*name 'trails' is not defined"):
        expand_line("search --trials {trails}", {})


def test_an_open_quote_is_left_to_the_parser_of_the_line() -> None:
    assert expand_line("search --name 'x {n}", {"n": 1}) == "search --name 'x {n}"
