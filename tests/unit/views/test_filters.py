"""The filter of trials finds the same ones in Python and in the page."""

from __future__ import annotations

import json
import subprocess

import msgspec
import pytest

from jupyter_ddl.ledger.run_state import RunState, TrialState
from jupyter_ddl.protocol.view_messages import GetTrials
from jupyter_ddl.views.answers import trial_page
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
const how = { sort: "number", descending: false, metric: "loss" };
const found = cases.map((wanted) => orderOf(columns, { ...how, wanted }));
console.log(JSON.stringify(found.map((each) => each.map((row) => columns.number(row)))));
"""


@pytest.fixture
def state() -> RunState:
    spec = search_spec()
    assert spec.verb.objective is not None
    trials = {
        n: TrialState(
            number=n,
            param_names=tuple(params),
            param_values=tuple(params.values()),
            state=_STATES[n],  # type: ignore[arg-type]
            step=4 + n,
            value=0.4 + n / 5,
            objective=0.4 + n / 5,
            duration_s=20.0 * (n + 1),
        )
        for n, params in enumerate(_PARAMS)
    }
    return RunState(spec=spec, trials=trials)


def test_words_and_comparisons_find_the_same_trials_in_python_and_in_the_page(
    state: RunState,
) -> None:
    metric = state.spec.verb.objective.metric  # type: ignore[union-attr]
    whole = trial_page(state, GetTrials(1, "r"))
    rows = msgspec.to_builtins(whole.rows)
    asked = json.dumps({"rows": rows, "cases": list(_CASES)})
    command = [node(), "--input-type=module", "-e", _DRIVER, str(LIVE_DIR), asked]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    in_page = dict(zip(_CASES, json.loads(done.stdout), strict=True))
    in_python = {
        text: [
            row.number
            for row in trial_page(
                state, GetTrials(1, "r", contains=text.replace("loss", metric))
            ).rows
        ]
        for text in _CASES
    }
    assert in_page == _CASES
    assert in_python == _CASES
