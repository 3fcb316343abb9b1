"""What bad input gets: one line that names the thing, before anything starts."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

import pytest

from tests.leaks import processes_of
from tests.live_kernel import CellOutput, LiveKernel

pytestmark = pytest.mark.kernel

_SPACE = "from jupyter_ddl import report, uniform\nx = uniform(0, 1)\n"
_GOOD = _SPACE + "report(step=0, acc=x)\n"
_SEARCH = "%%distribute search --metric acc\n"


@dataclass(frozen=True)
class _Bad:
    """A cell that is refused, and what the refusal says (regular expressions, in order)."""

    name: str
    cell: str
    says: str
    setup: str = ""


_CASES = [
    _Bad("an unknown verb", "%%distribute serch\n" + _GOOD, "unknown verb 'serch'.*'search'"),
    _Bad("an unknown option", "%%distribute search --trils 3\n" + _GOOD, "'--trils'.*'--trials'"),
    _Bad("a wrong value", "%%distribute search --trials 0\n" + _GOOD, "--trials.*'0'.*at least 1"),
    _Bad("no cell", "%distribute search --metric acc", "%%distribute, with two percent signs"),
    _Bad("an open quote", "%%distribute search --name 'a\n" + _GOOD, "no closing quotation"),
    _Bad(
        "an unknown sampler",
        "%%distribute search --metric acc --sampler tpee\n" + _GOOD,
        "'tpee'.*did you mean 'tpe'",
    ),
    _Bad("low above high", _SEARCH + "x = uniform(2, 1)\nreport(step=0, acc=x)", "2.*1"),
    _Bad("an empty space", _SEARCH + "acc = 1\n", "hyper-parameter"),
    _Bad("no choices", _SEARCH + "x = choice()\nreport(step=0, acc=x)", "choice"),
    _Bad(
        "a grid of a billion points",
        "%%distribute search --metric acc --sampler grid\n"
        + "".join(f"x{i} = randint(1, 1000)\n" for i in range(3))
        + "report(step=0, acc=x0)",
        "1,000,000,000",
    ),
    _Bad(
        "a duplicate hyper-parameter",
        _SEARCH + "x = uniform(0, 1)\nx = uniform(0, 2)\nreport(step=0, acc=x)",
        "'?x'?.*(twice|line)",
    ),
    _Bad(
        "a metric that is never reported",
        "%%distribute search --metric val_ac\n" + _GOOD.replace("acc=", "val_acc="),
        "'val_ac' is never reported.*val_acc",
    ),
    _Bad(
        "an unpicklable capture",
        _SEARCH + _SPACE + "loader\nreport(step=0, acc=x)",
        r"loader\.dataset\.lock",
        setup="""
            import threading
            class Dataset:
                def __init__(self):
                    self.lock = threading.Lock()
            class Loader:
                def __init__(self):
                    self.dataset = Dataset()
            loader = Loader()
        """,
    ),
    _Bad(
        "a capture over the limit",
        "%%distribute search --metric acc --capture-limit 1MB\n"
        + _SPACE
        + "big.sum()\nreport(step=0, acc=x)",
        r"too large.*big.*--capture-limit",
        setup="import numpy as np\nbig = np.zeros(1_000_000)",
    ),
    _Bad("a syntax error", _SEARCH + "for i in range(3) print(i)\n", r"line 2.*invalid syntax"),
    _Bad(
        "a missing module",
        _SEARCH + "import nosuchmodule_\n" + _GOOD,
        "nosuchmodule_",
    ),
    _Bad("an undefined name", _SEARCH + _GOOD + "print(undefind)\n", "'undefind' is not defined"),
    _Bad("a magic in the cell", _SEARCH + "%time 1\n" + _GOOD, "line 2.*magic"),
    _Bad("an empty cell", "%%distribute search --metric acc\n\n", "empty"),
    _Bad("a map over nothing", "%%distribute map --over nothing_\nitem\n", "nothing_"),
    _Bad("no number of ranks", "%%distribute ddp\n1\n", "needs -n N"),
    _Bad("no ranks", "%%distribute ddp -n 0\n1\n", "'0'.*at least 1"),
    _Bad(
        "more ranks at least than at most",
        "%%distribute ddp -n 2 --min-ranks 3\n1\n",
        "--min-ranks 3 is more than -n 2",
    ),
    _Bad(
        "an unknown strategy",
        "%%distribute ddp -n 2 --strategy fspd\n1\n",
        "'fspd'.*did you mean 'fsdp'",
    ),
    _Bad("an unknown backend", "%%distribute ddp -n 2 --backend ncll\n1\n", "did you mean 'nccl'"),
    _Bad(
        "a name to bring that no rank has",
        "%%distribute ddp -n 2 --bring b\na = 1\n",
        "never assigns",
    ),
    _Bad(
        "an unpicklable capture of ranks",
        "%%distribute ddp -n 2\nloader\n",
        "loader",
        setup="import threading\nloader = threading.Lock()",
    ),
    _Bad("no ranks of a trial", "%%distribute search --ranks-per-trial 0\n" + _GOOD, "at least 1"),
    _Bad(
        "GPUs per rank without GPUs",
        "%%distribute ddp -n 2 --gpus-per-rank 1\n1\n",
        "has no GPU .n/a: ",
    ),
    _Bad("GPUs per trial", "%%distribute search --gpus-per-trial 1\n" + _GOOD, "has no GPU .n/a: "),
    _Bad(
        "a value that does not expand", "%%distribute search --trials {nn}\n" + _GOOD, "'nn' is not"
    ),
    _Bad("a run that does not exist", "%runs show r9999-zzzzz", "no run 'r9999-zzzzz'"),
    _Bad(
        "a run to resume that does not exist",
        _SEARCH[:-1] + " --resume rx\n" + _GOOD,
        "no run 'rx'",
    ),
    _Bad("an unknown command of runs", "%runs lst", "'lst'.*'list'"),
    _Bad("an unknown command of cluster", "%cluster strat", "'strat'.*'start'"),
    _Bad("a backend that does not exist", "%cluster start lokal", "'lokal'.*local"),
    _Bad(
        "one with options of another",
        "%cluster start kub --env x:1",
        "'kub' is not a backend.*did you mean 'kube'",
    ),
    _Bad("a negative size", "%cluster start --memory -4GB", "'-4GB' is not a size; expected e.g."),
    _Bad(
        "a lease of a second",
        "%cluster start kube --env x:1 --lease 1",
        "--lease is 1 s; expected 5 s to",
    ),
    _Bad(
        "a pod template that is no pod",
        "%cluster start kube --env x:1 --pod-template job.yaml",
        r"job\.yaml is a Job; expected a Pod; its spec\.template is one",
        "open('job.yaml', 'w').write('kind: Job\\nspec: {template: {spec: {}}}')",
    ),
    _Bad("a size without a unit", "%cluster start --memory 4", "is 4 bytes; .*did you mean 4GB"),
    _Bad(
        "more CPUs than there are", "%cluster start --cpus 9999", "--cpus 9999: expected 1 to 1024"
    ),
    _Bad(
        "a pod template of aliases that stand for gigabytes",
        "%cluster start kube --env x:1 --pod-template bomb.yaml",
        r"bomb\.yaml is larger than 256 KiB when",
        "open('bomb.yaml', 'w').write('a: &a0 [x, x]\\n' + ''.join("
        "f'a{n}: &a{n + 1} [*a{n}, *a{n}]\\n' for n in range(40)))",
    ),
    _Bad("a very long image", f"%cluster start kube --env {'a' * 300}", "name of 300 characters"),
    _Bad("a million workers", "%cluster start -n 1000000", "1,000,000 workers.*0 to 1,024"),
    _Bad("a Kubernetes cluster without an image", "%cluster start kube", "pass --env IMAGE"),
    _Bad("GPUs of a local cluster", "%cluster start --gpus 2", "'--gpus'; backend kube has it"),
    _Bad(
        "an image of a local cluster", "%cluster start --env auto", "'--env'; backend kube has it"
    ),
    _Bad("an unknown word of env", "%cluster env chek", "'chek'.*check"),
    _Bad("no cluster to compare with", "%cluster env check", "no cluster is running"),
    _Bad(
        "an environment.yml with a syntax error",
        "%cluster env",
        r"environment\.yml, line 3: it is not YAML.*DDL-9002",
        "open('environment.yml', 'w').write('dependencies:\\n  - numpy\\n - scipy\\n')",
    ),
    _Bad("a scheduler without a port", "%cluster connect tcp://x", "'tcp://x' is not.*HOST:PORT"),
    _Bad("a bad cluster name", "%cluster start --name 'My Cluster'", "'My Cluster'"),
    _Bad("no cluster to stop", "%cluster stop", "no cluster is running"),
    _Bad("a cluster that does not run", "%cluster attach nope", "'nope' is running"),
    _Bad("a bad duration", "%cluster start --idle-timeout soon", "'soon' is not a duration"),
]


def _error_lines(out: CellOutput) -> list[str]:
    """What the reader sees of an error, without the caret that points into the code."""
    text = out.error[2] if out.error else out.stderr
    return [line for line in text.strip().splitlines() if not line.startswith("    ")]


@pytest.mark.parametrize("bad", _CASES, ids=lambda bad: bad.name)
def test_bad_input_gets_one_line_and_starts_nothing(idle_kernel: LiveKernel, bad: _Bad) -> None:
    if bad.setup:
        idle_kernel.run(textwrap.dedent(bad.setup)).check()
    before = {process.pid for process in processes_of(idle_kernel.home)}

    out = idle_kernel.run(bad.cell)

    assert out.status == "error"
    lines = _error_lines(out)
    assert len(lines) == 1, out.everything
    assert re.search(bad.says, lines[0]), lines[0]
    assert re.search(r"\[DDL-\d{4}\]$|^UsageError: ", lines[0])
    assert {process.pid for process in processes_of(idle_kernel.home)} == before
    assert not list((idle_kernel.home.data / "runs").glob("*"))


def test_a_syntax_error_shows_a_caret_under_the_place(idle_kernel: LiveKernel) -> None:
    out = idle_kernel.run(_SEARCH + "for i in range(3) print(i)\n")
    assert out.error is not None
    *_, code, caret = out.error[2].splitlines()
    assert code.index("print") == caret.index("^")
