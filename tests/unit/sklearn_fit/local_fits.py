"""Fits without a cluster: everything is real but the way between processes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from jupyter_ddl.driving.fit_graph import FitGraph, Piece
from jupyter_ddl.protocol.assignment import Assignment, TrialAssignment
from jupyter_ddl.protocol.fit import FitItem, FitWork, node_file
from jupyter_ddl.protocol.fit_results import NodeResult, TakenUnit, UnitResult
from jupyter_ddl.ranks.fit.runner import FitRunner
from jupyter_ddl.ranks.log import RankLog
from jupyter_ddl.sklearn_fit import context
from jupyter_ddl.sklearn_fit.batches import Batch, sealed
from jupyter_ddl.sklearn_fit.exchange import FitSetting, OnUnits
from jupyter_ddl.store.blobs import put_blob
from jupyter_ddl.worker.plugin import drop_outputs

RUN_ID = "r1"


class NoLog(RankLog):
    """What is fitted here prints here."""

    def __init__(self) -> None:
        pass

    def position(self) -> int:
        return 0


class LocalRun:
    """In the place of ``FitRun``: nodes and units are executed here, in the order of the graph."""

    def __init__(self, folder: Path, bound_bytes: int = 1 << 40) -> None:
        self.run = None
        self.bound_bytes = bound_bytes
        self.dirs = (folder / "memory", folder / "disk")
        for directory in self.dirs:
            directory.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.runner = FitRunner()
        self.nodes: list[NodeResult] = []
        self.n_units = 0
        self.notes: list[str] = []
        self.n_batches = 0
        self.batches: list[Batch] = []
        self.stopped: tuple[int, ...] = ()
        """Candidates of every batch that somebody stops as it begins."""

    def close(self, state: str, reason: str = "") -> None:
        self.ended = state

    def execute(self, batch: Batch, on_units: OnUnits) -> dict[int, TakenUnit]:
        main = sys.modules["__main__"]
        try:
            return self._execute(batch)
        finally:
            sys.modules["__main__"] = main

    def _execute(self, batch: Batch) -> dict[int, TakenUnit]:
        table, blobs, _ = sealed(batch, globals(), self.folder)
        for digest, data in blobs:
            put_blob(data, self.dirs, digest)
        digest = put_blob(msgspec.msgpack.encode(table), self.dirs)
        self.n_batches += 1
        self.batches.append(batch)
        self.notes += batch.notes
        graph = FitGraph()
        graph.add(batch.nodes, batch.units)
        graph.begin()
        done = {
            unit: TakenUnit(unit, is_stopped=True)
            for candidate in self.stopped
            for unit in graph.stop_candidate(candidate)
        }
        while graph.n_units_left:
            pieces = graph.next_pieces(1, self.bound_bytes)
            assert pieces, "something waits for what never comes"
            for piece in pieces:
                self._do(graph, piece, digest, done)
        assert not list(self.folder.rglob(f"fit-{RUN_ID}-*")), "outputs were not released"
        return done

    def _do(self, graph: FitGraph, piece: Piece, table: str, done: dict[int, TakenUnit]) -> None:
        if piece.is_node:
            node = graph.node(piece.index)
            item = FitItem(
                1,
                -1,
                node.fold,
                node.prefix,
                graph.outputs(node.parents),
                graph.n_users(piece.index),
            )
        else:
            unit = graph.unit(piece.index)
            assert unit is not None
            item = FitItem(1, unit.candidate, unit.fold, have=graph.outputs(unit.nodes))
        left = self.bound_bytes - graph.memory_bytes
        work = FitWork(table, self.n_batches, (item,), str(self.folder / "spill"), max(0, left))
        dirs = tuple(str(directory) for directory in self.dirs)
        assignment = Assignment(RUN_ID, "a", "", (), str(self.folder), dirs, "", fit=work)
        trial = TrialAssignment(1, 1, {}, 7)
        state = np.random.get_state()
        event = self.runner.run(trial, assignment, NoLog())
        np.random.set_state(state)
        assert event.failure is None, event.failure.traceback
        result = msgspec.msgpack.decode(event.result, type=NodeResult | UnitResult)
        if isinstance(result, NodeResult):
            self.nodes.append(result)
            graph.settle_node(piece.index, result)
        else:
            self.n_units += 1
            graph.settle_unit(piece.index)
            data = (self.folder / "values" / result.file).read_bytes() if result.file else b""
            done[piece.index] = TakenUnit(
                piece.index, result.outcome or data, has_raised=result.has_raised
            )
        for node in graph.take_released():
            self._drop(node_file(RUN_ID, self.n_batches, node.prefix, node.fold))

    def _drop(self, name: str) -> None:
        from jupyter_ddl.protocol.fit import DropOutputs

        places = (str(self.dirs[0]), str(self.folder / "spill"))
        drop_outputs(DropOutputs(RUN_ID, (name,), places))


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalRun:
    """A run that is used by every ``local_fits()`` of the test."""
    run = LocalRun(tmp_path)
    monkeypatch.setattr(context, "FitRun", lambda _: run)
    return run


def local_fits(folder: Path) -> Any:
    """Fits within this go through the fixture's run."""
    return context.distributed_fits(FitSetting(namespace=globals(), folder=folder))


def assert_same_results(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """All columns of ``cv_results_`` but times, with their types, dtypes and masks."""
    assert list(found) == list(expected)
    for name, column in expected.items():
        if name.endswith("_time"):
            continue
        mine = found[name]
        assert type(mine) is type(column), name
        if isinstance(column, np.ma.MaskedArray):
            np.testing.assert_array_equal(mine.mask, column.mask, err_msg=name)
            assert mine.fill_value == column.fill_value or mine.dtype == object, name
            assert [str(v) for v in mine] == [str(v) for v in column], name
        elif isinstance(column, np.ndarray):
            np.testing.assert_array_equal(mine, column, err_msg=name)
        else:
            assert [str(v) for v in mine] == [str(v) for v in column], name
        if isinstance(column, np.ndarray):
            assert mine.dtype == column.dtype, name
