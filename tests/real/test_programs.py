"""Every program plainly, on two ranks with the same result, and as a search."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest

from tests.live_kernel import LiveKernel
from tests.real.harness import VERBS, Program, distance, programs, run_plainly, run_under
from tests.real.table import Row

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]


def _params() -> list[object]:
    return [
        pytest.param(
            program,
            id=program.name,
            marks=[pytest.mark.xfail(strict=True, reason=program.settings["broken"])]
            if "broken" in program.settings
            else [],
        )
        for program in programs()
    ]


@pytest.mark.parametrize("program", _params())
def test_a_program_runs_with_another_first_line(
    real_kernel: LiveKernel, program: Program, tmp_path: Path, real_rows: dict[str, Row]
) -> None:
    program.require()
    row = real_rows[program.name] = Row(program)
    began_s = time.monotonic()
    plain = row.plain = run_plainly(real_kernel, program, tmp_path / "plain")
    for verb in VERBS:
        if verb not in program.settings:
            continue
        shown = run_under(real_kernel, program, verb, tmp_path / verb)
        if verb != "run":  # whose cell tells by itself what failed
            assert real_kernel.value("_run.state") == "'complete'", shown.everything
        if verb in ("ddp", "run", "fit"):
            away = distance(real_kernel, program, plain)
            assert away <= program.tolerance, f"{away} away from {plain}"
            row.away = away
        if verb == "search":
            values = real_kernel.value("sorted(_run.trials['value'].tolist())")
            lowest, *_, highest = ast.literal_eval(values)
            assert lowest < highest, "the trials differ in nothing"
        row.verbs.append(verb)
    row.seconds = time.monotonic() - began_s
