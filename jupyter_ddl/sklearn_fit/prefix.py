"""Finds the prefixes that candidates share, and what is worth computing apart.  Pure.

Every distinct prefix is a node of a tree; a candidate is a path in it.  A prefix is *shared* when
at least two candidates have it.  Of consecutive shared prefixes with the same candidates only the
last one is kept: the others are computed with it.  Parts of unions and column transformers form
trees of their own below the input of their step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from blake3 import blake3

__all__ = ["Chain", "Link", "Plan", "Prefix", "Saving", "plan"]


# A pipeline as the planner sees it: steps by content, and parts within steps.  Pure.


class Link(msgspec.Struct, frozen=True):
    """One transformer of a chain."""

    key: bytes
    """Digest of the transformer with all its parameters: equal keys transform alike."""
    label: str
    """What the user calls it, e.g. ``vect (CountVectorizer)``."""
    parts: tuple[Chain, ...] = ()
    """Of a union or column transformer: its transformers, each fitted on the same input."""


class Chain(msgspec.Struct, frozen=True):
    """Transformers that are applied one after the other."""

    links: tuple[Link, ...]
    key: bytes = b""
    """Of a part: digest of what it is given of the common input (its columns)."""
    position: int = 0
    """Of a part: its position among the parts of its step."""


class Prefix(msgspec.Struct, frozen=True):
    """A prefix that is computed once per fold."""

    candidate: int
    """A candidate that has it."""
    n_steps: int
    """Steps of the candidate's pipeline up to and with the one that this prefix ends in."""
    path: tuple[int, ...]
    """Within the last step: position of the part, of the link in it, and so on; empty: none."""
    parents: tuple[int, ...]
    """Prefixes whose output it needs, by index; they come before it."""
    parts: tuple[int, ...] = ()
    """Prefixes that are parts of its last step, by index; they come before it, too."""


class Saving(msgspec.Struct, frozen=True):
    """How often a step is fitted on each fold, and how often it would be."""

    label: str
    n_fits: int
    n_fits_before: int


class Plan(msgspec.Struct, frozen=True):
    """What is computed before the candidates are.

    Attributes
    ----------
    prefixes : tuple of Prefix
        Every one behind those that it needs.
    of_candidate : tuple of tuple of int
        The prefixes on each candidate's own path, from the shortest to the longest.
    savings : tuple of Saving
        Of steps that are fitted less often than there are candidates.
    """

    prefixes: tuple[Prefix, ...]
    of_candidate: tuple[tuple[int, ...], ...]
    savings: tuple[Saving, ...]


@dataclass
class _Node:
    """A prefix in the tree, before it is decided whether it is computed apart."""

    identity: bytes
    parent: _Node | None
    link: Link
    candidate: int
    n_steps: int
    path: tuple[int, ...]
    users: set[int | bytes] = field(default_factory=set)
    """Candidates; of a part, the steps that contain it."""
    children: set[bytes] = field(default_factory=set)
    lasts: list[_Node] = field(default_factory=list)
    """The last prefix of each of its parts."""


def plan(chains: Sequence[Chain]) -> Plan:
    """The prefixes of candidates whose pipelines begin with ``chains``, one each."""
    tree = _Tree()
    paths = [tree.add_candidate(number, chain) for number, chain in enumerate(chains)]
    chosen = _Chosen(tree)
    for path in paths:
        for node in path:
            chosen.add(node)
    of_candidate = tuple(
        tuple(chosen.index[node.identity] for node in path if node.identity in chosen.index)
        for path in paths
    )
    return Plan(tuple(chosen.prefixes), of_candidate, _savings(paths, tree.part_fits))


