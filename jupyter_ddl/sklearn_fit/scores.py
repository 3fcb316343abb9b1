"""Scikit-learn's calls to fit and score candidates on folds: which prefixes they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_ddl.errors import FitError
from jupyter_ddl.formats import shortened
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.protocol.fit import FitCandidate, FitNode, FitPrefix, FitUnit
from jupyter_ddl.protocol.space import ParamValue
from jupyter_ddl.sklearn_fit.batches import Batch, Call, is_verbose, key_of, keys_of
from jupyter_ddl.sklearn_fit.prefix import Chain, Link, Plan, plan

__all__ = ["chain_of", "is_scoring", "is_shareable", "score_batch"]


# Pipelines of candidates as the planner sees them.


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


_OF_UNIT = ("train", "test", "parameters", "split_progress", "candidate_progress")
_OF_CALLBACKS = ("caller", "callback_ctx")
_MAX_TEXT = 80


def is_scoring(calls: Sequence[Call]) -> bool:
    """Whether these are candidates on folds, in the form that this version understands."""
    from sklearn.model_selection._validation import _fit_and_score

    _, args, kwargs = calls[0]
    if len(args) != 3 or not {"train", "test", "parameters", "scorer"} <= kwargs.keys():
        return False
    constant = [name for name in kwargs if name not in (*_OF_UNIT, *_OF_CALLBACKS)]
    for function, others, given in calls:
        if getattr(function, "function", None) is not _fit_and_score or len(others) != 3:
            return False
        if others[1] is not args[1] or others[2] is not args[2]:
            return False
        if given.keys() != kwargs.keys():
            return False
        if any(given[name] is not kwargs[name] for name in constant):
            return False
    return not _has_callbacks(args[0], kwargs)


def _has_callbacks(estimator: Any, kwargs: dict[str, Any]) -> bool:
    """Callbacks are told of every step of every fit: then nothing may be left out."""
    watched = [kwargs.get("caller"), estimator]
    if hasattr(estimator, "get_params"):
        watched += estimator.get_params(deep=True).values()
    return any(getattr(each, "_skl_callbacks", None) for each in watched)


def score_batch(calls: Sequence[Call]) -> Batch:
    """The batch of a search or a cross-validation.

    Raises
    ------
    FitError
        The estimator has no parameter of a candidate's names.
    """
    function, (estimator, rows, y), kwargs = calls[0]
    arguments = {
        name: value
        for name, value in kwargs.items()
        if name not in (*_OF_UNIT, *_OF_CALLBACKS, "scorer")
    }
    reading = _Reading(calls)
    configured = [_configured(estimator, parameters) for parameters in reading.parameters]
    shared = _plan(estimator, configured, arguments)
    common = keys_of(
        estimator, rows, y, kwargs["scorer"], arguments, getattr(function, "config", {})
    )
    nodes, of_unit = _nodes(shared, len(reading.folds))
    parameter_keys = [keys_of(each) for each in reading.parameters]
    fold_keys = [keys_of(*each) for each in reading.folds]
    n_units = [0] * len(reading.parameters)
    for candidate, _ in reading.units:
        n_units[candidate] += 1
    return Batch(
        kind="score",
        values={
            "estimator": estimator,
            "X": rows,
            "y": y,
            "scoring": kwargs["scorer"],
            "arguments": arguments,
            "function": function,
            "candidates": reading.parameters,
            "folds": reading.folds,
            "has_progress": kwargs.get("split_progress") is not None,
            "shown": _shown(kwargs),
        },
        candidates=tuple(
            FitCandidate(_shown_params(parameters, estimator), number)
            for parameters, number in zip(reading.parameters, n_units, strict=True)
        ),
        units=tuple(
            FitUnit(
                candidate,
                fold,
                of_unit(candidate, fold),
                keys_of(common, parameter_keys[candidate], fold_keys[fold]),
            )
            for candidate, fold in reading.units
        ),
        nodes=nodes,
        prefixes=tuple(FitPrefix(p.candidate, p.n_steps, p.path, p.parts) for p in shared.prefixes),
        keep_fitted=_looks_inside(kwargs),
        is_verbose=is_verbose(calls[0][1], kwargs),
        notes=_notes(shared, len(reading.folds)),
        parameters=reading.parameters,
        error_score=arguments.get("error_score"),
        result_keys=_result_keys(arguments),
    )


class _Reading:
    """Which candidate and which fold each call is about."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.parameters: list[Any] = []
        self.folds: list[tuple[Any, Any]] = []
        self.units: list[tuple[int, int]] = []
        candidates: dict[Any, int] = {}
        folds: dict[tuple[int, int], int] = {}
        for _, _, kwargs in calls:
            progress = kwargs.get("candidate_progress")
            parameters = kwargs["parameters"]
            name = ("", progress[0]) if progress is not None else ("key", keys_of(parameters))
            if name not in candidates:
                candidates[name] = len(self.parameters)
                self.parameters.append(parameters)
            fold = id(kwargs["train"]), id(kwargs["test"])
            if fold not in folds:
                folds[fold] = len(self.folds)
                self.folds.append((kwargs["train"], kwargs["test"]))
            self.units.append((candidates[name], folds[fold]))


