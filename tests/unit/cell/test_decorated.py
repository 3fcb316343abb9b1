"""What functools makes of the notebook's functions: it travels, with empty caches."""

import functools
import sys
import types

import pytest
from IPython.core.interactiveshell import InteractiveShell

from jupyter_ddl.cell.capture import capture
from jupyter_ddl.cell.names import names_to_capture, read_names
from jupyter_ddl.cell.source import read_source
from jupyter_ddl.errors import CaptureError
from tests.unit.cell.cell_makers import compiled, notebook, restored


def travelled(code, *names, **more):
    """The namespace of a rank that was sent ``names`` of a notebook with ``code``."""
    there = notebook(f"import functools\n{code}", **more)
    return restored(capture({name: there[name] for name in names}, there))


@pytest.mark.parametrize("decorator", ["cache", "lru_cache", "lru_cache(maxsize=2, typed=True)"])
def test_a_memoised_function_calls_itself_and_begins_with_an_empty_cache(decorator):
    code = f"""
base = 1
@functools.{decorator}
def fib(n):
    "Fibonacci."
    return n if n < 2 else fib(n - 1) + fib(n - 2) + base - 1
fib.mark = 7
fib(20)
"""
    rank = travelled(code, "fib", "base")
    fib = rank["fib"]
    settings = functools.lru_cache(2, True) if "typed" in decorator else functools.lru_cache
    assert fib.cache_info().currsize == 0
    assert fib(20) == 6765
    assert (fib.__name__, fib.__doc__, fib.mark) == ("fib", "Fibonacci.", 7)
    assert fib.__wrapped__.__globals__ is rank
    assert rank["fib"] is fib
    if "typed" in decorator:
        assert fib.cache_parameters() == settings(len).cache_parameters()
        assert fib.cache_info().currsize == 2
    else:
        assert fib.cache_info().hits == 18


def test_a_memoised_function_needs_no_package():
    there = notebook("import functools\n@functools.cache\ndef f(x):\n    return x")
    assert compiled("map --over items", "f(item)", {**there, "items": [1]}).imports == frozenset()


def test_memoised_functions_of_each_other_are_one_function_each_on_a_rank():
    code = """
@functools.cache
def even(n): return n == 0 or odd(n - 1)
@functools.cache
def odd(n): return n != 0 and even(n - 1)
pair = [even, even, odd]
"""
    rank = travelled(code, "pair", "even")
    first, again, odd = rank["pair"]
    assert first is again is rank["even"]
    assert odd is first.__wrapped__.__globals__["odd"]
    assert first(10)
    assert odd.cache_info().currsize == 5


def test_decorators_upon_decorators():
    code = """
calls = []
def loud(function):
    @functools.wraps(function)
    def inner(*args):
        calls.append(args)
        return function(*args)
    return inner
@functools.cache
@loud
def under(x): return x + 1
@loud
@functools.cache
def over(x): return x + 2
of_part = functools.cache(functools.partial(max, 3))
def closed():
    k = 10
    @functools.cache
    def go(n): return k if n == 0 else go(n - 1) + 1
    return go
inner = closed()
"""
    rank = travelled(code, "under", "over", "of_part", "inner")
    assert [rank["under"](1), rank["under"](1), rank["over"](1), rank["over"](1)] == [2, 2, 3, 3]
    assert rank["calls"] == [(1,), (1,), (1,)]
    assert rank["of_part"](5) == 5
    assert rank["of_part"](1) == 3
    assert rank["inner"](3) == 13
    assert rank["inner"].cache_info().currsize == 4


def test_a_class_with_memoised_methods_and_properties():
    code = """
n_computed = 0
class Base:
    def size(self): return 1
class Data(Base):
    def __init__(self, n): self.n = n
    @functools.lru_cache(maxsize=None)
    def size(self): return super().size() + self.n
    @functools.cached_property
    def total(self):
        "Its sum."
        global n_computed
        n_computed += 1
        return sum(range(self.n))
    @staticmethod
    @functools.cache
    def square(x): return x * x
    @classmethod
    @functools.cache
    def make(cls, n): return cls(n)
    def add(self, a, b=0): return self.n + a + b
    add_five = functools.partialmethod(add, 5, b=1)
data = Data(4)
data.size()
"""
    rank = travelled(code, "Data", "data", "n_computed")
    data = rank["data"]
    assert type(data) is rank["Data"]
    assert rank["Data"].size.cache_info().currsize == 0
    assert (data.size(), data.add_five(), rank["Data"].square(3)) == (5, 10, 9)
    assert [data.total, data.total, rank["n_computed"]] == [6, 6, 1]
    assert rank["Data"].total.__doc__ == "Its sum."
    assert rank["Data"].make(2) is rank["Data"].make(2)


