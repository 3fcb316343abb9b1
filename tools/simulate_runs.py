"""Two example runs that nobody has run: what a large cluster would have told, event by event.

``python tools/simulate_runs.py [FOLDER]`` writes them, by default into ``docs/examples``.  All of
it follows from one seed, so the same files come out again, and each event is folded by the reducer
before the next one is made: a simulated run can do nothing that a run can't.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

from simulated_search import simulate_search
from simulated_story import Story
from simulated_training import simulate_training

from jupyter_ddl.recording.lines import Recording
from jupyter_ddl.recording.write import head_of, write_recording

__all__ = ["EXAMPLES", "FOLDER", "simulated"]

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "examples"
SEED = 7
EXAMPLES: dict[str, Callable[[random.Random], Story]] = {
    "training-64-ranks": simulate_training,
    "search-500-trials": simulate_search,
}
"""File name without suffixes, and what makes its story."""


@cache
def simulated(name: str, seed: int = SEED) -> Recording:
    """One of :data:`EXAMPLES`."""
    facts = tuple(EXAMPLES[name](random.Random(seed)).facts)
    return Recording(head_of(facts, "simulated"), facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in EXAMPLES:
        path = folder / f"{name}.jsonl.gz"
        n_facts = write_recording(simulated(name), path, overwrite=True)
        print(f"{path}: {n_facts:,} facts, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
