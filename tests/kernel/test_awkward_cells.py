"""Cells that are awkward to send: each works as plain Python does, or is refused by one line.

All of them on one kernel and one cluster.  What works has the same value, and prints the same, as
the cell without its first line; what is refused is named, with the way out.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import textwrap
from collections.abc import Iterator

import pytest

from tests.leaks import end_processes, leftovers_of, new_home
from tests.live_kernel import LiveKernel

pytestmark = pytest.mark.kernel

_TIMEOUT_S = 120.0


@dataclasses.dataclass(frozen=True)
class _Cell:
    name: str
    body: str
    above: str = ""
    """Cells above it, divided by lines of ``# --``."""
    gives: str = ""
    """The value's ``repr`` where the notebook itself does something else."""
    says: str = ""
    """What the refusal says: it is expected to be one."""
    exact: bool = False
    """The body as it is, not dedented."""

    def __str__(self) -> str:
        return self.name


_CELLS = [
    # -- syntax ------------------------------------------------------------------------------------
    _Cell(
        "a class with super() and a closure",
        """
        factor = 3
        def scaled(k):
            class Scaled(Base):
                def value(self): return super().value() * k * factor
            return Scaled
        scaled(2)().value()
        """,
        above="class Base:\n    def value(self): return 7",
    ),
    _Cell("a walrus", "data = [1, 5, 9]\n[y for x in data if (y := x * 2) > 5], y"),
    _Cell(
        "scopes of comprehensions",
        """
        n = 10
        class Table:
            rows = range(3)
            cells = [[n * i + j for j in range(2)] for i in rows]
        x = "kept"
        [x for x in range(3)], x, Table.cells, {k: v for k, v in zip("ab", (1, 2))}
        """,
    ),
    _Cell(
        "nonlocal",
        """
        def counter():
            n = 0
            def up():
                nonlocal n
                n += 1
                return n
            return up
        up = counter(); up(); up()
        """,
    ),
    _Cell(
        "await at the top level",
        """
        import asyncio
        async def later(x):
            await asyncio.sleep(0)
            return x + 1
        first = await later(1)
        async def numbers():
            for i in range(3): yield i
        [i async for i in numbers()], first, await asyncio.gather(later(2), later(3))
        """,
    ),
    _Cell(
        "generators",
        """
        def inner():
            got = yield 1
            return got * 2
        def outer():
            result = yield from inner()
            yield result
        g = outer()
        next(g), g.send(21), list(g)
        """,
    ),
    _Cell(
        "decorators with arguments",
        "@repeated(3)\ndef greet(): return offset\ngreet()",
        above="""
        import functools
        offset = 2
        def repeated(n):
            def wrap(function):
                @functools.wraps(function)
                def inner(*args): return [function(*args) + offset for _ in range(n)]
                return inner
            return wrap
        """,
    ),
    _Cell(
        "dataclasses",
        """
        @dataclass(order=True)
        class Pixel(Point):
            colour: str = "red"
        sorted([Pixel(2, 1), Pixel(1)]), origin == Point(0), replace(origin, x=5)
        """,
        above="""
        from dataclasses import dataclass, field, replace
        @dataclass(order=True)
        class Point:
            x: int
            tags: int = field(default_factory=lambda: 4)
        origin = Point(0)
        """,
    ),
    _Cell(
        "enumerations",
        "chosen is Colour.RED, Colour(2), [c.name for c in Colour], Mode.A | Mode.B",
        above="""
        from enum import Enum, Flag, auto
        class Colour(Enum):
            RED = auto()
            GREEN = auto()
        class Mode(Flag):
            A = 1
            B = 2
        chosen = Colour.RED
        """,
    ),
    _Cell(
        "named tuples, typed dicts, protocols",
        """
        p = Pair(1)
        isinstance(Duck(), Quacks), p._replace(b=5), Config(lr=0.1), Box[int](3).get()
        """,
        above="""
        from typing import Generic, NamedTuple, Protocol, TypedDict, TypeVar, runtime_checkable
        T = TypeVar("T")
        class Pair(NamedTuple):
            a: int
            b: int = 2
        class Config(TypedDict, total=False):
            lr: float
        @runtime_checkable
        class Quacks(Protocol):
            def quack(self) -> str: ...
        class Duck:
            def quack(self): return "!"
        class Box(Generic[T]):
            def __init__(self, v: T): self.v = v
            def get(self) -> T: return self.v
        """,
    ),
    _Cell(
        "pattern matching",
        """
        def kind(value):
            match value:
                case {"lr": float(lr), **rest} if rest: return lr, rest
                case [first, *others]: return first, others
                case Shape(size=s): return s
                case str() | None as nothing: return nothing
                case _: return "?"
        [kind(v) for v in ({"lr": 0.1, "n": 2}, [1, 2, 3], Shape(4), "text", 7)]
        """,
        above="""
        class Shape:
            __match_args__ = ("size",)
            def __init__(self, size): self.size = size
        """,
    ),
    _Cell(
        "global",
        """
        def bump():
            global n_bumps
            n_bumps += 1
        bump(); bump()
        n_bumps
        """,
        above="n_bumps = 5",
        gives="7",
    ),
    _Cell("a star import", "from math import *\nround(sin(pi / 2) + e, 3)"),
    _Cell(
        "exception groups",
        """
        seen = []
        try:
            raise ExceptionGroup("both", [ValueError(1), KeyError("k")])
        except* ValueError as group:
            seen += [str(e) for e in group.exceptions]
        except* KeyError as group:
            seen.append("key")
        seen
        """,
    ),
    _Cell(
        "metaclasses and hooks of subclasses",
        """
        class Second(Plugin): pass
        [kind.__name__ for kind in Plugin.known], Named.tag, type(Named).__name__
        """,
        above="""
        class Plugin:
            known = []
            def __init_subclass__(cls): Plugin.known.append(cls)
        class First(Plugin): pass
        class Meta(type):
            def __new__(mcls, name, bases, names):
                return super().__new__(mcls, name, bases, {**names, "tag": name.lower()})
        class Named(metaclass=Meta): pass
        """,
        gives="(['First', 'Second'], 'named', 'Meta')",
    ),
    _Cell(
        "descriptors and slots",
        """
        p = Positive(); p.n = 3
        try:
            p.n = -1
        except ValueError as error:
            p.why = str(error)
        p.n, p.why
        """,
        above="""
        class AtLeast:
            def __init__(self, low): self.low = low
            def __set_name__(self, owner, name): self.name = "_" + name
            def __get__(self, obj, owner=None): return getattr(obj, self.name)
            def __set__(self, obj, value):
                if value < self.low: raise ValueError(f"{self.name} < {self.low}")
                setattr(obj, self.name, value)
        class Positive:
            __slots__ = ("_n", "why")
            n = AtLeast(0)
        """,
    ),
    _Cell("unicode identifiers", "größe = 2\nπ = 3\nΔx = größe * π\nΔx, 'naïve ✓ 日本'"),
    _Cell("a very long line", f"x = [{', '.join(map(str, range(20_000)))}]\nsum(x)"),
    _Cell(
        "an expression of thousands of terms",
        f"x = {' + '.join(['1'] * 2_000)}\nx",
        says="expression of too many terms; split it",
    ),
    _Cell(
        "a table's query",
        "table.query('x > @low').x.tolist()",
        above="import pandas as pd\ntable, low = pd.DataFrame({'x': [1, 2, 3]}), 1",
    ),
    _Cell("names in strings", "eval('low + 1'), high", above="low, high = 3, 4"),
    _Cell("semicolons", "a = 1; b = 2; a + b"),
    _Cell("tabs", "if True:\n\tx = 1\n\tif x:\n\t\tx += 1\nx"),
    _Cell("carriage returns", "x = 1\r\nif x:\r\n    x += 4\r\nx", exact=True),
    _Cell("an indented cell", "    x = 3\n    x * 2", exact=True),
    _Cell("a cell pasted from a terminal", ">>> x = 3\n>>> x * 2\n", exact=True),
    _Cell("braces in strings", "rank = 'r'\nf'{rank} {{}} {rank!r:>5}', '{rank}', '$rank'"),
    _Cell(
        "a docstring first",
        "'''Not the value.'''\nx = 1\nx, __doc__",
        gives="(1, 'Not the value.')",
    ),
    _Cell(
        "annotations of names that exist for type checkers only",
        """
        from __future__ import annotations
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from nowhere_at_all import Thing
        def f(x: Thing) -> list[Thing]: return [x]
        f(1), f.__annotations__
        """,
    ),
    # -- names -------------------------------------------------------------------------------------
    _Cell(
        "functions of the notebook that call each other",
        "even(10), odd(7), helper(2)",
        above="""
        def even(n): return n == 0 or odd(n - 1)
        # --
        def odd(n): return n != 0 and even(n - 1)
        constant = 4
        helper = lambda x: table["square"](x) + constant
        table = {"square": lambda x: x * x, "back": lambda x: helper(x)}
        """,
    ),
    _Cell(
        "memoised functions",
        "fib(30), fib.cache_info().misses, area(2), area([1, 2]), Grid(3).total, Grid(3).twice()",
        above="""
        import functools
        step = 1
        @functools.cache
        def fib(n): return n if n < 2 else fib(n - step) + fib(n - 2)
        fib(10)
        fib.cache_clear()
        @functools.singledispatch
        def area(x): return x
        @area.register
        def _(x: list): return [area(each) for each in x]
        class Grid:
            def __init__(self, n): self.n = n
            @functools.cached_property
            def total(self): return fib(self.n)
            @functools.lru_cache(maxsize=4)
            def times(self, k): return self.n * k
            twice = functools.partialmethod(times, 2)
        """,
    ),
    _Cell(
        "partials and bound methods",
        "double(4), add(3), sorted('bA', key=lower), pick({'k': 1})",
        above="""
        import functools, operator
        def times(a, b=1): return a * b
        double = functools.partial(times, b=2)
        class Adder:
            def __init__(self, n): self.n = n
            def add(self, x): return x + self.n
        add = Adder(10).add
        lower = str.lower
        pick = operator.itemgetter("k")
        """,
    ),
    _Cell("shadowed builtins", "list = [1]\nlist + [sum], max(3, 4)", above="sum = 3"),
    _Cell("a deleted name", "x = 1\ndel x\ntry:\n    x\nexcept NameError:\n    y = 'gone'\ny"),
    _Cell("exec and eval", "exec('made = base_ * 2')\nmade, eval('base_ + 1')", above="base_ = 4"),
    _Cell("globals()", "globals()['made_'] = 3\nmade_, 'made_' in globals()"),
    _Cell(
        "the last outputs", "_ + 1, __, Out[max(Out)]", above="10\n# --\n20", gives="(21, 10, 20)"
    ),
    _Cell("the inputs", "In[-2] if len(In[-1]) > 30 else In[-1]", above="1 + 1", gives="'1 + 1'"),
    _Cell("an if main", "x = 0\nif __name__ == '__main__':\n    x = 1\nx, __name__"),
    _Cell(
        "the file of a script",
        "from pathlib import Path\nPath(__file__).name",
        says=r"'__file__' is not defined",
    ),
    _Cell("exit()", "x = 1\nif x:\n    exit()\nx", gives="None"),
    _Cell("quit() in a function", "leave()\n5", above="def leave(): quit()", gives="None"),
    _Cell("sys.exit(0)", "import sys\nsys.exit(0)", gives="None"),
    _Cell(
        "a breakpoint", "x = 1\nbreakpoint()\nx", says=r"line 3: breakpoint\(\) has nobody to talk"
    ),
    _Cell("input()", "name = input('who? ')\nname", says=r"line 2: input\(\) has nobody to ask"),
    _Cell(
        "display",
        "display('shown', 3)\n4",
        gives="4",
    ),
    _Cell(
        "get_ipython()", "get_ipython().user_ns\n1", says=r"line 2: get_ipython\(\) .*another cell"
    ),
    _Cell(
        "whether this is a notebook",
        "'get_ipython' in globals() and get_ipython() is None",
        gives="True",
    ),
    # -- IPython's own syntax ----------------------------------------------------------------------
    _Cell("a magic", "x = 1\n%timeit x", says=r"line 3: a magic .*another cell"),
    _Cell("a shell command", "!ls\n1", says=r"line 2: a shell command .*another cell"),
    _Cell(
        "the output of one", "files = !ls\nfiles", says=r"line 2: a shell command .*another cell"
    ),
    _Cell("a cell magic inside", "%%time\n1 + 1", says=r"line 2: .*magic.*"),
    _Cell("a question", "len?", says=r"line 2: a magic .*another cell"),
    _Cell("an empty cell", "", says="cell body is empty"),
    _Cell("comments only", "# nothing\n# here\n", says="is empty: write the code"),
    _Cell("return at the top", "return 1", says=r"line 2: syntax error: 'return' outside function"),
    # -- values that stay --------------------------------------------------------------------------
    _Cell(
        "a lock",
        "lock",
        above="import threading\nlock = threading.Lock()",
        says="lock is a .*creat",
    ),
    _Cell(
        "a lock in an object",
        "with holder.lock: pass",
        above="""
        import threading
        class Holder:
            def __init__(self): self.lock = threading.Lock()
        holder = Holder()
        """,
        says=r"holder\.lock, part of 'holder'.*create it inside the cell",
    ),
    _Cell(
        "an open file",
        "file.write('x')",
        above="file = open('a.txt', 'w')",
        says="file is a .*open it",
    ),
    _Cell(
        "a socket", "s", above="import socket\ns = socket.socket()", says="s is a socket.*open it"
    ),
    _Cell(
        "a generator",
        "list(gen)",
        above="gen = (i for i in range(3))",
        says="gen is a generator.*list",
    ),
    _Cell(
        "a context variable",
        "var.get()",
        above="import contextvars\nvar = contextvars.ContextVar('v', default=1)",
        says="var is a .*create it",
    ),
    _Cell(
        "a weak reference",
        "ref()",
        above="import weakref\nclass Node: pass\nnode = Node()\nref = weakref.ref(node)",
        says="ref is a weakref.*create it inside",
    ),
    _Cell(
        "a thread",
        "t.name",
        above="import threading\nt = threading.Thread()",
        says="t.*create it inside",
    ),
    _Cell(
        "an iterator",
        "list(it), list(items_)",
        above="it = iter([1, 2])\nitems_ = {'a': 1}.items()",
    ),
    # -- the process -------------------------------------------------------------------------------
    _Cell(
        "threads",
        """
        import threading
        lock, found = threading.Lock(), []
        def work(i):
            with lock: found.append(i * k_)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        [t.start() for t in threads]; [t.join() for t in threads]
        sorted(found)
        """,
        above="k_ = 2",
    ),
    _Cell(
        "a pool of threads and one of processes",
        """
        from concurrent.futures import ThreadPoolExecutor
        import multiprocessing
        with ThreadPoolExecutor(2) as pool:
            threads = list(pool.map(square_, range(3)))
        with multiprocessing.get_context("fork").Pool(2) as pool:
            processes = pool.map(square_, range(3))
        threads, processes
        """,
        above="def square_(x): return x * x",
    ),
    _Cell(
        "a child process",
        """
        import subprocess, sys
        command = [sys.executable, "-c", "print(6 * 7)"]
        subprocess.run(command, capture_output=True, text=True).stdout
        """,
    ),
    _Cell("atexit", "import atexit\natexit.register(print, 'bye').__name__"),
    _Cell(
        "signal handlers",
        """
        import os, signal
        got = []
        old = signal.signal(signal.SIGUSR1, lambda *_: got.append("usr1"))
        os.kill(os.getpid(), signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, old)
        got
        """,
    ),
    _Cell(
        "context variables and weak references of its own",
        """
        import contextvars, weakref
        var = contextvars.ContextVar("v", default=1)
        var.set(2)
        class Node: pass
        node = Node(); ref = weakref.ref(node)
        alive = ref() is node
        del node
        var.get(), alive, ref()
        """,
    ),
    _Cell(
        "pickling what the cell defines",
        """
        import pickle
        class Mine:
            def __init__(self, n): self.n = n
            def __eq__(self, other): return self.n == other.n
        pickle.loads(pickle.dumps(Mine(3))) == Mine(3), pickle.loads(pickle.dumps(above_))(2)
        """,
        above="def above_(x): return x + 1",
    ),
    _Cell(
        "the source of functions",
        """
        import inspect
        def here(x):
            return x  # of this cell
        inspect.getsource(here), inspect.getsource(there)
        """,
        above="def there(x):\n    return x  # of another one",
    ),
    _Cell(
        "warnings",
        """
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn("careful")
        [str(w.message) for w in caught]
        """,
    ),
    _Cell(
        "logging",
        """
        import io, logging
        stream = io.StringIO()
        log_ = logging.getLogger("awkward")
        log_.addHandler(logging.StreamHandler(stream)); log_.setLevel("INFO")
        log_.info("%s of %d", "one", 2)
        stream.getvalue()
        """,
    ),
    _Cell(
        "tempfile",
        """
        import tempfile
        with tempfile.NamedTemporaryFile("w+") as f:
            f.write("x"); f.seek(0); t = f.read()
        t
        """,
    ),
    _Cell(
        "argparse",
        """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float, default=0.1)
        parser.parse_args()
        """,
        gives="Namespace(lr=0.1)",
    ),
    _Cell(
        "a module in the folder above",
        "import above_module_\nabove_module_.f(2), above_module_.__name__",
        above="""
        import os, sys
        os.makedirs("inner_", exist_ok=True); os.makedirs("outer_", exist_ok=True)
        from pathlib import Path
        module = "import above_part_\\ndef f(x): return above_part_.N * x\\n"
        n = Path("outer_/above_module_.py").write_text(module)
        n = Path("outer_/above_part_.py").write_text("N = 21\\n")
        sys.path.append("outer_")
        """,
    ),
    _Cell("asyncio.run", "import asyncio\nasync def f(): return 3\nasyncio.run(f())", gives="3"),
    _Cell("output to both streams", "import sys\nprint('out'); print('err', file=sys.stderr); 1"),
]


