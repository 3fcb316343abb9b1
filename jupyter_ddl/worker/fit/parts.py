"""Parts of unions and column transformers: computed alone, and put together again.

A union or column transformer cuts its own path for a part: reduced to that part, it is run by
scikit-learn, and a :class:`Recorder` in the part's place takes down what comes out of it.  To put
the whole together, a :class:`Replayer` in each kept part's place gives that back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jupyter_ddl.worker.fit.node_store import StoredNode
from jupyter_ddl.worker.fit.remembering import FITTED

__all__ = ["Recorder", "Replayer", "part_names", "reduced_to", "with_parts"]


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
