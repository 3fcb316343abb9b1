"""How soon a stop that is pressed in the view takes effect, while the cell runs."""

from __future__ import annotations

import time
from pathlib import Path

from bench.browser import search_in_browser
from bench.harness import Goal, Line, Probe, Row, is_quick, tell
from jupyter_ddl.ledger.reader import read_ledger
from jupyter_ddl.protocol.events import AttemptFinished

_PROBE = Probe("bench.rows.stop")
_UNDO_S = 3.0
"""So long a stop can be undone in the view, which sends it then."""

ROW = Row(
    name="stop",
    title="A trial's stop, pressed in the view while the cell runs",
    better="lower",
    repeats=1,
    warmups=0,
    note=(
        "JupyterLab in headless Chromium; trials report ten times a second. From the end of the "
        "three seconds in which it can be undone to the end of the attempt in the ledger."
    ),
    lines=(Line("sent to ended", _PROBE, "stop_s", "s", Goal(0.5, "lower")),),
)


def main() -> None:
    with search_in_browser("stop.ipynb", n_steps=600) as (lab, _, output):
        pressed = {}
        for trial in range(3 if is_quick() else 10):
            button = output.locator(f"button[data-trial='{trial}']")
            button.wait_for()
            pressed[trial] = time.time()
            button.click()
            button.wait_for(state="detached")
        ended = _ended(lab.home.data)
    tell({"stop_s": [ended[trial] - at_s - _UNDO_S for trial, at_s in pressed.items()]})


def _ended(data: Path) -> dict[int, float]:
    """Unix seconds at which each trial's first attempt ended."""
    (ledger,) = (data / "runs").glob("*/ledger.ddl")
    events = (event for event in read_ledger(ledger) if isinstance(event, AttemptFinished))
    return {event.trial: event.at_s for event in events}


if __name__ == "__main__":
    main()