@pytest.fixture(scope="module")
def kernel() -> Iterator[LiveKernel]:
    with new_home() as home, pytest.MonkeyPatch.context() as environment:
        environment.setenv("JUPYTER_DDL_PREWARM", "")
        live = LiveKernel(home)
        live.run("%load_ext jupyter_ddl\n%cluster start -n 1", _TIMEOUT_S).check()
        yield live
        live.close()
        found = leftovers_of(home)
        end_processes(home)
        if found:
            pytest.fail("left behind:\n" + "\n".join(found), pytrace=False)


@pytest.mark.parametrize("case", _CELLS, ids=str)
def test_a_cell_works_as_plain_python_does_or_is_refused_in_one_line(
    kernel: LiveKernel, case: _Cell
) -> None:
    kernel.run("%reset -f\none_ = [0]").check()
    for cell in textwrap.dedent(case.above).split("# --\n"):
        kernel.run(cell).check()
    body = case.body if case.exact else textwrap.dedent(case.body).strip("\n")

    out = kernel.run(f"%%distribute map --over one_ -o run_\n{body}", _TIMEOUT_S)

    if case.says:
        shown = (out.error[2] if out.error else out.stderr).strip().splitlines()
        lines = [line for line in shown if not line.startswith("    ")]
        assert len(lines) == 1, out.everything
        assert re.search(case.says, lines[0]), lines[0]
        return
    out.check()
    value = kernel.value("run_.values[0]")
    if case.gives:
        assert value == case.gives
        return
    logs = ast.literal_eval(kernel.value("run_.logs(0)"))
    plain = kernel.run(body).check()
    assert value == ("None" if plain.result is None else kernel.value("Out[max(Out)]"))
    assert logs.splitlines() == [*plain.text.splitlines(), *plain.stderr.splitlines()]