def _configured(estimator: Any, parameters: dict[str, Any] | None) -> Any:
    """A candidate's estimator, as scikit-learn is going to make it."""
    from sklearn.base import clone

    made = clone(estimator)
    if not parameters:
        return made
    try:
        return made.set_params(**clone(parameters, safe=False))
    except ValueError as error:
        raise _unknown_parameter(made, parameters, error) from error


def _unknown_parameter(estimator: Any, parameters: dict[str, Any], error: ValueError) -> Exception:
    known = list(estimator.get_params(deep=True))
    unknown = next((name for name in parameters if name not in known), None)
    if unknown is None:
        return error
    hint = did_you_mean(unknown, known) or f"; it has {', '.join(known[:12])} …"
    return FitError(
        f"parameter {unknown!r} is searched, but {type(estimator).__name__} has no parameter of "
        f"this name{hint}; `estimator.get_params()` lists all",
        name=unknown,
    )


# -- prefixes ------------------------------------------------------------------------------------


def _plan(estimator: Any, configured: Sequence[Any], arguments: dict[str, Any]) -> Plan:
    nothing = Plan((), ((),) * len(configured), ())
    if len(configured) < 2 or not is_shareable(estimator, arguments):
        return nothing
    chains = [chain_of(each) for each in configured]
    found = [chain for chain in chains if chain is not None]
    if len(found) < 2:
        return nothing
    # A candidate whose pipeline can't be read shares nothing.
    return plan([chain if chain is not None else Chain(()) for chain in chains])


def _nodes(shared: Plan, n_folds: int) -> tuple[tuple[FitNode, ...], Any]:
    """Every prefix on every fold, and which of them a unit uses."""
    n_prefixes = len(shared.prefixes)
    nodes = tuple(
        FitNode(
            number,
            fold,
            tuple(fold * n_prefixes + each for each in (*prefix.parents, *prefix.parts)),
        )
        for fold in range(n_folds)
        for number, prefix in enumerate(shared.prefixes)
    )

    def of_unit(candidate: int, fold: int) -> tuple[int, ...]:
        return tuple(fold * n_prefixes + each for each in shared.of_candidate[candidate][-1:])

    return nodes, of_unit


def _notes(shared: Plan, n_folds: int) -> tuple[str, ...]:
    texts = [
        f"{saving.label}: {saving.n_fits * n_folds:,} fits instead of "
        f"{saving.n_fits_before * n_folds:,}"
        for saving in shared.savings
    ]
    return ("; ".join(texts),) if texts and shared.prefixes else ()


# -- what else a unit is -------------------------------------------------------------------------


def _looks_inside(kwargs: dict[str, Any]) -> bool:
    """Whether somebody may look at fitted transformers: the caller, or a scorer of the user's."""
    if kwargs.get("return_estimator"):
        return True
    scorer = kwargs["scorer"]
    scorers = list(getattr(scorer, "_scorers", {}).values()) or [scorer]
    return not all(type(each).__module__.startswith("sklearn.") for each in scorers)


def _shown(kwargs: dict[str, Any]) -> str | None:
    """Name of the metric that views show, of several ones."""
    refit = getattr(kwargs.get("caller"), "refit", None)
    return refit if isinstance(refit, str) else None


def _shown_params(parameters: Any, estimator: Any) -> dict[str, ParamValue]:
    if not parameters:
        return {"estimator": type(estimator).__name__}
    return {str(name): _shown_value(value) for name, value in parameters.items()}


def _shown_value(value: Any) -> ParamValue:
    if value is None or isinstance(value, bool | str):
        return value
    plain = value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value
    if isinstance(plain, float) or (isinstance(plain, int) and abs(plain) < 2**63):
        return plain
    return shortened(" ".join(repr(value).split()), _MAX_TEXT)


def _result_keys(arguments: dict[str, Any]) -> tuple[str, ...]:
    wanted = {
        "train_scores": "return_train_score",
        "n_test_samples": "return_n_test_samples",
        "fit_time": "return_times",
        "score_time": "return_times",
        "parameters": "return_parameters",
        "estimator": "return_estimator",
    }
    return ("test_scores", *(key for key, flag in wanted.items() if arguments.get(flag)))
