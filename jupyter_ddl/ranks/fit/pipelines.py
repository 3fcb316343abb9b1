"""A candidate's pipeline cut off behind a step, with what is kept of it in place.  In ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jupyter_ddl.protocol.fit import FitPrefix
from jupyter_ddl.ranks.fit.node_store import StoredNode
from jupyter_ddl.ranks.fit.step_cache import FITTED, StepMemory

__all__ = [
    "CutPipeline",
    "Recorder",
    "Replayer",
    "active_steps",
    "part_names",
    "reduced_to",
    "with_parts",
]


# Parts of unions and column transformers: computed alone, and put together again.
#
# A union or column transformer cuts its own path for a part: reduced to that part, it is run by
# scikit-learn, and a :class:`Recorder` in the part's place takes down what comes out of it.  To put
# the whole together, a :class:`Replayer` in each kept part's place gives that back.


class _Transformer:
    """What scikit-learn asks of a transformer, and of one that is not to be cloned."""

    def __sklearn_clone__(self) -> Any:
        return self

    def __sklearn_tags__(self) -> Any:
        return self.inner.__sklearn_tags__()

    inner: Any

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {}

    def set_output(self, *, transform: Any = None) -> Any:
        self.inner.set_output(transform=transform)
        return self

    def get_metadata_routing(self) -> Any:
        return self.inner.get_metadata_routing()

    def get_feature_names_out(self, *args: Any) -> Any:
        return self.inner.get_feature_names_out(*args)


class Recorder(_Transformer):
    """Runs a transformer and keeps what it returns."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.outputs: dict[str, Any] = {}
        self.phase = "fit"

    def fit(self, rows: Any, y: Any = None, **params: Any) -> Recorder:
        self.inner.fit(rows, y, **params)
        return self

    def fit_transform(self, rows: Any, y: Any = None, **params: Any) -> Any:
        if hasattr(self.inner, "fit_transform"):
            output = self.inner.fit_transform(rows, y, **params)
        else:
            output = self.inner.fit(rows, y, **params).transform(rows)
        self.outputs["fit"] = output
        return output

    def transform(self, rows: Any, **params: Any) -> Any:
        output = self.outputs[self.phase] = self.inner.transform(rows, **params)
        return output


class Replayer(_Transformer):
    """Gives the kept outputs of a part, phase by phase."""

    def __init__(self, inner: Any, node: StoredNode) -> None:
        self.inner = inner
        self.node = node
        self.phase = "fit"

    def fit(self, rows: Any, y: Any = None, **params: Any) -> Replayer:
        return self

    def fit_transform(self, rows: Any, y: Any = None, **params: Any) -> Any:
        return self.node.load("fit")

    def transform(self, rows: Any, **params: Any) -> Any:
        return self.node.load(self.phase)

    def get_feature_names_out(self, *args: Any) -> Any:
        return self.fitted().get_feature_names_out(*args)

    def fitted(self) -> Any:
        """The real transformer.  Raises :class:`KeyError` where it was not kept."""
        return self.node.load(FITTED)[0]


def part_names(container: Any) -> list[tuple[str, Any]]:
    """Name of the list of parts of a union or column transformer, and that list."""
    attribute = "transformers" if hasattr(container, "transformers") else "transformer_list"
    return [(attribute, getattr(container, attribute))]


def reduced_to(container: Any, position: int, place: Callable[[Any], Any]) -> None:
    """Leave only one part, with ``place`` of its transformer in the transformer's place."""
    for attribute, parts in part_names(container):
        name, inner, *rest = parts[position]
        setattr(container, attribute, [(name, place(inner), *rest)])
    container.transformer_weights = None  # they are applied behind the part
    if hasattr(container, "remainder"):
        container.remainder = "drop"


def with_parts(container: Any, place: Callable[[int, Any], Any]) -> None:
    """Replace the transformer at every position by what ``place`` makes of it."""
    for attribute, parts in part_names(container):
        replaced = [
            (name, place(position, inner), *rest)
            for position, (name, inner, *rest) in enumerate(parts)
        ]
        setattr(container, attribute, replaced)


def active_steps(pipeline: Any) -> list[int]:
    """Positions of the steps that do something, without the last one."""
    return [
        position
        for position, (_, step) in enumerate(pipeline.steps[:-1])
        if step is not None and step != "passthrough"
    ]


