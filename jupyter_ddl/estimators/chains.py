"""Pipelines of candidates as the planner sees them."""

from __future__ import annotations

from typing import Any

from jupyter_ddl.estimators.keys import key_of, keys_of
from jupyter_ddl.prefix import Chain, Link

__all__ = ["chain_of", "is_shareable"]


def is_shareable(estimator: Any, kwargs: dict[str, Any]) -> bool:
    """Whether prefixes of the estimator may be computed apart.

    Only of scikit-learn's own pipelines, whose way of working is known, and without routed
    metadata, which any step may ask for.  One with a memory of its own remembers for itself.
    """
    from sklearn import get_config
    from sklearn.pipeline import Pipeline

    if type(estimator) is not Pipeline or estimator.memory is not None:
        return False
    if getattr(estimator, "transform_input", None) is not None:
        return False
    return not (get_config()["enable_metadata_routing"] and kwargs.get("fit_params"))


def chain_of(pipeline: Any) -> Chain | None:
    """The steps before the last one; None where they can't be told apart from others'."""
    from sklearn.pipeline import Pipeline

    if type(pipeline) is not Pipeline or pipeline.memory is not None:
        return None
    try:
        links = tuple(_link(name, step) for name, step in pipeline.steps[:-1] if not _is_idle(step))
    except Exception:  # noqa: BLE001 - parameters that can't be compared are the user's own objects
        return None
    return Chain(links)


def _is_idle(step: Any) -> bool:
    return step is None or (isinstance(step, str) and step == "passthrough")


def _link(name: str, step: Any) -> Link:
    label = f"{name} ({type(step).__name__})"
    return Link(key_of(step), label, _parts(name, step))


def _parts(name: str, step: Any) -> tuple[Chain, ...]:
    """The transformers of a union or column transformer that are fitted on what it is given."""
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import FeatureUnion

    if hasattr(step, "_sklearn_output_config"):
        return ()  # its parts are told how to put their output, too
    if type(step) is FeatureUnion:
        given = [(part, inner, b"") for part, inner in step.transformer_list]
    elif type(step) is ColumnTransformer:
        common = key_of(step.remainder) if isinstance(step.remainder, str) else b""
        given = [
            (part, inner, keys_of(columns, common)) for part, inner, columns in step.transformers
        ]
    else:
        return ()
    return tuple(
        Chain(_part_links(f"{name}.{part}", inner), columns, position)
        for position, (part, inner, columns) in enumerate(given)
        if not isinstance(inner, str) and inner is not None
    )


def _part_links(name: str, inner: Any) -> tuple[Link, ...]:
    from sklearn.pipeline import Pipeline

    if type(inner) is not Pipeline or inner.memory is not None:
        return (Link(key_of(inner), f"{name} ({type(inner).__name__})"),)
    return tuple(
        Link(key_of(step), f"{name}.{each} ({type(step).__name__})")
        for each, step in inner.steps
        if not _is_idle(step)
    )
