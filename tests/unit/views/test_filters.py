"""What the page finds among trials, and in which order it shows them."""

from __future__ import annotations

import json
import subprocess

import msgspec

from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import trial_rows
from jupyter_ddl.protocol.snapshot import TrialRow
from jupyter_ddl.views.bundle import LIVE_DIR
from tests.unit.ledger.event_makers import search_spec
from tests.unit.views.node_tools import node

_PARAMS = ({"lr": 0.1, "opt": "sgd"}, {"lr": 0.01, "opt": "adam"}, {"LR": 0.001, "x": "a>b"}, {})
_STATES = ("complete", "pruned", "running", "failed")
_CASES = {
    "": [0, 1, 2, 3],
    "lr>0.01": [0],
    "lr >= 0.01": [0, 1],
    "LR<1": [0, 1, 2],
    "lr<1e-2 running": [2],
    "opt>1": [],
    "sgd": [0],
    "pruned lr<0.1": [1],
    "a>b": [2],
    "lr=0.01": [1],
    "number>=2": [2, 3],
    "step<6": [0, 1],
    "time>60": [3],
    "value>0.5": [1, 2],
    "loss<=0.5": [0],
    "lr>": [],
    "lr>nan": [],
    "nothing>1": [],
    "<": [],
    ">=<": [],
    "__proto__>1": [],
    "constructor<1": [],
}
_DRIVER = """
const load = (name) => import(`${process.argv[1]}/${name}.js`);
const [{ columnsOf }, { orderOf }] = [await load("columns"), await load("order")];
const { rows, cases } = JSON.parse(process.argv[2]);
const columns = columnsOf(rows);
const usual = { sort: "number", descending: false, metric: "loss" };
const found = cases.map((how) => orderOf(columns, { ...usual, ...how }));
console.log(JSON.stringify(found.map((each) => each.map((row) => columns.number(row)))));
"""


_ORDERS: dict[tuple[str, bool], list[int]] = {
    ("number", False): [0, 1, 2, 3],
    ("number", True): [3, 2, 1, 0],
    ("lr", False): [1, 0, 2, 3],
    ("opt", True): [0, 1, 2, 3],
    ("duration_s", True): [3, 2, 1, 0],
    # What has no value, or none that is a result, stands last in both directions.
    ("value", False): [0, 1, 2, 3],
    ("value", True): [2, 1, 0, 3],
    ("no such column", True): [0, 1, 2, 3],
}


def rows_of_four_trials() -> tuple[TrialRow, ...]:
    state = RunState(spec=search_spec())
    for n, params in enumerate(_PARAMS):
        trial = state.trials.create(n, params)
        trial.move(_STATES[n], 0)  # type: ignore[arg-type]
        trial.step, trial.duration_s = 4 + n, 20.0 * (n + 1)
        trial.value = trial.objective = 0.4 + n / 5
    return trial_rows(state, state.trials)


def in_page(cases: list[dict[str, object]]) -> list[list[int]]:
    """Numbers of the trials that the page shows, in its order, asked in each of these ways."""
    asked = json.dumps({"rows": msgspec.to_builtins(rows_of_four_trials()), "cases": cases})
    command = [node(), "--input-type=module", "-e", _DRIVER, str(LIVE_DIR), asked]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found: list[list[int]] = json.loads(done.stdout)
    return found


def test_words_and_comparisons_find_trials_by_states_numbers_and_parameters() -> None:
    found = in_page([{"wanted": text} for text in _CASES])
    assert dict(zip(_CASES, found, strict=True)) == _CASES


def test_trials_are_sorted_by_any_column_and_what_has_no_value_stands_last() -> None:
    found = in_page([{"sort": sort, "descending": down} for sort, down in _ORDERS])
    assert dict(zip(_ORDERS, found, strict=True)) == _ORDERS
