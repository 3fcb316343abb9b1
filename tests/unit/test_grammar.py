"""The one grammar: values, refusals in a line, help that runs nothing, and what Tab offers."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_ddl.commands.cluster import CLUSTER
from jupyter_ddl.commands.runs import RUNS
from jupyter_ddl.errors import OptionError
from jupyter_ddl.grammar import (
    Command,
    Grammar,
    Group,
    HelpRequested,
    argument,
    count,
    names,
    one_of,
    size_bytes,
)
from jupyter_ddl.verbs.base import distribute_grammar

_FRUIT = Grammar(
    "%fruit",
    "Pick and eat.",
    [
        Command("look", "See what there is."),
        Command(
            "pick",
            "Pick some.",
            (
                argument("kind", offers=("samplers", lambda: ["apple"])),
                argument("baskets", nargs="*", offers="runs"),
                argument("-n", "--number", type=count(1, 9), default=1, help="as %fruit look"),
                argument("--ripe", type=one_of("yes", "no")),
                argument("--memory", type=size_bytes),
                Group(
                    (
                        argument("--now", action="store_true"),
                        argument("--later", action="store_true"),
                    ),
                    exclusive=True,
                ),
                Group((argument("--box", type=names, offers="clusters"),), title="in a shop"),
            ),
        ),
        Command("show", "Draw it.", (argument("kind"),), only_in_notebooks=True),
    ],
    bare="look",
)


def _offered(*words: str) -> set[str]:
    sources = {"runs": lambda: ["last"], "samplers": lambda: ["mine"], "clusters": lambda: ["a"]}
    return set(_FRUIT.offers(words, sources))


def test_a_line_gives_the_command_and_its_values_by_name() -> None:
    command, values = _FRUIT.parse_line("pick 'red apple' a b -n 3 --box x,y --now")
    assert command.name == "pick"
    assert values == {
        "kind": "red apple",
        "baskets": ["a", "b"],
        "number": 3,
        "ripe": None,
        "memory": None,
        "now": True,
        "later": False,
        "box": ("x", "y"),
    }


def test_a_bare_noun_is_the_command_that_tells_the_state() -> None:
    assert [grammar.parse_line(" ")[0].name for grammar in (_FRUIT, CLUSTER, RUNS)] == [
        "look",
        "status",
        "list",
    ]


@pytest.mark.parametrize(
    ("grammar", "line", "says"),
    [
        (_FRUIT, "pik x", "%fruit: unknown command 'pik'; expected look, pick or show; did you"),
        (
            distribute_grammar(),
            "",
            "%%distribute needs a verb: search, map, ddp, fit or run; --help",
        ),
        (_FRUIT, "pick", "%fruit pick: the following arguments are required: kind"),
        (_FRUIT, "pick x --nmber 3", "unknown option '--nmber'; did you mean '--number'?"),
        (_FRUIT, "pick x --num 3", "%fruit pick: unknown option '--num'"),
        (_FRUIT, "pick x -n 10", "-n/--number: '10'; expected a whole number from 1 to 9"),
        (_FRUIT, "pick x --ripe yess", "'yess' is not a choice; expected yes, no; did you mean"),
        (_FRUIT, "pick x --memory -4GB", "--memory: '-4GB' is not a size; expected e.g. 500MB"),
        (_FRUIT, "pick x --number=--", "%fruit pick: --number: expected one argument"),
        (_FRUIT, "pick x --now --later", "not allowed with argument --now"),
        (_FRUIT, "show x y", "unexpected 'y'; quote values that contain spaces"),
        (_FRUIT, "pick 'x", '%fruit: no closing quotation in "pick \'x"'),
    ],
)
def test_a_wrong_line_is_refused_in_one_line(grammar: Grammar, line: str, says: str) -> None:
    with pytest.raises(OptionError) as caught:
        grammar.parse_line(line)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("line", ["pick --help", "pick -n nonsense -h", "--help", "help", "-h"])
def test_help_is_text_whatever_else_is_wrong_with_the_line(line: str, capsys: Any) -> None:
    with pytest.raises(HelpRequested) as caught:
        _FRUIT.parse_line(line)
    expected = "as %fruit look" if "pick" in line else "Pick some."
    assert expected in caught.value.text
    assert capsys.readouterr() == ("", "")


def test_tab_offers_commands_then_what_the_declarations_say() -> None:
    flags = {"-n", "--number", "--ripe", "--memory", "--now", "--later", "--box", "-h", "--help"}
    assert _offered() == {"look", "pick", "show", "--help"}
    assert _offered("nothing") == set()
    assert _offered("pick") == flags | {"apple", "mine"}
    assert _offered("pick", "x") == flags | {"last"}
    assert _offered("pick", "-n", "3") == flags | {"apple", "mine"}
    assert _offered("pick", "-n", "3", "x", "y", "--now") == flags | {"last"}
    assert _offered("pick", "--ripe") == {"yes", "no"}
    assert _offered("pick", "--box") == {"a"}
    assert _offered("pick", "--number") == set()


def test_a_terminal_has_the_same_commands_but_for_those_of_notebooks() -> None:
    terminal = _FRUIT.in_terminal("jupyter fruit")
    assert list(terminal.commands) == ["look", "pick"]
    assert terminal.commands["pick"] is _FRUIT.commands["pick"]
    with pytest.raises(OptionError, match=r"^jupyter fruit pick: unknown option '--bx'"):
        terminal.parse(["pick", "x", "--bx", "3"])


def test_every_choice_that_is_declared_is_offered() -> None:
    distribute = distribute_grammar()
    assert distribute.offers(["search", "--pruner"], {}) == ("none", "median", "asha", "hyperband")
    assert distribute.offers(["ddp", "--backend"], {}) == ("auto", "gloo", "nccl")
    assert distribute.offers(["ddp", "--strategy"], {})[:2] == ("ddp", "fsdp")
    assert {"--targets", "--push", "--bring", "--reset"} <= set(distribute.offers(["run"], {}))
    assert "--metric" not in distribute.offers(["map"], {})