class CutPipeline:
    """The first steps of a pipeline, run on one fold to compute a prefix.

    Parameters
    ----------
    pipeline
        A clone with the candidate's parameters; it is taken apart.
    kept : tuple of FitPrefix and StoredNode, optional
        The longest prefix of whole steps whose output is kept.
    parts : dict of StoredNode by position of the part
        Kept parts of the last step.
    inner : tuple of FitPrefix and StoredNode, optional
        For a step within a part: the kept steps of that part before it.
    """

    def __init__(
        self,
        pipeline: Any,
        prefix: FitPrefix,
        kept: tuple[FitPrefix, StoredNode] | None,
        parts: dict[int, StoredNode],
        inner: tuple[FitPrefix, StoredNode] | None,
    ) -> None:
        from sklearn.pipeline import Pipeline

        last = active_steps(pipeline)[prefix.n_steps - 1]
        self._pipeline = Pipeline(pipeline.steps[: last + 1])
        self._step = self._pipeline.steps[-1][1]
        self._replayers: list[Replayer] = []
        self._recorder: Recorder | None = None
        self._inner_memory: StepMemory | None = None
        if prefix.path:
            reduced_to(self._step, prefix.path[0], lambda part: self._placed(part, prefix, inner))
        elif parts:
            with_parts(self._step, lambda place, part: self._replayed(part, parts.get(place)))
        self.memory = StepMemory(
            self._pipeline, 0 if kept is None else kept[0].n_steps, kept and kept[1]
        )
        self._pipeline.memory = self.memory

    def _placed(
        self, part: Any, prefix: FitPrefix, inner: tuple[FitPrefix, StoredNode] | None
    ) -> Any:
        """A recorder of the part, cut off behind the step of it that is meant."""
        from sklearn.pipeline import Pipeline

        if isinstance(part, Pipeline):
            n_steps = prefix.path[1] + 1
            active = [i for i, (_, s) in enumerate(part.steps) if s not in (None, "passthrough")]
            part = Pipeline(part.steps[: active[n_steps - 1] + 1])
            self._inner_memory = StepMemory(
                part, 0 if inner is None else inner[0].path[1] + 1, inner and inner[1]
            )
            self._inner_memory.keeps_whole = True
            part.memory = self._inner_memory
        self._recorder = Recorder(part)
        return self._recorder

    def _replayed(self, part: Any, node: StoredNode | None) -> Any:
        if node is None:
            return part
        self._replayers.append(Replayer(part, node))
        return self._replayers[-1]

    @property
    def steps(self) -> list[tuple[str, Any]]:
        """Name and transformer of the steps that are run."""
        return list(self._pipeline.steps)

    def run(
        self, train: tuple[Any, Any], test: Any, params: dict[str, Any], *, with_train: bool
    ) -> dict[str, Any]:
        """Fit, and transform the fold's rows: outputs by label."""
        rows, y = train
        outputs: dict[str, Any] = {"fit": self._pipeline.fit_transform(rows, y, **params)}
        phases = {"test": test} | ({"train": rows} if with_train else {})
        for label, these in phases.items():
            self._enter(label, these)
            outputs[label] = self._pipeline.transform(these)
        return outputs if self._recorder is None else self._recorder.outputs

    def _enter(self, label: str, rows: Any) -> None:
        self.memory.mark(rows, label)
        for each in self._replayers:
            each.phase = label
        if self._recorder is not None:
            self._recorder.phase = label
        if self._inner_memory is not None:
            self._inner_memory.phase = label

    def fitted(self) -> list[Any]:
        """The real fitted transformers of all steps, to be kept beside the outputs."""
        if self._recorder is not None:
            inner = self._recorder.inner
            if self._inner_memory is not None:
                self._inner_memory.make_real()
                inner.memory = None
            return [inner]
        for attribute in ("transformer_list", "transformers", "transformers_"):
            found = getattr(self._step, attribute, None)
            if found is not None and self._replayers:
                setattr(self._step, attribute, [_with_real(each) for each in found])
        self.memory.make_real()
        return [step for _, step in self._pipeline.steps if step not in (None, "passthrough")]


def _with_real(part: tuple[Any, ...]) -> tuple[Any, ...]:
    name, transformer, *rest = part
    if isinstance(transformer, Replayer):
        transformer = transformer.fitted()
    return (name, transformer, *rest)
