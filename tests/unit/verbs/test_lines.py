"""Options of %%distribute: the grammar and its one-line refusals."""

import pytest

from jupyter_ddl.cell.options import CellOptions
from jupyter_ddl.errors import OptionError
from jupyter_ddl.grammar import HelpRequested
from jupyter_ddl.protocol.sampling import PrunerSpec, SamplerSpec
from jupyter_ddl.verbs.base import parse_line
from jupyter_ddl.verbs.ddp import Ddp
from jupyter_ddl.verbs.fit import Fit
from jupyter_ddl.verbs.map import Map
from jupyter_ddl.verbs.search import Search


def test_a_search_line_gives_all_its_options():
    verb, options = parse_line(
        "search --metric val_acc --mode min --trials 40 --sampler tpe --pruner asha --seed 7 "
        "--max-parallel 3 -o run --bring model,best --timeout 1h30m -a --capture-limit 2GB"
    )
    assert verb == Search(
        metric="val_acc",
        mode="min",
        n_trials=40,
        sampler=SamplerSpec("tpe"),
        pruner=PrunerSpec("asha"),
        max_parallel=3,
    )
    assert options == CellOptions(
        seed=7,
        out="run",
        bring=("model", "best"),
        timeout_s=5400.0,
        wait=False,
        capture_limit_bytes=2 * 10**9,
    )


def test_a_ddp_line_gives_all_its_options():
    verb, options = parse_line(
        "ddp -n 4 --backend gloo --min-ranks 2 --max-restarts 5 --hang-timeout 5m "
        "--strategy fsdp --no-init --gpus-per-rank 1 --bring model -o run"
    )
    assert verb == Ddp(
        n_ranks=4,
        backend="gloo",
        gpus_per_rank=1,
        min_ranks=2,
        max_restarts=5,
        hang_timeout_s=300.0,
        strategy="fsdp",
        initialize=False,
    )
    assert options == CellOptions(bring=("model",), out="run")


def test_options_from_python_are_refused_like_those_of_a_line():
    with pytest.raises(OptionError, match=r"-n: 2\.5; expected a whole number of at least 1"):
        Ddp.from_python({"n_ranks": 2.5})
    with pytest.raises(OptionError, match="--max-restarts: -1; expected"):
        Ddp.from_python({"n_ranks": 2, "max_restarts": -1})


