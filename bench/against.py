"""``python -m bench.against DIR``: rows measured in turns here and in another checkout.

DIR is a checkout of another commit with a virtual environment of its own (``make install`` there).
A probe of this checkout and the same one of the other follow one another, so that a busy minute of
the machine hits both alike.  A line that only one of them has is left out, and so are peers.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import NamedTuple

from bench import machine
from bench.harness import ROOT, Line, Probe, ProbeFailedError, Row, Series, run_probe
from bench.rows import ROWS


class Checkout(NamedTuple):
    """A tree, and the Python that has it installed."""

    root: Path
    python: Path


class Pair(NamedTuple):
    """A line's values here and there."""

    line: Line
    here: Series
    there: Series

    def verdict(self, better: str) -> str:
        """``worse`` or ``better`` where the quartiles leave no doubt, else ``alike``."""
        (low, high), (low_there, high_there) = self.here.quartiles, self.there.quartiles
        if low <= high_there and low_there <= high:
            return "alike"
        return "better" if (low > high_there) == (better == "higher") else "worse"


def main() -> None:
    options = _options()
    here = Checkout(ROOT, Path(sys.executable))
    there = Checkout(options.directory, options.directory / ".venv" / "bin" / "python")
    if not there.python.exists():
        sys.exit(f"{there.python} is missing: run `make install` in {there.root}, then try again")
    print("| row | line | here: median (IQR) | there | here / there | verdict |")
    print("|---|---|---|---|---|---|", flush=True)
    for row in ROWS:
        if options.only and row.name not in options.only:
            continue
        before = machine.quietness()["load_1min"]
        for pair in measure(row, here, there, options.repeats, quick=options.quick):
            print(_line(row, pair), flush=True)
        _progress(f"{row.name}: load {before} before, {machine.quietness()['load_1min']} after")


def measure(row: Row, here: Checkout, there: Checkout, repeats: int, *, quick: bool) -> list[Pair]:
    """The lines of a row that both checkouts have, measured in turns."""
    shared = (line for line in row.lines if _is_in(there, line.probe))
    pairs = [Pair(line, Series(), Series()) for line in shared]
    for number in range(row.warmups + repeats):
        for probe in dict.fromkeys(pair.line.probe for pair in pairs):
            # Who is first has the caches cold: each is in its turn.
            for checkout in (here, there) if number % 2 else (there, here):
                try:
                    figures = run_probe(probe, checkout.python, quick, root=checkout.root)
                except ProbeFailedError as error:
                    _progress(f"{probe.target} in {checkout.root} FAILED: {error}")
                    continue
                for pair in pairs if number >= row.warmups else ():
                    if pair.line.probe == probe and pair.line.key in figures:
                        found = figures[pair.line.key]
                        series = pair.here if checkout is here else pair.there
                        series.values.extend(found if isinstance(found, list) else [found])
    return [pair for pair in pairs if pair.here.values and pair.there.values]


def _is_in(checkout: Checkout, probe: Probe) -> bool:
    module = checkout.root / f"{probe.target.replace('.', '/')}.py"
    return not probe.is_peer and module.exists()


def _line(row: Row, pair: Pair) -> str:
    here, there = _text(pair.here), _text(pair.there)
    ratio = pair.here.median / pair.there.median if pair.there.median else float("nan")
    line, better = pair.line, pair.line.better or row.better
    return (
        f"| {row.name} | {line.label}, {line.key} ({line.unit}, {better} is "
        f"better) | {here} | {there} | {ratio:.2f} | {pair.verdict(better)} |"
    )


def _text(series: Series) -> str:
    low, high = series.quartiles
    return f"{series.median:.4g} ({low:.4g} to {high:.4g}), n = {len(series.values)}"


def _progress(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(prog="python -m bench.against", description=__doc__)
    parser.add_argument("directory", type=lambda text: Path(text).resolve(), metavar="DIR")
    parser.add_argument("--only", action="append", choices=names, metavar="ROW")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="rounds; default 5")
    parser.add_argument("--quick", action="store_true", help="smaller runs")
    return parser.parse_args()


if __name__ == "__main__":
    main()
