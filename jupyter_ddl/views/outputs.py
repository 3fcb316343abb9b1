"""Figures and tables of ranks below the view of their run: outputs of the cell like its own."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.protocol.outputs import read_bundle
from jupyter_ddl.protocol.reading import json_decoder
from jupyter_ddl.protocol.snapshot import EncodedSnapshot, OutputRow
from jupyter_ddl.store.printed import bars_of
from jupyter_ddl.views.channel import Bucket

__all__ = ["OutputArea", "RunOutputs"]

_PER_S = 250_000.0
_BURST = 1_500_000.0
"""Of what replaces itself: Jupyter's server drops what is much more, for a while all of it."""
_EMPTY = {"text/plain": ""}
_BARS_S = 0.5
_TAIL_BYTES = 16_384


class _Process(msgspec.Struct):
    rank: int
    pid: int


class _Below(msgspec.Struct):
    """The part of a snapshot that is shown below the view."""

    state: str
    outputs: tuple[OutputRow, ...] = ()
    ranks: tuple[_Process, ...] = ()


_DECODER = json_decoder(_Below)


class RunOutputs:
    """Below the view of a run: figures, tables, and the bars of its first rank while it runs."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._area = OutputArea(directory / "outputs", clock)
        self._logs = directory / "logs"
        self._clock = clock
        self._bars_id = ""
        self._bars = ""
        self._looked_s = float("-inf")
        self._below = _Below("")

    def offer(self, snapshot: EncodedSnapshot) -> None:
        """Show what a snapshot tells of."""
        self._below = _DECODER.decode(snapshot.json)
        self.tick()

    def tick(self) -> None:
        """Show what had to wait, and how far the bars are."""
        self._area.show(self._below.outputs)
        if self._clock() >= self._looked_s + _BARS_S:
            self._looked_s = self._clock()
            self._draw_bars(self._tail_of_first_rank())

    def finish(self, snapshot: EncodedSnapshot | None) -> None:
        """Show the last of all; what the bars say then is part of what was printed."""
        if snapshot is not None:
            self._below = _DECODER.decode(snapshot.json)
        self._area.show(self._below.outputs, is_last=True)
        self._draw_bars("")

    def _tail_of_first_rank(self) -> str:
        for row in self._below.ranks:
            if row.rank == 0:
                for path in self._logs.glob(f"*-{row.pid}.log"):
                    return bars_of(_tail(path))
        return ""

    def _draw_bars(self, bars: str) -> None:
        from IPython.display import display, update_display

        if bars == self._bars:
            return
        bundle = {"text/plain": bars}
        if self._bars_id:
            update_display(bundle, raw=True, display_id=self._bars_id)
        else:
            self._bars_id = f"ddl-{uuid.uuid4().hex}"
            display(bundle, raw=True, display_id=self._bars_id)
        self._bars = bars


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
        return file.read().decode(errors="replace")


class OutputArea:
    """The outputs of one cell, in places that are made one after another and then kept.

    Parameters
    ----------
    folder : Path
        Where the files lie.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._ids: list[str] = []
        self._shown: list[tuple[str, float] | None] = []
        self._allowance = Bucket(_PER_S, _BURST, clock())

    def show(self, rows: Sequence[OutputRow], *, is_last: bool = False) -> None:
        """Bring the places up to date; what would be too much at once waits for the next call."""
        for place, row in enumerate(rows):
            key = (row.file, row.at_s)
            if place < len(self._shown) and self._shown[place] == key:
                continue
            if not is_last and not self._allowance.is_ready(self._clock()):
                return
            bundle = read_bundle(self._folder / row.file)
            if bundle is not None:  # else it has been replaced, and another row comes
                self._put(place, key, bundle.data, bundle.metadata)
        for place in range(len(rows), len(self._shown)):
            if self._shown[place] is not None:
                self._put(place, None, _EMPTY, {})

    def _put(
        self,
        place: int,
        key: tuple[str, float] | None,
        data: dict[str, Any],
        metadata: dict[str, Any],
    ) -> None:
        from IPython.display import display, update_display

        self._allowance.spend(len(msgspec.json.encode(data)))
        if place < len(self._ids):
            self._shown[place] = key
            update_display(data, metadata=metadata, raw=True, display_id=self._ids[place])
            return
        self._ids.append(f"ddl-{uuid.uuid4().hex}")
        self._shown.append(key)
        display(data, metadata=metadata, raw=True, display_id=self._ids[-1])
