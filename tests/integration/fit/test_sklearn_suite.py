"""Scikit-learn's own tests of searches and cross-validations, with every fit on a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.leaks import Home

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1800)]

FOLDER = Path(__file__).parent
DEVIATIONS: dict[str, dict[str, int]] = {
    "test_search": {
        "test_search_callbacks_receive_search_instance": 4,
        "test_search_callbacks_with_partial_fit_failures": 1,
        "test_multi_metric_search_forwards_metadata": 2,
    },
    "test_validation": {
        "test_cross_val_score_score_func": 1,
        "test_validation_functions_routing": 5,
        "test_learning_curve_exploit_incremental_learning_routing": 1,
    },
}
"""By module: tests that can't pass, and with how many parameters; docs/fit.md says why."""


@pytest.mark.parametrize("module", DEVIATIONS)
def test_scikit_learns_own_tests_pass_but_for_the_listed_ones(
    module: str, home: Home, tmp_path: Path
) -> None:
    report = tmp_path / "report.xml"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", "/dev/null", "-p", "suite_plugin"),
            *("-p", "no:cacheprovider", "--junitxml", str(report), "-q"),
            *("--pyargs", f"sklearn.model_selection.tests.{module}"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(FOLDER)},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    cases = list(ElementTree.parse(report).iter("testcase"))
    assert len(cases) > 100, done.stdout[-2000:] + done.stderr[-2000:]
    failed: dict[str, int] = {}
    for case in cases:
        if case.find("failure") is not None or case.find("error") is not None:
            name = case.attrib["name"].partition("[")[0]
            failed[name] = failed.get(name, 0) + 1
    assert failed == DEVIATIONS[module], done.stdout[-8000:]


def test_the_documentation_lists_the_same_deviations() -> None:
    text = (FOLDER.parents[2] / "docs" / "fit.md").read_text()
    table = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `test_")}
    assert table == {name for found in DEVIATIONS.values() for name in found}
