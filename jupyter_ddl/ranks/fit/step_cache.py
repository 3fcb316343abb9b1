"""A pipeline whose first steps were computed before: scikit-learn runs it, and gets what is kept.

A pipeline asks its ``memory`` for every fitted transformer and its output.  :class:`StepMemory`
answers with stand-ins and the kept output, without any transformer being fitted.  When the pipeline
transforms the fold's test (or train) rows again, the stand-ins pass the kept outputs on.
Everything else that is asked of them goes to the real transformer, which is loaded, or fitted
again, at that moment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from jupyter_ddl.ranks.fit.node_store import StoredNode

__all__ = ["FITTED", "Placeholder", "StepMemory"]

FITTED = "fitted"
"""Label under which a node keeps its fitted transformers, if at all."""


class Placeholder:
    """Stands for an intermediate output that only a stand-in will be given."""

    def __init__(self, label: str, position: int) -> None:
        self.label = label
        self.position = position


class StepMemory:
    """The ``memory`` of one pipeline for one fit on one fold.

    Parameters
    ----------
    n_steps : int
        Leading steps (of those that do something) that the kept node covers; 0: none is kept.
    node : StoredNode or None
        Their outputs.
    """

    location = None
    """Tells the pipeline not to clone its transformers."""

    def __init__(self, pipeline: Any, n_steps: int, node: StoredNode | None) -> None:
        self.pipeline = pipeline
        self._n_steps = n_steps if node is not None else 0
        self._node = node
        self._n_asked = 0
        self._rows: list[tuple[Any, str]] = []
        self._stand_ins: list[StandIn] = []
        self._given: tuple[Any, Any, list[dict[str, Any]]] = (None, None, [])
        self._real: list[Any] | None = None
        self.phase: str | None = None
        """Set where the rows are cut anew on their way: which ones every caller means."""
        self.keeps_whole = False
        """Whether the node has the whole pipeline for its fitted steps."""

    def mark(self, rows: Any, label: str) -> None:
        """Tell which rows of the fold an object holds: ``test`` or ``train``."""
        self._rows.append((rows, label))

    # -- what the pipeline calls -----------------------------------------------------------------

    def cache(self, function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
        """The pipeline's own function, or what is kept in its place."""

        def fit_transform(transformer: Any, rows: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
            position = self._n_asked
            self._n_asked += 1
            if position >= self._n_steps or self._node is None:
                return function(transformer, rows, y, *args, **kwargs)
            if position == 0:
                self._given = rows, y, []
            self._given[2].append({"function": function, "args": args, "kwargs": kwargs})
            stand_in = StandIn(transformer, self, position)
            self._stand_ins.append(stand_in)
            if position < self._n_steps - 1:
                return Placeholder("fit", position), stand_in
            return self._node.load("fit"), stand_in

        return fit_transform

    def kept(self, position: int, rows: Any) -> tuple[bool, Any]:
        """Whether the output of a step for ``rows`` is kept, and that output."""
        label = self._label(position, rows)
        if label is None or self._node is None or label not in self._node:
            return False, None
        if position < self._n_steps - 1:
            return True, Placeholder(label, position)
        return True, self._node.load(label)

    def _label(self, position: int, rows: Any) -> str | None:
        if isinstance(rows, Placeholder):
            return rows.label if rows.position == position - 1 else None
        if position or self.phase is not None:
            return None if position else self.phase
        return next((label for known, label in self._rows if known is rows), None)

    # -- the real transformers -------------------------------------------------------------------

    def real(self, position: int) -> Any:
        """A fitted transformer: loaded where it is kept, else fitted again."""
        if self._real is None:
            if self._node is not None and FITTED in self._node:
                self._real = self._kept_steps(self._node.load(FITTED))
            else:
                self._real = self._fitted_again()
        return self._real[position]

    def _kept_steps(self, fitted: list[Any]) -> list[Any]:
        if not self.keeps_whole:
            return fitted
        return [step for _, step in fitted[0].steps if step not in (None, "passthrough")]

    def _fitted_again(self) -> list[Any]:
        from sklearn.base import clone

        rows, y, calls = self._given
        fitted = []
        for stand_in, call in zip(self._stand_ins, calls, strict=True):
            rows, transformer = call["function"](
                clone(stand_in.unfitted), rows, y, *call["args"], **call["kwargs"]
            )
            fitted.append(transformer)
        return fitted

    def make_real(self) -> None:
        """Put the real transformers into the pipeline, which somebody is going to keep."""
        self.pipeline.steps = [
            (name, self.real(step.position_) if isinstance(step, StandIn) else step)
            for name, step in self.pipeline.steps
        ]


class StandIn:
    """In a fitted transformer's place; is taken for it, and becomes it where it has to.

    Not an estimator of its own: whatever it does not know itself, it asks the real one.
    """

    def __init__(self, unfitted: Any, memory: StepMemory, position: int) -> None:
        self.unfitted = unfitted
        self.position_ = position
        self._memory = memory

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # so that isinstance() sees the transformer's class
        return type(self.__dict__["unfitted"])

    def transform(self, rows: Any, *args: Any, **kwargs: Any) -> Any:
        """The kept output if the pipeline itself asks for that of the fold's own rows."""
        memory = self._memory
        if not args and not kwargs and _is_asked_by(memory.pipeline, sys._getframe(1)):
            is_kept, output = memory.kept(self.position_, rows)
            if is_kept:
                return output
        return memory.real(self.position_).transform(rows, *args, **kwargs)

    def __sklearn_tags__(self) -> Any:
        return self.unfitted.__sklearn_tags__()

    def __sklearn_clone__(self) -> Any:
        from sklearn.base import clone

        return clone(self.unfitted)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return dict(self.unfitted.get_params(deep=deep))

    def get_metadata_routing(self) -> Any:
        return self.unfitted.get_metadata_routing()

    def __getattr__(self, name: str) -> Any:
        # While it is being copied or unpickled there is no memory yet.
        if "_memory" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._memory.real(self.position_), name)

    def __deepcopy__(self, memo: Any) -> Any:
        import copy

        return copy.deepcopy(self._memory.real(self.position_), memo)

    def __reduce__(self) -> Any:
        return _itself, (self._memory.real(self.position_),)

    def __repr__(self) -> str:
        return repr(self.unfitted)


def _is_asked_by(pipeline: Any, frame: Any) -> bool:
    """Whether a method of this very pipeline is the caller: a slice of it wants real outputs."""
    return frame.f_locals.get("self") is pipeline


def _itself(value: Any) -> Any:
    return value
