"""A run's cell as a program: what it says, from its first line to its last."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from jupyter_ddl import __version__
from jupyter_ddl.cell.filled import edited
from jupyter_ddl.cell.names import CellNames, read_names
from jupyter_ddl.errors import CaptureError, OptionError
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.space import ParamValue, When, variable_of
from jupyter_ddl.standalone.cell_text import (
    Edit,
    fill_holes,
    indented,
    ours_in,
    with_named_value,
)
from jupyter_ddl.standalone.collecting import PUBLIC, Pieces, collect
from jupyter_ddl.standalone.options import Option, declared_space, options_of
from jupyter_ddl.standalone.unpacking import MODULES, Found
from jupyter_ddl.standalone.values import FOLDER

__all__ = ["ChosenTrial", "Script", "check_exportable", "folder_line", "write_script"]

_ON_NUMPY = frozenset(
    {"catboost", "jax", "keras", "lightgbm", "lightning", "matplotlib", "numpy", "pandas"}
    | {"scipy", "seaborn", "skimage", "sklearn", "statsmodels", "tensorflow", "torch"}
    | {"transformers", "xgboost"}
)
"""Packages that load numpy, whose generator a rank seeds when it is loaded."""
_FIELDS = ("help", "random_seed", "output_dir", "item")
_FUNCTION_PARAMS = "__ddl_params__"
_DISTRIBUTIONS = frozenset({"uniform", "loguniform", "randint", "choice"})


class ChosenTrial(NamedTuple):
    """The trial that a program repeats: values of hyper-parameters, and its seed."""

    number: int
    params: Mapping[str, ParamValue]
    seed: int


@dataclass(frozen=True)
class Script:
    """A program.

    Attributes
    ----------
    options : dict of Option
        By hyper-parameter.
    folder : str
        Name of the folder with its files, which lies beside it; empty: it has none.
    notes : tuple of str
        What who runs it should know.
    """

    spec: RunSpec
    text: str
    options: dict[str, Option]
    folder: str = ""
    notes: tuple[str, ...] = ()


def refused(spec: RunSpec, why: str, *, what: str = "a program of its own") -> str:
    """A refusal, in one line."""
    return f"run {spec.run_id} can't be {what}: {why}"


def folder_line(folder: str) -> str:
    """Where a program tells the folder of its files."""
    return f"{FOLDER} = pathlib.Path(__file__).resolve().parent / {folder!r}"


def check_exportable(spec: RunSpec) -> None:
    """Refuse runs that are no program.

    Raises
    ------
    OptionError
        One line that says why.
    """
    ranks = spec.verb.ranks
    if spec.verb.driver != "trials":
        why = (
            f"a notebook feeds {spec.verb.word} as it goes on; expected a run of search, map or ddp"
        )
        raise OptionError(refused(spec, why))
    if ranks.is_group and (ranks.strategy != "ddp" or ranks.strategy_options):
        chosen = " ".join(
            [ranks.strategy, *(f"--{each.replace('_', '-')}" for each in ranks.strategy_options)]
        )
        why = f"programs have plain --strategy ddp, not {chosen}; run it with that, and export that"
        raise OptionError(refused(spec, why))
    if _FUNCTION_PARAMS in spec.program.source:
        why = "it searches over a function; export a run whose %%distribute search cell calls it"
        raise OptionError(refused(spec, why))


def write_script(
    spec: RunSpec, trial: ChosenTrial, found: Found, *, folder: str, name: str
) -> Script:
    """The program of a run.

    Parameters
    ----------
    found : Found
        What it has from the notebook.
    folder : str
        Name of the folder with its files; empty: it has none.
    name : str
        Of its file, as its own help shows it.

    Raises
    ------
    CaptureError
        A value of the notebook has no plain form.
    OptionError
        The cell uses what only jupyter_ddl has.
    """
    _check_found(spec, found)
    return _Writer(spec, trial, found, folder, name).script()


def _check_found(spec: RunSpec, found: Found) -> None:
    if found.error:
        why = f"reading the values of its cell failed: {found.error}"
    elif found.refused:
        listed = ", ".join(f"{name} ({kind})" for name, kind in found.refused[:5])
        why = (
            f"no plain file holds {listed}, and nothing is pickled; make it inside the cell, or in "
            f"a function that the cell calls, and run that once"
        )
    elif found.missing:
        listed = ", ".join(f"{name}, which {owner} needs" for owner, name in found.missing[:5])
        why = (
            f"the record does not have {listed}; bind it in the same cell as what reads it, and "
            f"run that once"
        )
    else:
        return
    raise CaptureError(refused(spec, why))


class _Writer:
    def __init__(
        self, spec: RunSpec, trial: ChosenTrial, found: Found, folder: str, name: str
    ) -> None:
        self._spec = spec
        self._trial = trial
        self._found = found
        self._folder = folder
        self._name = name
        self._source = spec.program.source
        self._tree = ast.parse(self._source)
        self._is_group = spec.verb.ranks.is_group
        self._meets = self._is_group and spec.verb.ranks.initialize
        if spec.verb.study is None:
            space, self._holes = declared_space(spec.program)
        else:
            space, self._holes = spec.verb.study.space, spec.program.placeholders
        self._options = options_of(space, trial.params, _FIELDS)
        self._names = _names_of(self._tree, {(hole.line, hole.column) for hole in self._holes})
        taken = {*self._names.free, *self._names.bound, *found.names}
        free = (each for each in ("args", "options", "arguments") if each not in taken)
        self._args = next(free, "_args")
        self._aliases = dict(each.split(" = ") for each in found.ours if " = " in each)
        self._edits, self._used = self._ours()
        self._pieces = self._collected()

    def script(self) -> Script:
        """The program."""
        parts = (self._head(), self._line(), self._replacing(), self._notebook(), self._cell())
        text = "\n".join(line for part in parts for line in part)
        return Script(
            self._spec, text.rstrip() + "\n", self._options, self._folder, tuple(self._notes())
        )

    # -- what it uses of ours ----------------------------------------------------------------------

    def _ours(self) -> tuple[tuple[Edit, ...], set[str]]:
        """Edits of the cell, and names that need a piece."""
        free = {name for name in self._names.free if name not in self._found.names}
        ours = ours_in(self._source, self._tree, free)
        used = {*ours.names, *(each for each in self._found.ours if " = " not in each)}
        trees = [ast.parse(self._filled()), *map(ast.parse, self._found.definitions)]
        for alias, target in self._aliases.items():
            used |= {target} if target in PUBLIC else _attributes(trees, alias)
        # In the place of declarations stand options.
        used -= {name for name in used & _DISTRIBUTIONS if name not in _called(trees)}
        missing = {*used - PUBLIC, *(each for each in ours.missing if each not in PUBLIC)}
        if missing:
            raise OptionError(
                refused(
                    self._spec,
                    f"it uses {', '.join(sorted(missing))} of jupyter_ddl; expected no more than "
                    f"{', '.join(sorted(PUBLIC - _DISTRIBUTIONS))} and distributions",
                )
            )
        return ours.edits, used

    def _collected(self) -> Pieces:
        verb = self._spec.verb
        internal = {"_seed_all"}
        if verb.items is not None:
            internal |= {"_seed_of_item", "_keep_result"}
        if verb.objective is not None:
            internal |= {"_record"}
        if self._meets:
            internal |= {"_meet", "_part", *self._sharing()}
        if "jupyter_ddl" in self._aliases.values() or "SimpleNamespace" in edited(
            self._source, self._edits
        ):
            internal |= {"SimpleNamespace"}
        return collect(self._used | internal)

    def _sharing(self) -> tuple[str, ...]:
        """What hosts without common files do before the cell may read a checkpoint."""
        return ("_share_checkpoint",) if self._meets and "resume" in self._used else ()

    def _filled(self, edits: Iterable[Edit] = ()) -> str:
        texts = {name: self._value(option) for name, option in self._options.items()}
        holes = fill_holes(self._source, self._holes, texts)
        return edited(self._source, [*holes, *edits])

    # -- its parts ---------------------------------------------------------------------------------

    def _head(self) -> Iterator[str]:
        spec = self._spec
        named = f" {_in_docstring(spec.name)}" if spec.name else ""
        file = _in_docstring(self._name)
        what = "run" if spec.verb.study is None else f"trial {self._trial.number} of run"
        yield f'"""What {what} {spec.run_id}{named} has computed, as a program of its own.'
        yield ""
        if self._is_group:
            yield f"    torchrun --nproc-per-node {spec.n_ranks} {file}"
        else:
            yield f"    python {file}"
        yield ""
        yield f"jupyter_ddl {__version__} has written it, and is not needed to run it."
        yield '"""'
        yield ""
        features = {"annotations"}  # those of definitions may name what nothing else does
        for node in self._tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                features |= {alias.name for alias in node.names}
        yield f"from __future__ import {', '.join(sorted(features))}"
        yield ""
        yield from sorted({"import argparse", "import pathlib", *self._pieces.imports})
        yield ""

    def _line(self) -> Iterator[str]:
        verb, args = self._spec.verb, self._args
        yield "parser = argparse.ArgumentParser()"
        for option in self._options.values():
            yield f"parser.add_argument({option.declaration})"
        if verb.items is not None:
            about = "one element only, by its number from 0; default: all"
            yield f'parser.add_argument("--item", type=int, metavar="N", help="{about}")'
        yield f'parser.add_argument("--random-seed", type=int, default={self._trial.seed})'
        about = "for reports and checkpoints; default: the working directory"
        yield f'parser.add_argument("--output-dir", type=pathlib.Path, default=".", help="{about}")'
        yield f"{args} = parser.parse_args()"
        yield f"_OUTPUT = {args}.output_dir"
        yield "_OUTPUT.mkdir(parents=True, exist_ok=True)"
        if self._folder:
            yield folder_line(self._folder)
        yield ""

    def _replacing(self) -> Iterator[str]:
        yield ""
        yield "# -- in place of jupyter_ddl"
        yield ""
        previous = ""
        for text in self._pieces.texts:
            if "\n" in text or "\n" in previous:
                yield ""
                yield from [""] if previous else []
            yield text
            previous = text
        yield ""
        yield ""

    def _notebook(self) -> Iterator[str]:
        found = self._found
        yield "# -- from the notebook"
        yield ""
        if self._spec.program.modules:
            yield "import sys"
            yield ""
            yield f"sys.path.insert(0, str({FOLDER} / {MODULES!r}))"
        loaded = _ON_NUMPY & {*self._spec.program.imports}
        torch = self._is_group or "torch" in self._spec.program.imports
        imports = {*found.imports, *(["import numpy"] if loaded or torch else [])}
        imports |= {"import torch"} if torch else set()
        yield from sorted(imports)
        for alias, target in sorted(self._aliases.items()):
            yield f"{alias} = {target if target in PUBLIC else self._namespace(alias)}"
        yield from (f"{self._variable(name)} = {text}" for name, text in found.values)
        for definition in found.definitions:
            yield f"\n\n{definition.rstrip()}"
        yield from [""] * 2 if found.definitions else []
        yield from (f"{self._variable(name)} = {text}" for name, text in found.later_values)
        yield ""
        yield ""

    def _namespace(self, alias: str) -> str:
        trees = [self._tree, *map(ast.parse, self._found.definitions)]
        used = sorted(_attributes(trees, alias) & self._used)
        return f"SimpleNamespace({', '.join(f'{name}={name}' for name in used)})"

    def _variable(self, name: str) -> str:
        """A mapped expression, as ``range(4)``, has no name."""
        return name if name.isidentifier() else "_items"

    def _cell(self) -> Iterator[str]:
        verb, args = self._spec.verb, self._args
        yield "# -- the cell"
        yield ""
        if self._meets:
            yield "_meet()"
        yield from (f"{each}()" for each in self._sharing())
        items = verb.items
        if items is not None:
            yield f"for _number, _element in enumerate({self._variable(items.over)}):"
            yield f"    if {args}.item not in (None, _number):"
            yield "        continue"
            yield f"    _seed_all(_seed_of_item({args}.random_seed, _number))"
            yield f"    {items.element} = _element"
            yield indented(self._body(with_value=True)).rstrip()
            last = "_value" if self._spec.program.ends_in_expression else "None"
            yield f"    _keep_result(_number, {last})"
            return
        yield f"_seed_all({args}.random_seed)"
        yield from self._given()
        yield self._body(with_value=False)
        yield from self._end()

    def _value(self, option: Option) -> str:
        return f"{self._args}.{option.field}"

    def _given(self) -> Iterator[str]:
        """Hyper-parameters that the cell does not declare itself."""
        holes = {hole.name for hole in self._holes}
        for name, option in self._options.items():
            if name in holes:
                continue
            text = self._value(option)
            labels = self._spec.program.space_labels.get(name)
            if labels is not None:
                texts = self._found.labels.get(name) or self._elements(labels.path, labels.values)
                pairs = zip(labels.values, texts, strict=True)
                text = f"{{{', '.join(f'{each!r}: {made}' for each, made in pairs)}}}[{text}]"
            statement = f"{variable_of(name)} = {text}"
            if option.found.when:
                yield f"if {self._condition(option.found.when)}:"
                statement = f"    {statement}"
            yield statement

    def _condition(self, when: When) -> str:
        """Whether a parameter exists, by the values of those before it."""
        ways = (
            " and ".join(
                f"{self._value(self._options[part.name])} in {list(part.values)!r}" for part in way
            )
            for way in when
        )
        return " or ".join(ways)

    def _elements(self, path: Iterable[ParamValue], values: Iterable[ParamValue]) -> list[str]:
        keys = "".join(f"[{key!r}]" for key in path)
        return [f"{self._spec.program.space_name}{keys}[{n}]" for n, _ in enumerate(values)]

    def _body(self, *, with_value: bool) -> str:
        edits = [*self._edits]
        if with_value and self._spec.program.ends_in_expression:
            edits.append(with_named_value(self._source, "_value"))
        lines = self._filled(edits).split("\n")
        tree = ast.parse("\n".join(lines))
        n_first = max(
            (
                node.end_lineno or 0
                for node in tree.body
                if isinstance(node, ast.ImportFrom) and node.module == "__future__"
            ),
            default=0,
        )
        return "\n".join(lines[n_first:]).strip("\n")

    def _end(self) -> Iterator[str]:
        objective = self._spec.verb.objective
        metric = "" if objective is None else objective.metric
        if metric in self._names.bound:
            yield ""
            yield f"if {metric!r} not in _reported:"
            yield f"    _record(None, None, {{{metric!r}: {metric}}})"
        elif metric and "report" not in self._used:
            raise OptionError(
                refused(
                    self._spec,
                    f"{metric} is reported by a framework's callback, which programs do not have; "
                    f"call report({metric}=…) in the cell, and run that once",
                )
            )
        if self._meets:
            yield ""
            yield "_part()"

    def _notes(self) -> Iterator[str]:
        program = self._spec.program
        if program.settings is not None:
            set_ = ", ".join(each.library for each in program.settings.carried)
            yield f"what the notebook had set of {set_} is not in it: set that in the cell"
        if program.data:
            read = ", ".join(each.path for each in program.data[:5])
            yield f"it reads {read}, relative to where it is started"


def _in_docstring(text: str) -> str:
    """Any text as one line that can't end the docstring it stands in."""
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return line.replace("\\", r"\\").replace('"', r"\"")


def _names_of(tree: ast.Module, holes: set[tuple[int, int]]) -> CellNames:
    """Names of a cell whose declarations are replaced."""
    kinds = (ast.Assign, ast.AnnAssign)
    found = (each for each in ast.walk(tree) if isinstance(each, kinds))
    skipped = (each.value for each in found if (each.lineno, each.col_offset) in holes)
    return read_names(tree, [each for each in skipped if each is not None])


def _attributes(trees: Iterable[ast.AST], alias: str) -> set[str]:
    return {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", None) == alias
    }


def _called(trees: Iterable[ast.AST]) -> set[str]:
    return {
        getattr(node.func, "id", getattr(node.func, "attr", ""))
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
