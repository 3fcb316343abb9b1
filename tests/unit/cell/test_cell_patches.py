"""What a notebook has put in the place of functions of modules is told, once."""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_ddl.cell.patches import mentioned_names, patches_note

ADVICE = "ranks have what is installed; replace it inside the cell"


@pytest.fixture
def package() -> Iterator[Any]:
    """``ddl_patched`` with a function, a class and the module ``inner``, all of them its own."""
    made: Any = types.ModuleType("ddl_patched")
    made.inner = types.ModuleType("ddl_patched.inner")
    for module in (made, made.inner):
        code = "def get(): pass\nclass Layer:\n    def forward(self): pass\n"
        code += "class Deep(Layer): pass\n"
        exec(code, module.__dict__)
    sys.modules |= {"ddl_patched": made, "ddl_patched.inner": made.inner}
    yield made
    del sys.modules["ddl_patched"], sys.modules["ddl_patched.inner"]


def of_notebook(code: str = "def fake(*_): pass") -> Any:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(code, namespace)
    return namespace["fake"]


def told(cell: str, functions: Any = (), modules: Any = (), **namespace: Any) -> list[str]:
    tree = ast.parse(cell)
    names = mentioned_names([tree], functions)
    return list(patches_note(tree, names, namespace.values(), modules))


def test_nothing_is_told_of_modules_as_they_are(package: Any) -> None:
    assert told("import ddl_patched\np.get(); p.Layer(); p.inner.get()", p=package) == []


@pytest.mark.parametrize(
    ("cell", "has_name"),
    [("p.get()", True), ("import ddl_patched as q\nq.get()", False),
     ("from ddl_patched import get", False)],
)  # fmt: skip
def test_a_replaced_function_is_told_with_the_way_out(
    package: Any, cell: str, has_name: bool
) -> None:
    package.get = of_notebook()
    (note,) = told(cell, **({"p": package} if has_name else {}))
    assert note.startswith("the notebook has replaced ddl_patched.get, and")
    assert ADVICE in note


def test_a_function_that_the_cell_does_not_mention_is_not_told(package: Any) -> None:
    package.get = of_notebook()
    assert told("p.Layer()", p=package) == []


def test_replaced_functions_of_inner_modules_are_told(package: Any) -> None:
    package.inner.get = of_notebook("fake = lambda: 1")
    (note,) = told("p.inner.get()", p=package)
    assert "ddl_patched.inner.get" in note


def test_a_replaced_method_is_told_also_of_a_base_and_by_another_name(package: Any) -> None:
    package.Layer.forward = of_notebook()
    assert "ddl_patched.Layer.forward" in told("p.Deep()(1)", p=package)[0]
    assert "ddl_patched.Layer.forward" in told("Deep()(1)", Deep=package.Deep)[0]
    package.Layer.forward = staticmethod(of_notebook())
    assert "ddl_patched.Layer.forward" in told("p.Deep()(1)", p=package)[0]


def test_a_class_of_the_notebook_may_override_what_it_wants(package: Any) -> None:
    mine = type("Mine", (package.Layer,), {"forward": of_notebook(), "__module__": "__main__"})
    assert told("Mine()", Mine=mine) == []


def test_what_captured_functions_call_is_looked_at(package: Any) -> None:
    package.get = of_notebook()
    caller = of_notebook("def fake():\n    return [p.get() for _ in range(1)]")
    assert told("caller()", functions=[caller]) == []
    assert "ddl_patched.get" in told("caller()", [caller], ["ddl_patched"])[0]


def test_many_are_counted(package: Any) -> None:
    for name in "abcde":
        setattr(package, name, of_notebook())
    (note,) = told("p.a, p.b, p.c, p.d, p.e", p=package)
    assert "ddl_patched.a, ddl_patched.b, ddl_patched.c and 2 more" in note