def test_a_traceback_shows_the_other_cells_number_and_line(kernel: LiveKernel) -> None:
    kernel.run("%reset -f\none_ = [0]").check()
    kernel.run("def inverse(x):\n    # of this cell\n    return 1 / x").check()
    number = int(kernel.value("len(In) - 2"))
    out = kernel.run("%%distribute map --over one_\ninverse(item)", _TIMEOUT_S)
    assert out.error is not None
    assert re.search(
        rf"In \[{number + 2}\], line 2\n +inverse\(item\)\n(?: +[~^]+\n)?"
        rf" +In \[{number}\], line 3, in inverse\n +return 1 / x\n",
        out.everything,
    ), out.everything


def test_what_an_earlier_cell_takes_from_the_future_holds(kernel: LiveKernel) -> None:
    kernel.run("%reset -f\none_ = [0]").check()
    kernel.run("from __future__ import annotations").check()
    cell = "def f(x: Nowhere): return x\nf.__annotations__, f(item)"
    kernel.run(f"%%distribute map --over one_ -o run_\n{cell}", _TIMEOUT_S).check()
    assert kernel.value("run_.values[0]") == "({'x': 'Nowhere'}, 0)"
    out = kernel.run("%%distribute map --over one_\n\n1 / item", _TIMEOUT_S)
    assert out.error is not None
    assert "at line 3 of the cell" in out.error[1]


def test_a_debugger_behind_a_condition_is_told_the_way_out(kernel: LiveKernel) -> None:
    kernel.run("%reset -f\none_ = [0]").check()
    cell = "import pdb\nif item == 0:\n    pdb.set_trace()\n    x = 2\nx"
    out = kernel.run(f"%%distribute map --over one_ --max-failures 1\n{cell}", _TIMEOUT_S)
    assert out.error is not None
    assert "BdbQuit: a debugger has nobody to talk to on a rank: print or report" in out.error[1]
