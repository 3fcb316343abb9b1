"""Verbs are asked, not told apart: what is left of checks by name outside ``verbs/``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_ddl.plugins import VERBS
from jupyter_ddl.protocol.verb import VerbSpec, load_verb

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "jupyter_ddl"
MOST = 10
WORDS = frozenset(VERBS.names())
CLASSES = frozenset(load_verb(word).__name__ for word in WORDS)
DRIVERS = frozenset(load_verb(word).driver for word in WORDS)

JAVASCRIPT = re.compile(
    r"""\bverb\b\s*[!=]==?\s*['"]|\.includes\(\s*[\w.]*verb\s*\)|verbs\s*:\s*\["""
    r"""|\bverb\??:\s*["'][^;\n]*\||case\s+['"](?:search|map|ddp|fit)['"]"""
)


def _names(node: ast.AST) -> set[str]:
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def _texts(node: ast.AST) -> set[str]:
    constants = (each for each in ast.walk(node) if isinstance(each, ast.Constant))
    return {each.value for each in constants if isinstance(each.value, str)}


def _is_of_verb(node: ast.AST) -> bool:
    return any("verb" in name.lower() for name in _names(node))


def _compares(node: ast.Compare) -> bool:
    sides = [node.left, *node.comparators]
    if any(isinstance(side, ast.Name) and side.id in CLASSES for side in sides):
        return True
    by_word = any(_texts(side) & WORDS and not _names(side) for side in sides)
    if by_word and any(_is_of_verb(side) for side in sides):
        return True
    of_driver = any(isinstance(side, ast.Attribute) and side.attr == "driver" for side in sides)
    return of_driver and any(_texts(side) & DRIVERS for side in sides)


def _lists(keys: list[ast.expr]) -> bool:
    """Whether what a table, tuple or set lists are verbs, two or more, and nothing else."""
    words = [key for key in keys if isinstance(key, ast.Constant) and key.value in WORDS]
    classes = [key for key in keys if isinstance(key, ast.Name) and key.id in CLASSES]
    return len(keys) > 1 and len(words) + len(classes) == len(keys)


def _checks(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kind]):
                found = bool(_names(kind) & CLASSES)
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[asked, *_]):
                found = _is_of_verb(asked)
            case ast.Compare():
                found = _compares(node)
            case ast.MatchClass(cls=kind):
                found = bool(_names(kind) & CLASSES)
            case ast.Dict(keys=keys):
                found = _lists([key for key in keys if key is not None])
            case ast.Tuple(elts=keys) | ast.List(elts=keys) | ast.Set(elts=keys):
                found = _lists(keys)
            case _:
                found = False
        if found:
            yield node


def python_checks() -> list[str]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] != "verbs":
            text = path.read_text()
            found += [
                f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)[:80]}"
                for node in _checks(ast.parse(text))
            ]
    return found


def javascript_checks() -> list[str]:
    found = []
    for folder in (ROOT / "labextension" / "src", PACKAGE / "views", PACKAGE / "recording"):
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".ts", ".tsx", ".js") and "__tests__" not in path.parts:
                for number, line in enumerate(path.read_text().splitlines(), 1):
                    found += [f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"] * len(
                        JAVASCRIPT.findall(line)
                    )
    return found


def test_what_is_not_of_a_verb_tells_no_verbs_apart() -> None:
    found = [*python_checks(), *javascript_checks()]
    assert len(found) <= MOST, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(spec.verb, Search | Ddp)",
        "type(verb) is Fit",
        "snapshot.verb == 'ddp'",
        "verb in ('search', 'map')",
        "run.verb.driver != 'fits'",
        "getattr(spec.verb, 'metric', None)",
        "{'search': 1, 'map': 2}",
        "match verb:\n    case Search():\n        pass",
    ],
)
def test_a_check_is_counted(source: str) -> None:
    assert len(list(_checks(ast.parse(source)))) >= 1


@pytest.mark.parametrize(
    "source", ["spec.verb.can.has_ranks", "phase == 'fit'", "Search(metric='a')"]
)
def test_a_question_is_not(source: str) -> None:
    assert list(_checks(ast.parse(source))) == []


@pytest.mark.parametrize(
    "line", ['if (run.verb === "ddp") {', 'verbs: ["search"],', '["fit"].includes(x.verb)']
)
def test_a_check_in_javascript_is_counted(line: str) -> None:
    assert JAVASCRIPT.search(line)


def test_every_verb_is_found_by_its_word() -> None:
    for word in WORDS:
        found = load_verb(word)
        assert issubclass(found, VerbSpec)
        assert found.__struct_config__.tag == word
