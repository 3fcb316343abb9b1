"""Settings of libraries: read here, pickled, and in force again where they had been undone."""

from __future__ import annotations

import decimal
import locale
import logging
import os
import pickle
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import sklearn
import torch

from jupyter_ddl.cell.draft import CellContext
from jupyter_ddl.cell.dry_run import describe
from jupyter_ddl.cell.group_cell import compile_group_cell
from jupyter_ddl.cell.settings import CarriedSettings, read_settings
from jupyter_ddl.protocol.program import Settings, blobs_of
from jupyter_ddl.ranks.settings import RankSettings
from jupyter_ddl.settings import LIBRARIES, Library, put, put_back
from jupyter_ddl.store.blobs import put_blob
from jupyter_ddl.verbs.base import parse_line

BY_NAME = {library.name: library for library in LIBRARIES}


@pytest.fixture(autouse=True)
def everything_as_it_was() -> Iterator[None]:
    before = {library: library.values() for library in LIBRARIES if library.name != "environment"}
    handlers = logging.root.handlers.copy()
    with warnings.catch_warnings():
        yield
    logging.root.handlers[:] = handlers
    for library, values in before.items():
        assert library.name == "warnings" or put_back(library, values) == []


def _make_torch() -> None:
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    torch.set_printoptions(precision=2)
    torch.set_grad_enabled(False)


def _make_decimal() -> None:
    decimal.getcontext().prec = 7
    decimal.getcontext().traps[decimal.Inexact] = True


def _make_logging() -> None:
    logging.root.handlers.clear()
    logging.basicConfig(level=logging.INFO, format="{message}", style="{", datefmt="%H")
    logging.getLogger("ddl_test_settings").setLevel(logging.ERROR)


def _make_numpy() -> None:
    np.seterr(divide="raise")
    np.set_printoptions(precision=3, formatter={"float": lambda x: f"<{x:.1f}>"})


def _make_pandas() -> None:
    pd.set_option("display.max_rows", 7)
    pd.set_option("display.float_format", "{:.2f}".format)


MAKE: dict[str, tuple[Callable[[], Any], set[str]]] = {
    "recursion": (lambda: sys.setrecursionlimit(5000), {"limit"}),
    "locale": (lambda: locale.setlocale(locale.LC_TIME, "C.UTF-8"), {"LC_TIME"}),
    "decimal": (_make_decimal, {"prec", "traps"}),
    "logging": (_make_logging, {"root", "handlers", "logger ddl_test_settings"}),
    "numpy": (_make_numpy, {"divide", "precision", "formatter"}),
    "pandas": (_make_pandas, {"display.max_rows", "display.float_format"}),
    "matplotlib": (
        lambda: mpl.rcParams.update(
            {"lines.linewidth": 3.0, "axes.prop_cycle": "cycler('color', 'rg')"}
        ),
        {"lines.linewidth", "axes.prop_cycle"},
    ),
    "sklearn": (lambda: sklearn.set_config(transform_output="pandas"), {"transform_output"}),
    "torch": (
        _make_torch,
        {"default_dtype", "deterministic", "cudnn.benchmark", "matmul_precision",
         "print.precision", "grad"},
    ),
}  # fmt: skip


def carried_by(library: Library, tmp_path: Path) -> tuple[CarriedSettings, Settings]:
    carried = read_settings([library])
    assert carried.settings is not None
    put_blob(carried.payload, [tmp_path])
    return carried, carried.settings


@pytest.mark.parametrize("name", MAKE)
def test_a_setting_is_read_carried_put_into_force_and_taken_back(name: str, tmp_path: Path) -> None:
    library = BY_NAME[name]
    before = library.values()
    make, expected = MAKE[name]
    make()
    assert expected <= library.changed().keys()
    made = library.values()
    carried, settings = carried_by(library, tmp_path)
    assert carried.notes == ()
    assert [each.library for each in settings.carried] == [name]
    assert put_back(library, before) == []

    rank = RankSettings()
    rank.use(settings, [tmp_path])

    assert rank.take_problems() == []
    assert repr(library.values()) != repr(before)
    in_force = library.values()
    for key in expected - {"formatter", "display.float_format"}:
        assert in_force[key] == made[key]
    rank.use(None, [])
    assert library.values() == before


