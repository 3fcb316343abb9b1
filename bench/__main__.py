"""``python -m bench``: measure the rows, print and write the report."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from bench import machine, peer_environment
from bench.harness import ROOT, Probe, Row, measure_row
from bench.report import MeasuredRow, to_json, to_markdown
from bench.rows import ROWS

_RESULTS = ROOT / "bench" / "results"


def main() -> None:
    options = _options()
    rows = [row for row in ROWS if not options.only or row.name in options.only]
    blocked = peer_environment.prepare(
        [probe for row in rows for probe in row.probes],
        wanted=not options.no_peers,
        on_progress=_progress,
    )
    facts = {
        "host": machine.describe(),
        "versions": machine.versions(peer_environment.PEERS_PYTHON),
    }
    command = "python -m bench " + shlex.join(sys.argv[1:])
    when = time.strftime("%Y-%m-%d %H:%M")
    measured: list[MeasuredRow] = []
    for row in rows:
        measured.append(_measure(row, options, blocked))
        # Written after every row: an interrupted run keeps what it has measured.
        _write_json(to_json(command.strip(), when, facts, measured), when, options.write)
    text = to_markdown(command.strip(), when, facts, measured)
    print(text)
    if options.write:
        options.write.write_text(
            f"<!-- Written by the command below; explained in performance.md. -->\n\n{text}"
        )
        _progress(f"written: {options.write}")


def _measure(row: Row, options: argparse.Namespace, blocked: Mapping[Probe, str]) -> MeasuredRow:
    repeats = options.repeats or (2 if options.quick else row.repeats)
    before = machine.quietness()
    series = measure_row(
        row,
        repeats,
        quick=options.quick,
        peers={probe: blocked[probe] for probe in row.probes if probe in blocked},
        peers_python=peer_environment.PEERS_PYTHON,
        on_progress=_progress,
    )
    return MeasuredRow(row, series, before, machine.quietness())


def _write_json(results: object, when: str, write: Path | None) -> None:
    _RESULTS.mkdir(exist_ok=True)
    names = [f"{when.replace(' ', '-').replace(':', '')}.json"] + (["latest.json"] if write else [])
    for name in names:
        (_RESULTS / name).write_text(json.dumps(results, indent=1) + "\n")


def _progress(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}"
    )
    parser.add_argument("--quick", action="store_true", help="2 repeats of smaller runs")
    parser.add_argument("--repeats", type=int, metavar="N", help="instead of each row's own number")
    parser.add_argument("--no-peers", action="store_true", help="measure jupyter_ddl only")
    parser.add_argument(
        "--write",
        type=Path,
        nargs="?",
        const=ROOT / "docs" / "performance-table.md",
        metavar="PATH",
        help="write the table there, and bench/results/latest.json",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