def test_single_dispatch_has_all_that_was_registered():
    code = """
import numbers
class Point: pass
@functools.singledispatch
def name(value): return "something"
@name.register
def _(value: int): return "int"
@name.register(list)
def of_list(value): return [name(each) for each in value]
@name.register(Point)
def _(value): return "point"
name.register(numbers.Real, lambda value: "real")
name.mark = 1
class Shown:
    @functools.singledispatchmethod
    def show(self, value): return "?"
    @show.register
    def _(self, value: str): return value.upper()
@functools.singledispatch
@functools.cache
def both(n): return n if n < 1 else both(n - 1)
"""
    rank = travelled(code, "name", "Point", "Shown", "both")
    name = rank["name"]
    assert name([1, 2.5, rank["Point"](), "x"]) == ["int", "real", "point", "something"]
    assert (name.mark, name.__name__) == (1, "name")
    assert [rank["Shown"]().show(1), rank["Shown"]().show("a")] == ["?", "A"]
    assert rank["both"](4) == 0
    assert rank["both"].registry[object].cache_info().currsize == 5


def test_a_function_of_a_module_travels_by_its_name(monkeypatch):
    module = types.ModuleType("beside_")
    exec(
        "import functools\n@functools.cache\ndef f(x): return x\n"
        "@functools.singledispatch\ndef g(x): return x",
        module.__dict__,
    )
    monkeypatch.setitem(sys.modules, "beside_", module)
    here = notebook(f=module.f, g=module.g)
    captured = capture({"f": module.f, "g": module.g}, here)
    assert "beside_" in captured.modules
    rank = restored(captured)
    assert rank["f"] is module.f
    assert rank["g"] is module.g


def test_what_a_memoised_function_drags_along_is_refused_by_its_path():
    here = notebook(
        "import functools, threading\nlock = threading.Lock()\n"
        "@functools.cache\ndef f(x):\n    with lock: return x\n"
    )
    with pytest.raises(CaptureError, match=r"^f.* → lock, part of 'f', is a _thread\.lock"):
        capture({"f": here["f"]}, here)


@pytest.fixture(scope="module")
def shell():
    made = InteractiveShell()
    yield made
    made.history_manager.end_session()


def test_names_that_a_shell_hides_are_those_of_a_rank(shell):
    """While IPython runs a cell, ``builtins`` has neither ``exit`` nor ``quit``."""
    shell.run_cell("def leave(code=0):\n    get_ipython()\n    exit(code) if code else quit()\n")
    names = read_names(read_source("exit()\nquit\nopen\nleave()").tree)
    with shell.builtin_trap:
        assert names_to_capture(names, shell.user_ns) == ("leave",)
        captured = capture({"leave": shell.user_ns["leave"]}, shell.user_ns)
    leave = restored(captured)["leave"]
    with pytest.raises(SystemExit) as ended:
        leave(3)
    assert ended.value.code == 3
    assert names_to_capture(read_names(read_source("exit").tree), {"exit": None}) == ("exit",)


def test_code_of_another_cell_tells_its_number_and_brings_its_lines(shell):
    shell.run_cell(
        "def outer(x):\n    def inner():\n        return 1 / x\n    return inner()\n", True
    )
    number = shell.execution_count - 1
    captured = capture({"outer": shell.user_ns["outer"]}, shell.user_ns)
    outer = restored(captured)["outer"]
    inner = next(part for part in outer.__code__.co_consts if isinstance(part, types.CodeType))
    assert outer.__code__.co_filename == inner.co_filename == f"In [{number}]"
    assert captured.sources[f"In [{number}]"].splitlines()[2] == "        return 1 / x"
    here = notebook("def f(): pass")
    assert capture({"f": here["f"]}, here).sources == {}
