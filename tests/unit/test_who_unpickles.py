"""Who may turn bytes into objects that execute: a list, each with its reason."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "jupyter_ddl"

UNPICKLES = {
    "client/rank_results.py": "a kernel, what a cell was to bring",
    "client/run.py": "a kernel, a value that the user asks for",
    "driving/unpickling.py": "a controller, by an unpickler that knows plain values only",
    "ranks/checkpoints.py": "a rank, by torch's weights_only",
    "ranks/fit/node_store.py": "a rank, what ranks of this run have put there",
    "ranks/fit/table.py": "a rank, the user's own call",
    "ranks/payload.py": "a rank, the user's own values",
    "ranks/settings.py": "a rank, the notebook's own settings",
    "sklearn_fit/outcomes.py": "a kernel, results of its own fit",
    "standalone/pieces.py": "a program of its own, by torch's weights_only",
    "store/exceptions.py": "whoever sends an exception, a copy of its own",
}
OBJECT_COLLECTIVES = {
    "horovod/collectives.py": "what the user's cell calls by Horovod's name",
}
_READERS = {"load", "loads", "Unpickler"}
_MODULES = {"pickle", "cloudpickle", "torch", "marshal", "shelve", "dill", "joblib"}


@cache
def _modules() -> dict[Path, list[ast.AST]]:
    return {path: [*ast.walk(ast.parse(path.read_text()))] for path in PACKAGE.rglob("*.py")}


def _uses(names: set[str], of: set[str] | None = None) -> set[str]:
    """Modules that call or derive from one of these names."""
    found = set()
    for path, nodes in _modules().items():
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module in _MODULES:
                hit = bool(names & {each.name for each in node.names})
            elif isinstance(node, ast.Attribute) and node.attr in names:
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                hit = of is None or owner in of
            else:
                continue
            if hit:
                found.add(path.relative_to(PACKAGE).as_posix())
    return found


def test_nobody_else_unpickles() -> None:
    assert _uses(_READERS, _MODULES) == UNPICKLES.keys()


def test_what_ranks_tell_each_other_is_not_unpickled() -> None:
    collectives = {
        f"{verb}_object{end}"
        for verb in ("all_gather", "broadcast", "gather", "scatter", "send", "recv")
        for end in ("", "_list")
    }
    assert _uses(collectives, {"dist", "distributed", "torch"}) == OBJECT_COLLECTIVES.keys()
