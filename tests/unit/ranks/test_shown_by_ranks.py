"""What a rank shows: bounded, replaced in its place, printed where it can't be shown."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl.protocol.outputs import Bundle, read_bundle
from jupyter_ddl.ranks import outputs
from tests.until import until


class Told(list[tuple[str, tuple[str, ...]]]):
    def __call__(self, file: str, _size: int, shown: tuple[str, ...]) -> None:
        self.append((file, shown))


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    """The attempt shows into ``tmp_path``."""
    found = Told()
    outputs.set_outputs(outputs.Outputs(tmp_path, "t", found))
    yield found
    outputs.set_outputs(None)


def html(text: str) -> dict[str, Any]:
    return {"text/html": text, "text/plain": f"<{text}>"}


def shown_in(folder: Path, told: Told) -> list[str]:
    """What is there after all, in order."""
    bundles = [read_bundle(folder / name) for name in told[-1][1]]
    return [bundle.data["text/html"] for bundle in bundles if bundle is not None]


def test_the_newest_ones_are_kept_and_no_file_of_others(told: Told, tmp_path: Path) -> None:
    for n in range(outputs.MAX_OUTPUTS + 5):
        outputs.publish(html(str(n)))
    outputs.close()

    assert shown_in(tmp_path, told) == [str(n) for n in range(5, outputs.MAX_OUTPUTS + 5)]
    assert {path.name for path in tmp_path.iterdir()} == set(told[-1][1])


def test_updates_replace_in_their_place_and_what_is_unknown_is_nowhere(
    told: Told, tmp_path: Path
) -> None:
    outputs.publish(html("a"), display_id="x")
    outputs.publish(html("b"))
    outputs.publish(html("c"), display_id="x", is_update=True)
    outputs.publish(html("d"), display_id="unknown", is_update=True)
    outputs.close()

    assert shown_in(tmp_path, told) == ["c", "b"]


def test_a_figure_that_a_failing_cell_leaves_open_is_shown_with_it(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from jupyter_ddl.ranks import outputs

outputs.choose_renderers(__import__("os").environ)
told = []
outputs.set_outputs(outputs.Outputs(Path(sys.argv[1]), "t", lambda *each: told.append(each)))
import matplotlib.pyplot as plt
try:
    with outputs.figures_of_failures:
        plt.plot([1, 2])
        raise ValueError("behind the figure")
except ValueError as error:
    assert error.args == ("behind the figure",) and error.__context__ is None
assert len(told) == 1 and plt.get_fignums() == [], told
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)


def test_of_a_groups_cells_the_oldest_files_go_first_and_never_those_shown_now(
    tmp_path: Path,
) -> None:
    for n in range(5):
        path = tmp_path / f"cell-{n}-r0-1.json"
        path.write_bytes(bytes(1000))
        os.utime(path, (n, n))
    (tmp_path / "current.json").write_bytes(bytes(1000))

    outputs.drop_oldest(tmp_path, ["cell-0-r0-1.json"], 3500)

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cell-0-r0-1.json", "cell-3-r0-1.json", "cell-4-r0-1.json", "current.json"
    ]  # fmt: skip
    outputs.drop_oldest(tmp_path / "none", [], 0)


def test_what_is_cleared_stays_until_something_takes_its_place(told: Told, tmp_path: Path) -> None:
    outputs.publish(html("a"))
    outputs.publish(html("b"))
    outputs.clear()
    assert len(list(tmp_path.iterdir())) == 1  # the first at once, the others by and by
    outputs.publish(html("c"))
    outputs.close()

    assert shown_in(tmp_path, told) == ["c"]
    assert len(list(tmp_path.iterdir())) == 1


def test_what_replaces_itself_quickly_is_written_seldom_but_the_last_always(
    told: Told, tmp_path: Path
) -> None:
    for n in range(1000):
        outputs.clear()
        outputs.publish(html(str(n)))
    until(lambda: shown_in(tmp_path, told) == ["999"], 2)  # without another call

    assert len(told) < 100


def test_text_is_printed_unless_it_may_be_replaced(
    told: Told, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs.publish({"text/plain": "only text"})
    outputs.publish({"text/plain": "a handle"}, display_id="x")
    outputs.close()
    outputs.publish(html("behind the end"))

    assert capsys.readouterr().out == "only text\n<behind the end>\n"
    assert len(told) == 1


def test_a_form_that_is_too_large_gives_way_to_another_or_to_a_sentence(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "MAX_OUTPUT_BYTES", 1000)
    outputs.publish({"text/html": "x" * 5000, "image/png": "y" * 500, "text/plain": "both"})
    outputs.publish({"image/png": "y" * 5000, "text/plain": "Figure"})
    outputs.close()

    first, second = (read_bundle(tmp_path / name) for name in told[-1][1])
    assert first is not None
    assert first.data.keys() == {"image/png", "text/plain"}
    assert second is not None
    assert second.text == "Figure (image/png of 4.9 KiB left out: an output may have 1000 B)"


def test_what_no_front_end_can_use_is_left_out(told: Told, tmp_path: Path) -> None:
    widget = "application/vnd.jupyter.widget-view+json"
    odd = {"application/x": object(), widget: {"model_id": "1"}, **html("a")}
    outputs.publish(odd, {"application/x": 1, "text/html": object()})
    outputs.close()

    assert read_bundle(tmp_path / told[0][0]) == Bundle(html("a"))


def test_a_disk_that_takes_nothing_is_told_where_the_output_would_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    told = Told()
    outputs.set_outputs(outputs.Outputs(tmp_path / "file" / "below", "t", told))
    outputs.publish(html("a"))
    outputs.set_outputs(None)

    assert "could not be kept: Not a directory" in capsys.readouterr().out
    assert told == []


def test_values_are_shown_in_all_their_forms_or_left_alone(told: Told, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    assert outputs.show_value(pandas.DataFrame({"a": [1]}))
    assert not outputs.show_value(pandas.Series([1]))
    assert not outputs.show_value(3)
    assert not outputs.show_value(None)
    assert not outputs.show_value(pandas.DataFrame)
    outputs.close()

    assert len(told) == 1
    (bundle,) = (read_bundle(tmp_path / name) for name in told[-1][1])
    assert bundle is not None
    assert "<table" in bundle.data["text/html"]


def test_backends_are_chosen_where_the_user_has_chosen_none() -> None:
    inline = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    outputs.choose_renderers(inline)
    assert inline["MPLBACKEND"] == "module://jupyter_ddl.ranks.figures"
    assert inline["PLOTLY_RENDERER"].startswith("plotly_mimetype")

    own = {"MPLBACKEND": "svg", "PLOTLY_RENDERER": "json"}
    outputs.choose_renderers(own)
    assert own == {"MPLBACKEND": "svg", "PLOTLY_RENDERER": "json"}


_SCRIPT = """
import os, sys, json
from pathlib import Path
from jupyter_ddl.ranks import outputs
outputs.choose_renderers(os.environ)
outputs.watch_imports()
names = []
outputs.set_outputs(outputs.Outputs(Path(sys.argv[1]), "t", lambda *all: names.append(all[2])))
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.show(); plt.show()
figure = plt.figure(); figure.add_subplot().plot([1, 2]); plt.figure()
from IPython.display import display, HTML, clear_output
display(figure)
outputs.show_figures(shown=figure)
plt.plot([3, 4])
outputs.show_figures()
assert plt.get_fignums() == []
handle = display(HTML("a"), display_id=True)
handle.update(HTML("b"))
from tqdm.notebook import tqdm, trange
from tqdm.auto import tqdm as auto
print(tqdm.__module__, trange.__module__)
assert sys.modules["tqdm.notebook"].__spec__.loader.__class__.__name__ == "SourceFileLoader"
outputs.close()
print(json.dumps(names[-1]))
"""


def test_libraries_show_here_whatever_they_are_imported_by(tmp_path: Path) -> None:

    pytest.importorskip("matplotlib")
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

    bars, files = done.stdout.splitlines()
    assert bars == "tqdm.std tqdm.std"
    bundles = [json.loads((tmp_path / name).read_text())["data"] for name in json.loads(files)]
    assert ["image/png" in data for data in bundles] == [True, True, True, False]
    assert base64.b64decode(bundles[0]["image/png"]).startswith(b"\x89PNG")
    assert bundles[3]["text/html"] == "b"
