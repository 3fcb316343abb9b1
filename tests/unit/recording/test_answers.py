"""What a recording answers without its run."""

from __future__ import annotations

import math

import msgspec

from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.protocol.events import RunSubmitted
from jupyter_ddl.recording.answers import answers_of
from tests.unit.cell.cell_makers import compiled
from tests.unit.recorded_runs import BEGAN_S, CELL, LINE, events_of_search


def test_cells_are_those_of_the_best_trials_whatever_others_have_returned() -> None:
    spec = msgspec.structs.replace(compiled(LINE, CELL).spec, run_id="r1")
    values = [math.nan if n % 3 == 0 else float(n * 37 % 90) for n in range(90)]
    events = [RunSubmitted(spec, BEGAN_S), *events_of_search(values=values)]
    state = fold_all(events)
    answers = answers_of(state, events)
    assert answers is not None
    known = {n: each.value for n, each in state.trials.items() if each.value is not None}
    finite = sorted((-value, n) for n, value in known.items() if math.isfinite(value))
    assert len(known) > len(finite) > 50
    assert set(answers["cells"]) == {str(n) for _, n in finite[:50]}
