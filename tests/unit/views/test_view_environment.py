"""``%cluster env`` as HTML and as text."""

from __future__ import annotations

from pathlib import Path

from jupyter_ddl.environment.binder import read_configuration
from jupyter_ddl.protocol.facts import Difference, EnvironmentVerdict, Facts
from jupyter_ddl.views.environment import render_environment, render_verdict

_FACTS = Facts("3.12.4", "cpython", "x86_64", {"numpy": "2.1.0"}, torch_build="", blas="mkl 1")
_BAD = "<b>x</b>\x1b[31m"


def _both(drawing: object) -> tuple[str, str]:
    return drawing._repr_html_(), repr(drawing)  # type: ignore[attr-defined]


def test_what_files_ask_for_stands_beside_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy>=2\nabsent\n")
    (tmp_path / "runtime.txt").write_text("python-3.12")
    for shown in _both(render_environment(read_configuration(tmp_path), _FACTS, ())):
        for part in ("requirements.txt:1", "numpy", "2.1.0", "absent", "none", "Python 3.12"):
            assert part in shown
        assert shown.count("differs") == 1, "what is there is marked no more than what is met"


def test_without_files_the_packages_that_the_notebook_uses_are_shown() -> None:
    for shown in _both(render_environment(None, _FACTS, ["numpy"])):
        assert "no binder files beside the notebook" in shown
        assert "2.1.0" in shown


def test_a_verdict_has_its_table_and_each_command_once() -> None:
    rows = tuple(
        Difference(name, "2", "1", "all workers", False, "`%cluster env sync`")
        for name in ("numpy", "scipy")
    )
    unused = Difference("rich", "14", "13", "all workers", False, "`%cluster env sync`")
    verdict = EnvironmentVerdict("drift", rows, (unused,))
    for shown in _both(render_verdict(verdict, ["nothing more is known"])):
        assert shown.count("%cluster env sync") == shown.count("%cluster env sync --all") + 1
        assert "To fix numpy, scipy: %cluster env sync" in shown
        assert "not used here" in shown
        assert "1 other difference is in what nothing here imports" in shown
        assert "Note: nothing more is known." in shown


def test_what_nothing_uses_is_listed_below_a_verdict_of_the_same() -> None:
    unused = Difference("rich", "14", "13", "worker 0", False, "`%cluster env sync`")
    for shown in _both(render_verdict(EnvironmentVerdict("same", (), (unused,)))):
        assert "Workers have what is used here as the kernel has it." in shown
        assert "worker 0" in shown
        assert "To fix" not in shown


def test_what_only_files_ask_for_is_not_said_of_the_workers() -> None:
    row = Difference("numpy", "2.1", ">=99", "requirements.txt, line 1", False, "")
    for shown in _both(render_verdict(EnvironmentVerdict("drift", (row,)))):
        assert "Files beside the notebook ask for other packages than the kernel has." in shown
        assert "Workers differ" not in shown


def test_names_from_elsewhere_are_text_and_nothing_else() -> None:
    row = Difference(_BAD, _BAD, _BAD, _BAD, True, _BAD)
    html, text = _both(render_verdict(EnvironmentVerdict("broken", (row,)), [_BAD]))
    assert "<b>x" not in html
    assert "\x1b" not in html + text