def test_functions_of_the_notebook_travel_within_settings(tmp_path: Path) -> None:
    _make_numpy()
    _, settings = carried_by(BY_NAME["numpy"], tmp_path)
    np.set_printoptions(precision=8, formatter=None)
    RankSettings().use(settings, [tmp_path])
    assert str(np.array([1.26])) == "[<1.3>]"


def test_log_records_come_in_the_notebooks_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _make_logging()
    _, settings = carried_by(BY_NAME["logging"], tmp_path)
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    RankSettings().use(settings, [tmp_path])
    logging.getLogger("ddl_test_other").info("told")
    logging.getLogger("ddl_test_settings").warning("not told")
    assert capsys.readouterr().err == "told\n"


def test_what_a_library_has_by_itself_is_not_carried() -> None:
    # In a process of its own: pytest sets filters, handlers and variables.
    code = (
        "import numpy, pandas, torch, sklearn.ensemble, matplotlib.pyplot, scipy.stats\n"
        "from jupyter_ddl.cell.settings import read_settings\n"
        "print(read_settings())"
    )
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONWARNINGS"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "CarriedSettings(settings=None, payload=b'', notes=())"


# -- warnings ----------------------------------------------------------------------------------


class OfTheNotebook(UserWarning):
    """As a notebook defines one: in ``__main__``."""


OfTheNotebook.__module__ = "__main__"


def test_warning_filters_are_in_force_and_those_of_libraries_stay(tmp_path: Path) -> None:
    warnings.resetwarnings()
    warnings.filterwarnings("ignore", "numpy.dtype size changed")
    plain = warnings.filters.copy()
    warnings.simplefilter("error", UserWarning)
    warnings.filterwarnings("ignore", message=".*noisy", category=FutureWarning)
    _, settings = carried_by(BY_NAME["warnings"], tmp_path)
    assert settings.carried[0].text == "ignore FutureWarning '.*noisy', error UserWarning"
    warnings.filters[:] = plain  # type: ignore[index]

    RankSettings().use(settings, [tmp_path])

    warnings.warn("so noisy", FutureWarning, stacklevel=1)
    with pytest.raises(UserWarning, match="loud"):
        warnings.warn("loud", UserWarning, stacklevel=1)
    assert warnings.filters[-1] == plain[-1]


