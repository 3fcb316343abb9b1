"""``%%distribute run`` in a real kernel."""

from __future__ import annotations

import os
import re
import signal

import pytest

from tests.live_kernel import LiveKernel
from tests.until import until

pytestmark = pytest.mark.kernel

_RUN = "%%distribute run\n"


@pytest.fixture
def kernel(attached_kernel: LiveKernel) -> LiveKernel:
    return attached_kernel


def start(kernel: LiveKernel) -> None:
    first = kernel.run("%%distribute run -n 2 --no-init\na = rank()\n").check()
    assert "of 2 ranks is ready" in first.everything


def test_a_group_keeps_its_variables_and_shows_output_by_rank(kernel: LiveKernel) -> None:
    start(kernel)
    out = kernel.run(f"{_RUN}print('hello')\nprint('rank', a)\na * 10").check()
    shown = out.displays[-1]["text/plain"]
    number = re.search(r"Out\[0:(\d+)\]: 0\nOut\[1:\1\]: 10", shown)
    assert number is not None, shown
    assert shown.startswith("[0] hello\n    rank 0\n[1] hello\n    rank 1\n")

    same = kernel.run(f"{_RUN}print('same')\n5").check().displays[-1]["text/plain"]
    assert re.fullmatch(r"\[0-1\] same\nOut\[0-1:\d+\]: 5", same)

    assert "2 ranks on cpu, idle, 3 cells so far" in kernel.run("%cluster").check().everything
    # The record is written behind the cells.
    until(lambda: "print('hello')" in kernel.run("%runs show last").check().everything, 5)


def test_variables_are_pushed_brought_and_bound(kernel: LiveKernel) -> None:
    start(kernel)
    kernel.run("scale = 3\ndef times(x):\n    return x * scale\n").check()
    cell = "%%distribute run -t 1 --push times,scale --bring b -o r\nb = times(a + 1)\nb + 1"
    out = kernel.run(cell).check()
    assert "b ← rank 1 (int)" in out.text
    assert kernel.value("b, r.values, r.ranks") == "(6, [7], (1,))"
    missing = kernel.run("%%distribute run --push scael\n1")
    assert missing.error is not None
    assert "did you mean" in missing.error[1]


def test_names_that_only_the_notebook_has_are_told_and_auto_pushes_them(
    kernel: LiveKernel,
) -> None:
    start(kernel)
    kernel.run("scale, a, unread = 3, 50, 1\ndef times(x):\n    return x * scale\n").check()
    out = kernel.run(f"{_RUN}times(a)")
    assert out.error is not None
    assert "the notebook has 'times': --push times (or --push auto) sends it first" in out.error[1]

    kernel.run("%%distribute run -t 1\nscale = 10").check()
    out = kernel.run("%%distribute run --push auto -o r\ntimes(a)").check()
    assert "pushed: times" in out.text
    assert kernel.value("r.values") == "[0, 10]"  # their own a, and rank 1's own scale
    again = kernel.run("%%distribute run --push auto -o r\ntimes(a) + scale").check()
    assert "pushed" not in again.text
    assert kernel.value("r.values") == "[3, 20]"
    assert "NameError" in kernel.run(f"{_RUN}unread").everything


def test_rank_is_a_number_as_well(kernel: LiveKernel) -> None:
    start(kernel)
    kernel.run(
        "%%distribute run\ndef name():\n    return 'first' if rank == 0 else f'no. {rank}'"
    ).check()
    kernel.run(f"{_RUN.strip()} -o r\nname(), rank() * world_size").check()
    assert kernel.value("r.values") == "[('first', 0), ('no. 1', 2)]"


def test_a_failure_is_one_exception_with_the_cells_own_line(kernel: LiveKernel) -> None:
    start(kernel)
    out = kernel.run(f"{_RUN}print('before')\nif a == 1:\n    {{}}['missing']\n")
    assert out.error is not None
    assert out.error[0] == "RankFailedError"
    assert "rank 1, at line 4 of the cell: KeyError: 'missing'" in out.error[1]
    assert re.search(r"In \[\d+\], line 4\n +\{\}\['missing'\]", out.error[2])
    assert "[0-1] before" in out.everything
    kernel.run(f"{_RUN}a").check()


