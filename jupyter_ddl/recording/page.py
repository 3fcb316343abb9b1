"""A recording as one page of HTML, and ``%runs export RUN FILE`` for every form of file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
from pathlib import Path

from jupyter_ddl.errors import RecordingError
from jupyter_ddl.formats import format_bytes, format_count, format_counted
from jupyter_ddl.recording.lines import Head, Recording, time_of
from jupyter_ddl.recording.timeline import last_snapshot, timeline_of
from jupyter_ddl.recording.write import record_run, save_text, write_recording
from jupyter_ddl.views.bundle import live_css, replay_page_esm
from jupyter_ddl.views.drawing import esc, plain_lines
from jupyter_ddl.views.html import render_html

__all__ = ["SUFFIXES", "export_run", "page_html", "save_page"]


# A recording as one page of HTML that plays it: no kernel, no server, no network.
#
# The page's own policy forbids every script but the two of it, and every address.  The player is
# packed, a third of its size; the first script unpacks it, and the policy names the digest of what
# comes out.  What comes from the run is base64 in an element of data, so nothing in it can end a
# script or begin one.

_MAX_CELL = 20_000
_CSS = """
:root { color-scheme: light dark; }
body {
  margin: 0 auto;
  padding: 16px;
  max-width: 1040px;
  background: Canvas;
  color: CanvasText;
  font: 14px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif;
}
body > header h1 { margin: 0; font-size: 19px; overflow-wrap: anywhere; }
body > header p { margin: 2px 0 12px; opacity: 0.75; }
body > details { margin: 0 0 12px; }
body > details > summary { cursor: pointer; }
pre {
  margin: 6px 0;
  padding: 10px 12px;
  overflow-x: auto;
  border-radius: 6px;
  background: color-mix(in srgb, CanvasText 6%, Canvas);
  font: 12.5px/1.5 ui-monospace, "SFMono-Regular", Menlo, monospace;
}
"""
_LOADER = """
const packed = document.getElementById("player").textContent;
const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
const player = document.createElement("script");
player.type = "module";
player.textContent = await new Response(stream).text();
document.body.append(player);
"""
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src {digests}; \
style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{css}</style>
</head>
<body>
<header><h1>{title}</h1><p>{origin}</p></header>
{cell}
<main id="replay" data-speed="{speed:g}">{still}</main>
<script id="timeline" type="application/gzip">{timeline}</script>
<script id="player" type="application/gzip">{player}</script>
<script type="module">{loader}</script>
</body>
</html>
"""


def page_html(recording: Recording, *, speed: float = 4.0) -> str:
    """The page, at most 2.5 MB.  Without scripts it shows how the run ended.

    Parameters
    ----------
    speed : float
        How much faster than the run it plays at first.

    Raises
    ------
    RecordingError
        The facts do not follow from each other, or are too many for a page.
    """
    head = recording.head
    end_s = max(map(time_of, recording.facts))
    player = f"{_script()}\n"
    return _PAGE.format(
        digests=f"{_digest(_LOADER)} {_digest(player)}",
        title=esc(head.name or head.run_id, 200),
        css=_CSS + live_css(),
        origin=_origin(head),
        cell=_cell(head),
        speed=speed,
        still=render_html(last_snapshot(recording), now_s=end_s, live=False),
        timeline=base64.b64encode(timeline_of(recording)).decode(),
        player=base64.b64encode(gzip.compress(player.encode(), mtime=0)).decode(),
        loader=_LOADER,
    )


def save_page(
    recording: Recording, path: str | Path, *, speed: float = 4.0, overwrite: bool = False
) -> int:
    """Write the page, and return its size in bytes.

    Raises
    ------
    RecordingError
        As :func:`page_html`; or the file is there already, or can't be written.
    """
    data = page_html(recording, speed=speed).encode()
    save_text(data, Path(path).expanduser(), overwrite=overwrite)
    return len(data)


def _digest(script: str) -> str:
    """As a policy names a script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _script() -> str:
    """The player, started as soon as the page is there."""
    joined = replay_page_esm()
    body, found, _ = joined.rpartition("export default ")
    assert found, "the joiner ends in the default export"
    return f"{body}$replay_page.$default();"


def _origin(head: Head) -> str:
    version = esc(head.version, 20)
    if head.origin == "simulated":
        text = "A simulated run: no cluster has executed it."
    else:
        text = "A recorded run."
    missing = f" Left out: {esc(', '.join(head.left_out), 300)}." if head.left_out else ""
    return f"{text} Played by the live view of jupyter_ddl {version}.{missing}"


def _cell(head: Head) -> str:
    text = "\n".join(part for part in (head.line, head.cell) if part)
    if not text:
        return ""
    shown = html.escape(plain_lines(text, _MAX_CELL))
    return f"<details><summary>The cell</summary><pre>{shown}</pre></details>"


SUFFIXES = (".jsonl", ".jsonl.gz", ".html")


def export_run(
    run_id: str, path: str | Path, *, overwrite: bool = False, strict: bool = False
) -> str:
    """Write a run of this user as a recording, or as a page that plays it.

    Parameters
    ----------
    path : path
        Ends in ``.jsonl``, ``.jsonl.gz`` or ``.html``.
    overwrite : bool
        Whether a file that is there is replaced.
    strict : bool
        Whether nothing is written where a string is left that may be a secret.

    Returns
    -------
    str
        One sentence that says what was written.

    Raises
    ------
    LedgerError
        There is no such run, or its ledger is damaged.
    RecordingError
        The name has another ending; the file is there, or can't be written.
    """
    path = Path(path).expanduser()
    if not path.name.endswith(SUFFIXES):
        raise RecordingError(
            f"writing {path} failed: its name ends in {path.suffix or 'nothing'!r}; expected "
            f"{', '.join(SUFFIXES)}",
            path=str(path),
        )
    recording = record_run(run_id, strict=strict)
    head = recording.head
    notes = [f"left out: {', '.join(head.left_out)}"] if head.left_out else []
    notes += [f"masked: {', '.join(head.masked)}"] if head.masked else []
    if head.n_doubts:
        strings = format_counted(head.n_doubts, "string")
        notes.append(f"{strings} that may be a secret stayed (--strict says which)")
    note = "".join(f"; {each}" for each in notes)
    if path.suffix == ".html":
        n_bytes = save_page(recording, path, overwrite=overwrite)
        return f"A page that plays run {run_id} is in {path} ({format_bytes(n_bytes)}){note}."
    n_facts = write_recording(recording, path, overwrite=overwrite)
    return f"{format_count(n_facts)} facts of run {run_id} are in {path}{note}."
