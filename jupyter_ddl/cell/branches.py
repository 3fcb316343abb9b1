"""Branches of a cell in which hyper-parameters are declared: ``if model == "svm": …``.

The statements are read in the order of the text.  A test of one choice is evaluated for each of
its values before anything runs, so whatever is true of a value can be asked; ``and``, ``or`` and
``not`` put tests together.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jupyter_ddl.cell.names import bound_names
from jupyter_ddl.cell.regions import ALWAYS, NEVER, Parameter, Parameters, Region
from jupyter_ddl.cell.source import CellSource
from jupyter_ddl.cell.values import UnknownValueError, evaluate
from jupyter_ddl.errors import SpaceError
from jupyter_ddl.protocol.space import Choice, Distribution, RandInt, grid_values, n_values

__all__ = ["Branches", "finite_values"]

_MAX_TESTED = 64
"""Values of a range of whole numbers that a test may be about."""


def finite_values(dist: Distribution) -> tuple[Any, ...]:
    """Values that a test can be asked of; none of a range that is too long for that."""
    is_short = isinstance(dist, RandInt) and n_values("", dist) <= _MAX_TESTED
    if isinstance(dist, Choice) or is_short:
        return grid_values("", dist)
    return ()


class Branches:
    """Walks statements, and tells under which condition each of them runs.

    Parameters
    ----------
    parameters
        Those declared so far; ``declare`` adds to them.
    declares
        Whether a piece of code declares anything.
    declare
        Called with every statement outside of branches and in them, and its region; returns the
        variables that it declares, with their keys.
    """

    def __init__(
        self,
        source: CellSource,
        namespace: Mapping[str, Any],
        literals: Mapping[str, ast.expr],
        parameters: Parameters,
        declares: Callable[[ast.AST], bool],
        declare: Callable[[ast.stmt, Region], Mapping[str, str]],
    ) -> None:
        self._source = source
        self._namespace = namespace
        self._literals = literals
        self._parameters = parameters
        self._declares = declares
        self._declare = declare
        self._keys: dict[str, dict[str, None]] = {}
        """Of the parameters that a variable was declared as."""

    def read(self, body: Iterable[ast.stmt], known: Mapping[str, str] = {}) -> None:
        """Read a cell, or the body of a function.

        Parameters
        ----------
        known
            Variables that have a parameter's value before the first statement, with its key.
        """
        self._remember(known)
        self._block(body, ALWAYS, set())

    def _block(self, body: Iterable[ast.stmt], region: Region, changed: set[str]) -> Region:
        """Read statements in a region; returns the region of what follows them.

        ``changed`` holds variables that may have another value than was declared.
        """
        for statement in body:
            if isinstance(statement, ast.If | ast.Match) and self._declares(statement):
                region = self._fork(statement, region, changed)
                if region == NEVER:
                    break
                continue
            declared = self._declare(statement, region)
            changed |= {name for name, _ in bound_names([statement])}
            changed.difference_update(declared)
            self._remember(declared)
            if isinstance(statement, ast.Return | ast.Raise):
                return NEVER
        return region

    def _remember(self, keys: Mapping[str, str]) -> None:
        for variable, key in keys.items():
            self._keys.setdefault(variable, {})[key] = None

    def _fork(self, statement: ast.If | ast.Match, region: Region, changed: set[str]) -> Region:
        after: set[str] = set()
        ends: list[Region] = []
        left, has_left = region, False
        for test, body in _ways(statement, self._source):
            inside = set(changed)
            taken = left
            if test is None:
                left = NEVER
            else:
                taken = self._parameters.both(left, self._region(test, True, changed))
                left = self._parameters.both(left, self._region(test, False, changed))
            if taken == NEVER and any(self._declares(each) for each in body):
                at = test or statement
                raise SpaceError(
                    f"{self._source.where(at.lineno)}: no trial ever enters "
                    f"{ast.unparse(test) if test else 'else'!r}{self._values_text(test)}",
                    line=at.lineno,
                )
            ends.append(self._block(body, taken, inside))
            has_left |= ends[-1] == NEVER != taken
            after |= inside
        changed |= after
        return self._parameters.either(*ends, left) if has_left else region

    # -- tests ---------------------------------------------------------------------------------

    def _region(self, test: ast.expr, wanted: bool, changed: set[str]) -> Region:
        """Where a test comes to what is wanted."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._region(test.operand, not wanted, changed)
        if isinstance(test, ast.BoolOp):
            parts = [self._region(part, wanted, changed) for part in test.values]
            if isinstance(test.op, ast.And) == wanted:
                found = ALWAYS
                for part in parts:
                    found = self._parameters.both(found, part)
                return found
            return self._parameters.either(*parts)
        tested = self._tested(test, changed)
        return self._parameters.either(
            *(self._satisfied(test, variable, each, wanted) for variable, each in tested)
        )

    def _tested(self, test: ast.expr, changed: set[str]) -> list[tuple[str, Parameter]]:
        """The variable that a test is about, as each of the parameters that it may be."""
        names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
        variables = sorted(names & self._keys.keys())
        if not variables:
            raise self._refusal(test, "does not use a choice that is declared before it")
        if len(variables) > 1:
            raise self._refusal(test, f"compares {' and '.join(variables)} with each other")
        (variable,) = variables
        if variable in changed:
            raise self._refusal(test, f"is about {variable!r}, which is also assigned elsewhere")
        found = [(variable, self._parameters[key]) for key in self._keys[variable]]
        for _, each in found:
            if not each.objects:
                raise self._refusal(test, f"is about {variable!r}, which is a range, not a choice")
        return found

    def _satisfied(
        self, test: ast.expr, variable: str, parameter: Parameter, wanted: bool
    ) -> Region:
        literals = {name: node for name, node in self._literals.items() if name != variable}
        fitting = []
        for value, shown in zip(parameter.objects, finite_values(parameter.dist), strict=True):
            try:
                held = evaluate(test, {**self._namespace, variable: value}, literals)
                if bool(held) == wanted:
                    fitting.append(shown)
            except (UnknownValueError, TypeError, ValueError) as error:
                reason = f"is not known before the run for {variable} = {shown} ({error})"
                raise self._refusal(test, reason) from None
        return self._parameters.one_of(parameter.key, fitting)

    def _refusal(self, test: ast.expr, reason: str) -> SpaceError:
        return SpaceError(
            f"{self._source.where(test.lineno)}: what is declared below {ast.unparse(test)!r} is "
            f"not searched here: the test {reason}; test a choice, as in if model == 'svm', or "
            f"declare at the top level of the cell",
            line=test.lineno,
        )

    def _values_text(self, test: ast.expr | None) -> str:
        names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)} if test else ()
        texts = [
            f"{name} is one of {', '.join(map(repr, finite_values(self._parameters[key].dist)))}"
            for name in sorted(self._keys.keys() & names)
            for key in self._keys[name]
        ]
        return f": {'; '.join(texts)}" if texts else ""