def test_grid_values_are_literals_and_bare_words_are_strings():
    verb, _ = parse_line("search --grid lr=0.1,1e-2 --grid opt=adam,sgd --grid deep=True,None")
    assert isinstance(verb, Search)
    assert verb.grid == (
        ("lr", (0.1, 0.01)),
        ("opt", ("adam", "sgd")),
        ("deep", (True, None)),
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("map --over items", ("items", "item")),
        ("map --over x in items", ("items", "x")),
        ('map --over "x in items"', ("items", "x")),
        ("map --over n in range(2, 40)", ("range(2, 40)", "n")),
        ("map --over files[:10]", ("files[:10]", "item")),
        ("map --over n, k in zip(a, b)", ("zip(a, b)", "n, k")),
        ("map --over (n, k) in pairs", ("pairs", "n, k")),
        ("map --over n, in singles", ("singles", "n,")),
        ("map --over n in range(40) if n % 3", ("[(n) for n in range(40) if n % 3]", "n")),
        ("map --over n in a if a else b", ("a if a else b", "n")),
    ],
)
def test_over_takes_a_name_or_an_element_in_a_name(line, expected):
    verb, _ = parse_line(line)
    assert verb.items == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "needs a verb: search, map, ddp, fit or run"),
        (
            "serch",
            "unknown verb 'serch'; expected search, map, ddp, fit or run; did you mean 'search'",
        ),
        ("search --metrc x", "unknown option '--metrc'; did you mean '--metric'"),
        ("search --mode maxx", "'maxx' is not a choice; expected max, min; did you mean 'max'"),
        ("search --pruner medain", "did you mean 'median'"),
        ("search --trials 0", "--trials: '0'; expected a whole number of at least 1"),
        ("search --seed 4294967296", "whole number from 0 to 4294967295"),
        ("search --timeout soon", "'soon' is not a duration; expected e.g. 90s"),
        ("search --timeout 0s", "must be above 0"),
        ("search --capture-limit big", "'big' is not a size"),
        ("search --grid lr", "expected NAME=VALUE,VALUE"),
        ("search --grid 1r=3", "'1r' is not a Python name"),
        ("search -o class", "'class' is not a Python name"),
        ("search --sampler", "--sampler: expected one argument"),
        ("search stray", "unexpected 'stray'"),
        ("search --name 'open", "no closing quotation"),
        ("map", "--over is 'nothing'"),
        ("map --over a b", "--over is 'a b'"),
        ("map --over a.b in c", "'a.b' is not a Python name"),
        ("map --over a, *b in c", "'*b' is not a Python name"),
        ("map --over a in b for b in c", "several loops"),
        ("map --metric x", "unknown option '--metric'"),
        ("ddp", "ddp needs -n N, the number of ranks"),
        ("ddp -n 0", "'0'; expected a whole number of at least 1"),
        ("ddp -n 2 --min-ranks 3", "--min-ranks 3 is more than -n 2; expected at most 2"),
        (
            "ddp -n 2 --strategy fsp",
            "local-sgd, diloco, ps-sync, ps-async, pipeline; did you mean 'fsdp'?",
        ),
        ("ddp -n 2 --strategy dp", "--strategy dp is nn.DataParallel, which is one process"),
        (
            "ddp -n 2 --sync-every 4",
            "--sync-every belongs to --strategy local-sgd or --strategy diloco, and --strategy is",
        ),
        ("ddp -n 2 --strategy diloco --outer-lr 0", "'0'; expected a number above 0"),
        ("ddp -n 2 --strategy diloco --outer-momentum 1", "a number from 0 to below 1"),
        ("ddp -n 2 --strategy local-sgd --sync-every 0", "whole number of at least 1"),
        ("ddp -n 2 --backend glo", "expected auto, gloo, nccl; did you mean 'gloo'"),
        ("ddp -n 2 --max-restart 1", "did you mean '--max-restarts'"),
        ("ddp -n 2 --hang-timeout never", "'never' is not a duration"),
        ("ddp -n 2 --max-parallel 2", "'--max-parallel'; search, map and fit have it"),
        ("run --profile 3", "unknown option '--profile'; search, map and ddp have it"),
        ("map --trials 3", "unknown option '--trials'; search has it"),
    ],
)
def test_a_wrong_line_is_refused_in_one_line(line, message):
    with pytest.raises(OptionError) as caught:
        parse_line(line)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_are_not_abbreviated():
    with pytest.raises(OptionError, match="unknown option '--met'"):
        parse_line("search --met x")


@pytest.mark.parametrize("line", ["search --help", "search -h", "map --over a b c --help"])
def test_help_returns_its_text_and_runs_nothing(line, capsys):
    with pytest.raises(HelpRequested) as caught:
        parse_line(line)
    assert "--timeout" in caught.value.text
    assert capsys.readouterr().out == ""


def test_gpus_that_can_not_be_divided_among_the_ranks_of_a_trial_are_refused():
    with pytest.raises(OptionError, match="--gpus-per-trial 3 can't be divided among"):
        parse_line("search --ranks-per-trial 2 --gpus-per-trial 3")
    assert parse_line("search --ranks-per-trial 2 --gpus-per-trial 4").verb.ranks.gpus_per_rank == 2
    assert parse_line("ddp -n 2 --admission-timeout 10m").options.admission_timeout_s == 600.0


def test_keywords_from_python_are_the_options_of_the_line():
    words = "search --metric a --trials 4 --sampler tpe --bring x,y --timeout 2h -a"
    keywords = {
        "metric": "a", "trials": 4, "sampler": "tpe", "bring": ("x", "y"), "timeout_s": 7200.0,
        "wait": False,
    }  # fmt: skip
    assert Search.from_python(keywords) == parse_line(words)
    assert Search.from_python({**keywords, "bring": "x,y"}) == parse_line(words)
    assert Map.from_python({"over": ["x in items"]}) == parse_line("map --over x in items")
    assert Fit.from_python({"memory_bytes": "2GB"}) == parse_line("fit --memory 2GB")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metrc": "a"}, "there is no option 'metrc'; known: metric, mode, trials"),
        ({"dry_run": True}, "there is no option 'dry_run'"),
        ({"pruner": "medain"}, "--pruner: 'medain' is not a pruner"),
        ({"ranks_per_trial": 2, "gpus_per_trial": 1}, "can't be divided"),
    ],
)
def test_wrong_keywords_are_refused_in_one_line(given, message):
    with pytest.raises(OptionError) as caught:
        Search.from_python(given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
