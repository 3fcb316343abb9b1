"""The graph of a batch: order, sharing, release, whatever fails or comes back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_ddl.driving.fit_graph import FitGraph, Piece
from jupyter_ddl.protocol.fit import FitNode, FitUnit
from jupyter_ddl.protocol.fit_results import NodeResult
from jupyter_ddl.ranks.fit.node_store import choose_place

BOUND = 1 << 30


def unit(candidate: int, *nodes: int) -> FitUnit:
    return FitUnit(candidate, 0, nodes, bytes([candidate]) * 16)


def fed(nodes: list[FitNode], units: list[FitUnit], done: frozenset[int] = frozenset()) -> FitGraph:
    graph = FitGraph()
    graph.add(nodes, units, done)
    graph.begin()
    return graph


def test_units_wait_for_their_nodes_and_free_them() -> None:
    graph = fed([FitNode(0, 0, ()), FitNode(1, 0, (0,))], [unit(0, 1), unit(1, 1), unit(2)])
    assert graph.next_pieces(1, BOUND) == [Piece(True, 0)]
    assert graph.next_pieces(1, BOUND) == [Piece(False, 2)]
    assert graph.next_pieces(1, BOUND) == []
    graph.settle_node(0, NodeResult("memory", 100, 0.1))
    assert graph.memory_bytes == 100
    assert graph.next_pieces(1, BOUND) == [Piece(True, 1)]
    graph.settle_node(1, NodeResult("memory", 50, 0.1))
    assert graph.take_released() == [FitNode(0, 0, ())]
    assert graph.outputs((0, 1)) == (0, 1)
    for index in (0, 1, 2):
        assert graph.settle_unit(index) is not None
    assert graph.settle_unit(0) is None
    assert graph.take_released() == [FitNode(1, 0, (0,))]
    assert (graph.memory_bytes, graph.n_units_left) == (0, 0)


def test_what_fails_is_left_to_the_units_and_nothing_is_computed_behind_it() -> None:
    graph = fed([FitNode(0, 0, ()), FitNode(1, 0, (0,))], [unit(0, 1), unit(1, 0)])
    graph.next_pieces(1, BOUND)
    graph.settle_node(0, NodeResult("nowhere", reason="random"))
    pieces = graph.next_pieces(1, BOUND) + graph.next_pieces(1, BOUND)
    assert {piece.is_node for piece in pieces} == {False}
    assert graph.outputs((0, 1)) == ()


def test_units_that_are_on_record_need_no_nodes() -> None:
    graph = fed([FitNode(0, 0, ())], [unit(0, 0), unit(1, 0)], frozenset({0, 1}))
    assert (graph.n_units_left, graph.n_ready) == (0, 0)


def test_above_half_of_the_bound_units_go_first() -> None:
    nodes = [FitNode(0, 0, ()), FitNode(1, 0, ())]
    graph = fed(nodes, [unit(0, 0), unit(1, 1)])
    graph.next_pieces(1, BOUND)
    graph.settle_node(0, NodeResult("memory", 60, 1.0))
    assert graph.next_pieces(1, 100) == [Piece(False, 0)]


def test_a_full_memory_sends_outputs_to_disk_or_nowhere() -> None:
    assert choose_place(100, 0.0, 3, 100) == "memory"
    assert choose_place(10**6, 1.0, 3, 100) == "disk"
    assert choose_place(10**9, 0.01, 3, 100) == "nowhere"


def test_an_output_whose_user_has_failed_meanwhile_is_released() -> None:
    nodes = [FitNode(0, 0, ()), FitNode(1, 0, ()), FitNode(2, 0, (0, 1))]
    graph = fed(nodes, [unit(0, 0, 2)])
    graph.settle_node(0, NodeResult("nowhere", reason="failed"))
    graph.settle_node(1, NodeResult("memory", 60, 1.0))
    assert [node.prefix for node in graph.take_released()] == [1]
    assert graph.memory_bytes == 0


def test_a_stopped_candidate_needs_nothing_any_more() -> None:
    nodes = [FitNode(0, 0, ()), FitNode(1, 0, (0,)), FitNode(2, 0, (0,)), FitNode(3, 0, ())]
    graph = fed(nodes, [unit(0, 1), unit(1, 2), unit(1, 3)])
    (begun,) = graph.next_pieces(1, BOUND)
    assert graph.stop_candidate(1) == [1, 2]
    graph.settle_node(begun.index, NodeResult("memory", 60, 1.0))
    # Node 1 is what candidate 0 waits for; nothing is begun for the other's nodes 2 and 3.
    rest = [piece for _ in range(4) for piece in graph.next_pieces(1, BOUND)]
    assert {begun, *rest} == {Piece(True, 0), Piece(True, 1)}
    graph.put_back([Piece(False, 1)])
    assert graph.next_pieces(1, BOUND) == []


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_batch_ends_and_every_output_is_released_once(data: st.DataObject) -> None:
    n_nodes = data.draw(st.integers(0, 6))
    nodes = [
        FitNode(
            i, 0, tuple(sorted(data.draw(st.sets(st.integers(0, i - 1), max_size=2)))) if i else ()
        )
        for i in range(n_nodes)
    ]
    units = [
        unit(i, *sorted(data.draw(st.sets(st.integers(0, n_nodes - 1), max_size=2))))
        if n_nodes
        else unit(i)
        for i in range(data.draw(st.integers(1, 6)))
    ]
    graph = fed(nodes, units, data.draw(st.frozensets(st.integers(0, len(units) - 1))))
    released: list[int] = []
    kept = set()
    stopped: set[int] = set()
    for _ in range(200):
        pieces = graph.next_pieces(2, data.draw(st.sampled_from([0, BOUND])))
        if not pieces:
            break
        if data.draw(st.integers(0, 5)) == 0:
            candidate = data.draw(st.integers(0, len(units) - 1))
            stopped.update(graph.stop_candidate(candidate))
            assert graph.stop_candidate(candidate) == []
        if data.draw(st.booleans()) and data.draw(st.booleans()):
            graph.put_back(pieces)  # their worker was lost
            continue
        for piece in pieces:
            if not piece.is_node:
                known = graph.unit(piece.index)
                if piece.index in stopped:
                    assert graph.settle_unit(piece.index) is known is None
                    continue
                assert known is not None
                assert graph.settle_unit(piece.index) == units[piece.index] == known
                continue
            where = data.draw(st.sampled_from(["memory", "disk", "nowhere"]))
            reason = "" if where != "nowhere" else data.draw(st.sampled_from(["failed", "bound"]))
            if where != "nowhere":
                kept.add(piece.index)
            graph.settle_node(piece.index, NodeResult(where, 10, 0.1, reason))  # type: ignore[arg-type]
        released += [node.prefix for node in graph.take_released()]
    else:
        return  # always put back
    released += [node.prefix for node in graph.take_released()]  # by a stop, before a loss
    assert graph.n_units_left == 0
    assert sorted(released) == sorted(kept)
    assert graph.memory_bytes == 0