_Way = tuple[ast.expr | None, list[ast.stmt]]


def _ways(statement: ast.If | ast.Match, source: CellSource) -> list[_Way]:
    """Tests in their order, with what they lead to; None is ``else``."""
    if isinstance(statement, ast.If):
        ways: list[_Way] = [(statement.test, statement.body)]
        rest = statement.orelse
        if len(rest) == 1 and isinstance(rest[0], ast.If):
            return ways + _ways(rest[0], source)
        return [*ways, (None, rest)]
    return [(_case_test(statement.subject, case, source), case.body) for case in statement.cases]


def _case_test(subject: ast.expr, case: ast.match_case, source: CellSource) -> ast.expr | None:
    parts = [_pattern_test(subject, case.pattern, source), case.guard]
    tests = [part for part in parts if part is not None]
    if not tests:
        return None
    return tests[0] if len(tests) == 1 else _placed(ast.BoolOp(ast.And(), tests), tests[0])


def _pattern_test(subject: ast.expr, pattern: ast.pattern, source: CellSource) -> ast.expr | None:
    """The comparison that a pattern stands for; None for one that takes everything."""
    match pattern:
        case ast.MatchValue(value=value):
            return _placed(ast.Compare(subject, [ast.Eq()], [value]), pattern)
        case ast.MatchSingleton(value=value):
            return _placed(ast.Compare(subject, [ast.Is()], [ast.Constant(value)]), pattern)
        case ast.MatchAs(pattern=None):
            return None
        case ast.MatchAs(pattern=inner) if inner is not None:
            return _pattern_test(subject, inner, source)
        case ast.MatchOr(patterns=patterns):
            tests = [_pattern_test(subject, each, source) for each in patterns]
            known = [test for test in tests if test is not None]
            if len(known) < len(tests):
                return None
            return _placed(ast.BoolOp(ast.Or(), known), pattern)
    raise SpaceError(
        f"{source.where(pattern.lineno)}: what is declared below case {ast.unparse(pattern)} is "
        "not searched here: the pattern is not a plain value; write values, as in case 'svm' | "
        "'knn'",
        line=pattern.lineno,
    )


def _placed(test: ast.expr, place: ast.AST) -> ast.expr:
    return ast.fix_missing_locations(ast.copy_location(test, place))
