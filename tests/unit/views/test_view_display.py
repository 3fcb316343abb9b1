from __future__ import annotations

import contextlib
import io
import os
import pty
import shutil
import subprocess
from pathlib import Path

import msgspec
import nbformat
import pytest
from nbclient import NotebookClient

import tests.unit.views.view_samples as samples
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.views import LiveDisplay, TerminalScreen, render_html
from jupyter_ddl.views.display import RUN_MIME, in_notebook
from tests.unit.views.view_payloads import PAYLOADS, Structure

replace = msgspec.structs.replace
MID = samples.search()
DONE = replace(MID, seq=999, state="complete", finished_at_s=samples.NOW_S)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def displayed(stream: io.TextIOBase, clock: Clock) -> LiveDisplay:
    screen = TerminalScreen(stream, clock=clock)  # type: ignore[arg-type]
    return LiveDisplay(screen, now=lambda: samples.NOW_S, clock=clock)


def test_a_pipe_gets_a_line_every_five_seconds_and_the_whole_text_at_the_end() -> None:
    stream, clock = io.StringIO(), Clock()
    view = displayed(stream, clock)
    for k in range(100):
        clock.now_s = k * 0.12
        view.offer(samples.encoded(replace(MID, seq=k)))
    before = stream.getvalue().splitlines()
    view.finish(samples.encoded(DONE))
    assert len(before) == 3
    assert all("24/40" in line for line in before)
    assert "\r" not in stream.getvalue()
    final = stream.getvalue().splitlines()[len(before) :]
    assert final[0].startswith("width and rate (r-20260115-7f3a)")
    assert "complete" in final[0]


def _read_to_end(descriptor: int) -> bytes:
    """All that was written to a terminal whose other end is closed."""
    read = b""
    with contextlib.suppress(OSError), os.fdopen(descriptor, "rb", buffering=0) as stream:
        # Linux answers EIO, and not an empty read, when the other end is closed.
        while chunk := stream.read(65536):
            read += chunk
    return read


def test_a_terminal_line_rewrites_itself_and_is_gone_at_the_end() -> None:
    ours, theirs = pty.openpty()
    clock = Clock()
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        view = displayed(stream, clock)
        view.offer(samples.encoded(MID))
        clock.now_s = 1.0
        view.offer(samples.encoded(replace(MID, seq=400, name="w", best=None)))
        view.finish(samples.encoded(DONE))
    shown = _read_to_end(ours).decode()
    lines = shown.split("\r\n")
    first, second, erased, header = lines[0].split("\r")[1:]
    assert "width and rate running" in first
    assert second.startswith("w running")
    assert len(second) == len(first), "the longer line before it is covered"
    assert erased.strip() == ""
    assert "complete" in header


def test_a_stream_without_unicode_gets_ascii() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    view = displayed(stream, Clock())
    view.offer(samples.encoded(replace(MID, name="größer")))
    view.finish(samples.encoded(replace(DONE, name="größer")))
    assert b"gr??er" in raw.getvalue()
    assert b"###" in raw.getvalue()


def test_nothing_is_drawn_after_the_end_and_the_end_comes_once() -> None:
    stream, clock = io.StringIO(), Clock()
    view = displayed(stream, clock)
    view.offer(samples.encoded(MID))
    view.finish()
    text = stream.getvalue()
    clock.now_s = 60.0
    view.offer(samples.encoded(DONE))
    view.tick()
    view.finish(samples.encoded(DONE))
    assert stream.getvalue() == text


def test_what_is_offered_is_drawn_and_again_a_second_later_but_nothing_older() -> None:
    drawn: list[int] = []

    class Canvas:
        def draw(self, snapshot: EncodedSnapshot, now_s: float) -> None:
            drawn.append(snapshot.seq)

        def close(self, snapshot: EncodedSnapshot, now_s: float) -> None:
            drawn.append(-snapshot.seq)

    clock = Clock()
    view = LiveDisplay(Canvas(), clock=clock)
    view.tick()
    for seq in (7, 9, 8):
        view.offer(samples.encoded(replace(MID, seq=seq)))
    for _ in range(24):
        clock.now_s += 0.1
        view.tick()
    view.finish()
    assert drawn == [7, 9, 9, 9, -9]


def test_a_traceback_is_left_out_where_the_cell_shows_it() -> None:
    failed = samples.encoded(replace(DONE, state="failed", failure=samples.VALUE_ERROR))
    for tracebacks in (True, False):
        stream = io.StringIO()
        TerminalScreen(stream, tracebacks=tracebacks).close(failed, samples.NOW_S)
        assert "ValueError" in stream.getvalue()
        assert ("train_one_epoch" in stream.getvalue()) == tracebacks


def test_finishing_without_any_snapshot_writes_nothing() -> None:
    stream = io.StringIO()
    displayed(stream, Clock()).finish()
    assert stream.getvalue() == ""


def test_a_plain_interpreter_is_no_notebook() -> None:
    assert not in_notebook()


@pytest.mark.kernel
def test_a_cell_leaves_one_output_of_static_html_and_text() -> None:
    source = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[3])!r})\n"
        "import msgspec\n"
        "from tests.unit.views import view_samples as s\n"
        "from jupyter_ddl.views import LiveDisplay\n"
        "ticks = iter(range(1000))\n"
        "view = LiveDisplay(now=lambda: s.NOW_S, clock=lambda: next(ticks))\n"
        "for _ in range(5):\n"
        "    view.offer(s.encoded(s.search()))\n"
        "view.finish(s.encoded(msgspec.structs.replace(s.search(), state='complete')))\n"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    (output,) = notebook.cells[0].outputs
    assert output.output_type == "display_data"
    assert set(output.data) == {RUN_MIME, "text/html", "text/plain"}
    assert "complete" in output.data["text/plain"]
    assert "Interrupt the kernel" not in output.data["text/html"]
    assert "svg" not in Structure(output.data["text/html"]).tags


@pytest.mark.browser
def test_a_browser_finds_no_element_that_a_payload_brought(tmp_path: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")

    def fragment(text: str) -> str:
        shot = replace(MID, name=text, metric=text, cluster=text, notices=(text,), paused=text)
        failure = replace(samples.VALUE_ERROR, message=text, traceback=text, type_name=text)
        row = replace(
            MID.rows[0], state="failed", failure=failure, worker=text, params={text: text}
        )
        return render_html(replace(shot, rows=(row,)), now_s=samples.NOW_S, live=False)

    blocks = "".join(f"<section>{fragment(text)}</section>" for text in ("harmless", *PAYLOADS))
    page = tmp_path / "page.html"
    page.write_text(
        f"<!doctype html><meta charset=utf-8><body>{blocks}<pre id=out></pre><script>"
        "const n = [...document.querySelectorAll('section')]"
        ".map(s => [...s.querySelectorAll('*')].map(e => e.tagName + e.attributes.length).join());"
        "document.title = n.length + ' ' + new Set(n).size + ' '"
        " + document.body.children.length;</script>",
        encoding="utf-8",
        errors="replace",
    )
    done = subprocess.run(
        [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    n = len(PAYLOADS) + 1
    assert f"<title>{n} 1 {n + 2}</title>" in done.stdout