class _Tree:
    """All distinct prefixes of all candidates."""

    def __init__(self) -> None:
        self.nodes: dict[bytes, _Node] = {}
        self.part_fits: dict[str, tuple[set[bytes], int]] = {}
        """Label of a part's link: its distinct fits, and how many candidates have it."""

    def add_candidate(self, number: int, chain: Chain) -> list[_Node]:
        path: list[_Node] = []
        parent: _Node | None = None
        for position, link in enumerate(chain.links):
            node = self._node(parent, link, b"", number, position + 1, ())
            node.users.add(number)
            self._add_parts(node, link, parent, number, position + 1, ())
            path.append(node)
            parent = node
        return path

    def _add_parts(
        self,
        owner: _Node,
        link: Link,
        given: _Node | None,
        candidate: int,
        n_steps: int,
        path: tuple[int, ...],
    ) -> None:
        """The parts of a step, each a chain below the step's input (``given``)."""
        lasts = []
        for part in link.parts:
            parent = given
            for position, inner in enumerate(part.links):
                place = (*path, part.position, position)
                begin = part.key if position == 0 else b""
                node = self._node(parent, inner, begin, candidate, n_steps, place)
                node.users.add(owner.identity)
                fits, n_before = self.part_fits.get(inner.label, (set(), 0))
                self.part_fits[inner.label] = (fits | {node.identity}, n_before + 1)
                parent = node
            if part.links and parent is not None:
                lasts.append(parent)
        if not owner.lasts:
            owner.lasts = lasts

    def _node(
        self,
        parent: _Node | None,
        link: Link,
        begin: bytes,
        candidate: int,
        n_steps: int,
        path: tuple[int, ...],
    ) -> _Node:
        above = b"" if parent is None else parent.identity
        kind = b"part" if path else b"step"
        identity = blake3(b"\0".join((kind, above, begin, link.key))).digest(16)
        node = self.nodes.get(identity)
        if node is None:
            node = _Node(identity, parent, link, candidate, n_steps, path)
            self.nodes[identity] = node
            if parent is not None:
                parent.children.add(identity)
        return node


class _Chosen:
    """The prefixes that are computed apart, in an order in which each finds what it needs."""

    def __init__(self, tree: _Tree) -> None:
        self._tree = tree
        self.prefixes: list[Prefix] = []
        self.index: dict[bytes, int] = {}

    def add(self, node: _Node) -> None:
        """Decide about a candidate's prefix, the shorter ones of the same candidate first."""
        if node.identity in self.index:
            return
        parts = [last for last in node.lasts if self._is_worth_it(last)]
        if not parts and not self._is_worth_it(node):
            return
        for last in parts:
            self._add_part(last)
        self._append(node, tuple(self.index[last.identity] for last in parts))

    def _add_part(self, node: _Node) -> None:
        if node.identity in self.index:
            return
        above = node.parent
        if above is not None and above.path and self._is_worth_it(above):
            self._add_part(above)
        self._append(node, ())

    def _append(self, node: _Node, parts: tuple[int, ...]) -> None:
        above = self._above(node)
        self.index[node.identity] = len(self.prefixes)
        self.prefixes.append(
            Prefix(
                candidate=node.candidate,
                n_steps=node.n_steps,
                path=node.path,
                parents=() if above is None else (above,),
                parts=parts,
            )
        )

    def _above(self, node: _Node) -> int | None:
        """The nearest prefix above that is computed apart."""
        parent = node.parent
        while parent is not None:
            if parent.identity in self.index:
                return self.index[parent.identity]
            parent = parent.parent
        return None

    def _is_worth_it(self, node: _Node) -> bool:
        if len(node.users) < 2:
            return False
        return not self._goes_with_its_child(node)

    def _goes_with_its_child(self, node: _Node) -> bool:
        """Whether everybody who has this prefix also has the same next one."""
        if len(node.children) != 1:
            return False
        child = self._tree.nodes[next(iter(node.children))]
        return bool(child.path) == bool(node.path) and child.users == node.users


def _savings(
    paths: Sequence[Sequence[_Node]], part_fits: dict[str, tuple[set[bytes], int]]
) -> tuple[Saving, ...]:
    """Distinct fits per label, where some are shared."""
    before: Counter[str] = Counter()
    distinct: dict[str, set[bytes]] = {}
    for path in paths:
        for node in path:
            before[node.link.label] += 1
            distinct.setdefault(node.link.label, set()).add(node.identity)
    found = [Saving(label, len(fits), before[label]) for label, fits in distinct.items()]
    found += [Saving(label, len(fits), n) for label, (fits, n) in part_fits.items()]
    return tuple(saving for saving in found if saving.n_fits < saving.n_fits_before)
