"""What ranks that are not in a process group must do for those that are."""

from __future__ import annotations

import ast
from pathlib import Path

import jupyter_ddl

PACKAGE = Path(jupyter_ddl.__file__).parent


def test_no_group_of_gloo_is_made_of_some_ranks_only() -> None:
    """Beside a default group of NCCL it would never be: torch has the others split that one."""
    calls = [
        node
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "new_group"
    ]
    assert calls
    for call in calls:
        names = {each.arg for each in call.keywords}
        assert not call.args or "backend" not in names, ast.unparse(call)
        assert not {"ranks", "backend"} <= names, ast.unparse(call)
