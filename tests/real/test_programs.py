"""Every program plainly, on two ranks with the same result, and as a search."""

from __future__ import annotations

import ast

import pytest

from tests.live_kernel import LiveKernel
from tests.real.harness import PROGRAMS, VERBS, Program, distance, run_plainly, run_under

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

_ALL = [Program.read(path) for path in sorted(PROGRAMS.glob("*.py"))]


@pytest.mark.parametrize("program", _ALL, ids=lambda program: program.name)
def test_a_program_runs_with_another_first_line(real_kernel: LiveKernel, program: Program) -> None:
    program.require()
    plain = run_plainly(real_kernel, program)
    for verb in VERBS:
        if verb not in program.settings:
            continue
        shown = run_under(real_kernel, program, verb)
        assert real_kernel.value("_run.state") == "'complete'", shown.everything
        if verb in ("ddp", "fit"):
            away = distance(real_kernel, program, plain)
            print(f"{program.name}: {plain} plainly, {verb} {away:.2g} away")
            assert away <= program.tolerance, f"{away} away from {plain}"
        if verb == "search":
            values = real_kernel.value("sorted(_run.trials['value'].tolist())")
            lowest, *_, highest = ast.literal_eval(values)
            assert lowest < highest, "the trials differ in nothing"