def test_an_interrupt_ends_the_cell_and_two_end_the_group(kernel: LiveKernel) -> None:
    start(kernel)
    sleep = f"{_RUN}import time\nprint('begun', flush=True)\ntime.sleep(60)\n"
    cell = kernel.start(sleep)
    kernel.finish(cell, until_text="begun")
    kernel.interrupt()
    out = kernel.finish(cell)
    assert out.error is not None
    assert out.error[:2] == (
        "KeyboardInterrupt",
        "interrupted on ranks 0-1; variables are kept",
    ), "\n".join(map(str, out.error))
    kernel.run(f"{_RUN}assert a == rank()").check()

    stubborn = (
        f"{_RUN}import time\nprint('begun', flush=True)\n"
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n"
        "    print('stays', flush=True)\n    time.sleep(60)\n"
    )
    cell = kernel.start(stubborn)
    kernel.finish(cell, until_text="begun")
    kernel.interrupt()
    kernel.finish(cell, until_text="stays")
    kernel.interrupt()
    out = kernel.finish(cell)
    assert out.error is not None
    assert out.error[0] == "GroupLostError", "\n".join(map(str, out.error))
    assert "a second interrupt ended it; its variables are gone" in out.error[1]


def test_a_cell_behind_a_closed_group_gets_a_new_one_and_says_so(kernel: LiveKernel) -> None:
    start(kernel)
    kernel.run("from jupyter_ddl import open_group\nopen_group().close()").check()
    out = kernel.run("%%distribute run -n 2 --no-init -o r\n'a' in globals()").check()
    assert "has ended (it was closed): this is a new one" in out.everything
    assert kernel.value("r.values") == "[False, False]"
    kernel.run("%runs stop last").check()
    assert "this is a new one" in kernel.run(f"{_RUN}1").check().everything


def test_a_dead_rank_is_told_in_one_line_and_the_next_cell_starts_anew(kernel: LiveKernel) -> None:
    start(kernel)
    kernel.run("%%distribute run -o r\nimport os\nos.getpid()\n").check()
    pid = int(kernel.value("r.values[1]"))
    os.kill(pid, signal.SIGKILL)
    out = kernel.run(f"{_RUN}a")
    assert out.error is not None
    assert f"rank 1 (pid {pid} on 127.0.0.1) was ended by SIGKILL" in out.error[1]
    assert "\n" not in out.error[1]
    assert "of 2 ranks is ready" in kernel.run("%%distribute run --no-init\n1\n").check().everything


def test_reset_replaces_the_group(kernel: LiveKernel) -> None:
    start(kernel)
    out = kernel.run("%%distribute run --reset --no-init\na\n")
    assert out.error is not None
    assert "NameError: name 'a' is not defined" in out.error[1]
    assert kernel.run("%cluster").check().everything.count("2 ranks on cpu") == 1


def test_leaving_a_cell_early_keeps_the_group_and_what_it_has_set(kernel: LiveKernel) -> None:
    start(kernel)
    kernel.run(f"{_RUN}b = a + 1\nif b:\n    exit()\nb = None\n").check()
    kernel.run("%%distribute run --bring b\nquit()\n").check()
    assert kernel.value("b") == "1"
    out = kernel.run(f"{_RUN}name = input('who? ')\n")
    assert out.error is not None
    assert "EOFError: input('who? ') has nobody to ask on a rank; ask in an earlier" in out.error[1]


def test_a_collective_behind_the_end_of_the_process_group_names_the_way_out(
    kernel: LiveKernel,
) -> None:
    kernel.run("%%distribute run -n 2\nimport torch.distributed as dist\n", 90).check()
    kernel.run(f"{_RUN}dist.destroy_process_group()\n").check()
    out = kernel.run(f"{_RUN}dist.barrier()\n")
    assert out.error is not None
    assert "`%%distribute run --reset` makes new ranks that have one" in out.error[1]


def test_a_long_output_is_cut_and_says_where_the_rest_is(kernel: LiveKernel) -> None:
    start(kernel)
    out = kernel.run(
        "%%distribute run -t 0\nfor i in range(30_000):\n    print('line', i)\n"
    ).check()
    shown = out.displays[-1]["text/plain"]
    assert "bytes left out, all of it is in" in shown
    assert "line 0\n" in shown
    assert shown.endswith("line 29999")
    assert len(shown) < 200_000