def test_a_filter_waits_for_the_package_of_its_category(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ddl_late_package.py").write_text("class Loud(UserWarning): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import ddl_late_package  # type: ignore[import-not-found]

    warnings.simplefilter("error", ddl_late_package.Loud)
    _, settings = carried_by(BY_NAME["warnings"], tmp_path)
    monkeypatch.delitem(sys.modules, "ddl_late_package")
    warnings.resetwarnings()
    rank = RankSettings()
    rank.use(settings, [tmp_path])
    rank.keep()
    assert "ddl_late_package" not in sys.modules
    with warnings.catch_warnings():  # a trial
        import ddl_late_package

        with pytest.raises(ddl_late_package.Loud):
            warnings.warn("loud", ddl_late_package.Loud, stacklevel=1)
    rank.complete()
    with pytest.raises(ddl_late_package.Loud):  # the next one
        warnings.warn("loud", ddl_late_package.Loud, stacklevel=1)
    assert rank.take_problems() == []


# -- the environment ---------------------------------------------------------------------------


def test_variables_of_the_notebook_travel_and_no_value_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDL_TEST_API_TOKEN", "s3cret-value")
    monkeypatch.delenv("PATH")
    for name in ("JPY_X", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MASTER_PORT", "RANK",
                 "LOCAL_RANK", "WORLD_SIZE", "JUPYTER_DDL_X", "MKL_NUM_THREADS"):  # fmt: skip
        monkeypatch.setenv(name, "7")
    carried, settings = carried_by(BY_NAME["environment"], tmp_path)
    changed = BY_NAME["environment"].changed()
    assert (changed["DDL_TEST_API_TOKEN"], changed["PATH"]) == ("s3cret-value", None)
    names = set(settings.carried[0].text.split(", "))
    assert {"DDL_TEST_API_TOKEN", "PATH (removed)"} <= names
    assert not {name for name in names if name.endswith(("RANK", "PORT", "THREADS", "_X"))}
    assert "s3cret-value" not in repr(settings)
    assert b"s3cret-value" in carried.payload
    assert (tmp_path / settings.blob).stat().st_mode & 0o777 == 0o600

    monkeypatch.delenv("DDL_TEST_API_TOKEN")
    monkeypatch.setenv("PATH", "/bin")
    rank = RankSettings()
    rank.use(settings, [tmp_path])
    assert os.environ["DDL_TEST_API_TOKEN"] == "s3cret-value"
    assert "PATH" not in os.environ
    rank.use(None, [])
    assert "DDL_TEST_API_TOKEN" not in os.environ
    assert os.environ["PATH"] == "/bin"


# -- what can't travel -------------------------------------------------------------------------


def test_a_handler_that_cannot_travel_is_named_and_the_rest_travels(tmp_path: Path) -> None:
    logging.root.handlers[:] = [logging.FileHandler(tmp_path / "x.log", delay=True)]
    logging.root.setLevel(logging.DEBUG)
    with socket.socket() as connection:
        stream = connection.makefile("w")
        logging.root.addHandler(logging.StreamHandler(stream))
        carried = read_settings([BY_NAME["logging"]])
        stream.close()
    assert [note.partition(";")[0] for note in carried.notes] == [
        "not carried to ranks: a FileHandler of the root logger",
        "not carried to ranks: a StreamHandler of the root logger",
    ]
    assert carried.settings is not None
    assert carried.settings.carried[0].text.startswith("root DEBUG")


def test_a_value_that_cannot_be_pickled_is_named_and_the_rest_travels(tmp_path: Path) -> None:
    with socket.socket() as connection:
        pd.set_option("display.float_format", lambda x: f"{connection}{x}")
        pd.set_option("display.max_rows", 9)
        carried, settings = carried_by(BY_NAME["pandas"], tmp_path)
    assert len(carried.notes) == 1
    assert "pandas display.float_format=<function" in carried.notes[0]
    assert "set it inside the cell" in carried.notes[0]
    assert settings.carried[0].text == "display.max_rows=9"


def test_a_value_that_takes_too_much_along_is_named(tmp_path: Path) -> None:
    table = b"x" * (1 << 21)
    pd.set_option("display.float_format", lambda x: f"{len(table)}{x}")
    carried = read_settings([BY_NAME["pandas"]])
    assert carried.settings is None
    assert "larger than 1 MiB" in carried.notes[0]


def test_a_category_of_the_notebook_is_named(tmp_path: Path) -> None:
    warnings.simplefilter("ignore", OfTheNotebook)
    carried = read_settings([BY_NAME["warnings"]])
    assert "ignore OfTheNotebook" in carried.notes[0]
    if carried.settings is not None:
        assert b"OfTheNotebook" not in carried.payload


def test_a_library_that_has_its_settings_elsewhere_is_named_and_the_others_travel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sys.setrecursionlimit(4000)
    with monkeypatch.context() as patch:
        patch.delattr(pd._config.config, "_global_config")
        carried = read_settings([BY_NAME["pandas"], BY_NAME["recursion"]])
    assert "settings of pandas, not readable (AttributeError" in carried.notes[0]
    assert carried.settings is not None


def test_a_locale_that_is_not_here_is_one_problem_and_the_others_are_in_force(
    tmp_path: Path,
) -> None:
    wanted = {"LC_TIME": "xx_YY.UTF-8", "LC_NUMERIC": "C.UTF-8"}
    problems = put(BY_NAME["locale"], wanted)
    assert len(problems) == 1
    assert "locale LC_TIME='xx_YY.UTF-8' can't be set here (Error: unsupported" in problems[0]
    assert BY_NAME["locale"].values()["LC_NUMERIC"] == "C.UTF-8"


def test_settings_that_cannot_be_unpickled_are_a_problem_and_the_others_are_in_force(
    tmp_path: Path,
) -> None:
    import msgspec

    data = msgspec.msgpack.encode({"numpy": b"broken", "recursion": pickle.dumps({"limit": 3000})})
    rank = RankSettings()
    rank.use(Settings(put_blob(data, [tmp_path]), ()), [tmp_path])
    assert sys.getrecursionlimit() == 3000
    assert len(rank.take_problems()) == 1


# -- trials ------------------------------------------------------------------------------------


def test_what_a_trial_sets_is_put_back_and_the_notebooks_settings_stay(tmp_path: Path) -> None:
    np.set_printoptions(precision=3)
    _, settings = carried_by(BY_NAME["numpy"], tmp_path)
    np.set_printoptions(precision=8)
    rank = RankSettings()
    rank.use(settings, [tmp_path])
    rank.keep()
    np.set_printoptions(precision=1, suppress=True)
    torch.set_default_dtype(torch.float16)
    logging.getLogger("ddl_test_trial").setLevel(logging.ERROR)
    rank.restore()
    assert (np.get_printoptions()["precision"], np.get_printoptions()["suppress"]) == (3, False)
    assert torch.get_default_dtype() == torch.float32
    assert logging.getLogger("ddl_test_trial").level == logging.NOTSET


def test_the_same_settings_again_leave_alone_what_a_cell_has_set_since(tmp_path: Path) -> None:
    np.set_printoptions(precision=3)
    _, settings = carried_by(BY_NAME["numpy"], tmp_path)
    rank = RankSettings()
    rank.use(settings, [tmp_path])
    np.set_printoptions(precision=5)  # a cell of a persistent group
    rank.use(settings, [tmp_path])
    assert np.get_printoptions()["precision"] == 5


def test_a_library_gets_its_settings_when_a_rank_imports_it(tmp_path: Path) -> None:
    np.set_printoptions(precision=3)
    _, settings = carried_by(BY_NAME["numpy"], tmp_path)
    code = (
        "import sys, msgspec\n"
        "from pathlib import Path\n"
        "from jupyter_ddl.protocol.program import Settings\n"
        "from jupyter_ddl.ranks.settings import RankSettings\n"
        "rank = RankSettings()\n"
        f"rank.use(Settings({settings.blob!r}, ()), [Path({str(tmp_path)!r})])\n"
        "rank.keep()\n"
        "assert 'numpy' not in sys.modules\n"
        "import numpy\n"
        "print(numpy.get_printoptions()['precision'])\n"
        "numpy.set_printoptions(precision=1)\n"
        "rank.restore()\n"
        "print(numpy.get_printoptions()['precision'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "3\n3\n"


# -- on the way --------------------------------------------------------------------------------


def test_every_verb_that_sends_a_cell_sends_settings_and_tells_what_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_ddl.cell.settings.LIBRARIES", (BY_NAME["pandas"],))
    _make_pandas()
    with socket.socket() as connection:
        pd.set_option("display.float_format", lambda x: f"{connection}{x}")
        context = CellContext(3, tmp_path)
        for line in ("search --metric m", "ddp -n 2", "map --over items"):
            verb, options = parse_line(line)
            namespace = {"items": [1]}
            code = "item = choice(1, 2)\nreport(m=item)\n"
            draft = verb.compile(code, namespace, context, options)
            settings = draft.spec.program.settings
            assert settings is not None
            assert "pandas display.float_format" in draft.notes[0]
            assert settings.blob in dict(draft.blobs)
            shown = describe(draft).splitlines()
            at = shown.index("Settings of the notebook, in force on every rank:")
            assert shown[at + 1] == "  pandas: display.max_rows=7"
            assert settings.blob in blobs_of(draft.spec.program)
        cell = compile_group_cell("1", {}, notebook_dir=tmp_path)
    assert cell.cell.settings == settings
    assert settings.blob in dict(cell.blobs)
    assert "pandas display.float_format" in cell.notes[0]
