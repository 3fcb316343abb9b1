"""The names that a cell finds when a trial begins: ours, the notebook's, then the trial's."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from functools import partial
from typing import Any

from jupyter_ddl.errors import SpecError
from jupyter_ddl.spec.assignment import Assignment, TrialAssignment
from jupyter_ddl.spec.program import Program
from jupyter_ddl.spec.space import ParamValue
from jupyter_ddl.worker import compiling, incell
from jupyter_ddl.worker.payload import CapturedValues

__all__ = ["TrialNames"]


class TrialNames:
    """Fills the namespace of every trial of one program."""

    def __init__(self, program: Program, captured: CapturedValues) -> None:
        self._captured = captured
        self._defaults = {"__builtins__": builtins, **incell.namespace_defaults()}
        self._holes = frozenset(hole.name for hole in program.holes)
        self._labels = {hole.name: hole.labels for hole in program.holes if hole.by_index}
        self._space_name = program.space_name
        self._space_labels = program.space_labels

    def load_captured(self, namespace: dict[str, Any]) -> None:
        """Put our names and the notebook's there, without those of a trial."""
        namespace.update(self._defaults)
        self._captured.load_into(namespace)

    def fill(
        self, namespace: dict[str, Any], trial: TrialAssignment, assignment: Assignment
    ) -> None:
        """Put everything that the cell may use into a fresh namespace.

        Raises
        ------
        SpecError
            The trial's parameters do not fit the program.
        BlobMissingError
            A captured buffer is no longer on this host.
        Exception
            Whatever unpickling the user's objects, or indexing the mapped one, raises.
        """
        self.load_captured(namespace)
        params = trial.params
        missing = self._holes - params.keys()
        if missing:
            raise SpecError(
                f"trial {trial.trial} has no value for {', '.join(sorted(missing))}; "
                f"its parameters are {', '.join(params) or 'none'}"
            )
        values: dict[str, Any] = dict(params)
        for name in self._space_labels.keys() & params.keys():
            values[name] = self._from_space(namespace, name, params[name])
        if self._holes:
            namespace[compiling.PARAM] = values.__getitem__
        if self._labels:
            namespace[compiling.PICK] = partial(_pick, self._labels, params)
        namespace.update((name, value) for name, value in values.items() if name not in self._holes)
        if assignment.over is not None and assignment.element is not None:
            namespace[assignment.element] = namespace[assignment.over][trial.item]

    def _from_space(self, namespace: dict[str, Any], name: str, value: ParamValue) -> Any:
        """The object that a label of the ``--space`` dict stands for."""
        labels = self._space_labels[name]
        values = namespace.get(self._space_name or "", {}).get(name)
        if not isinstance(values, list | tuple) or value not in labels:
            raise SpecError(
                f"parameter {name!r} is {value!r}, and {self._space_name}[{name!r}] is a "
                f"{type(values).__name__}; expected the list that holds this choice"
            )
        return values[labels.index(value)]


def _pick(
    labels: Mapping[str, tuple[ParamValue, ...]],
    params: Mapping[str, ParamValue],
    name: str,
    values: tuple[Any, ...],
) -> Any:
    """Return the argument of ``choice(*values)`` that the trial's label stands for.

    Raises
    ------
    SpecError
        The call has another number of values than it had in the notebook.
    """
    known = labels[name]
    if len(values) == 1 and isinstance(values[0], list | tuple) and len(known) == len(values[0]):
        values = tuple(values[0])
    if len(values) != len(known) or params[name] not in known:
        raise SpecError(
            f"parameter {name!r} is {params[name]!r}, one of {len(known)} choices in the notebook, "
            f"but here choice() has {len(values)}; its values must not depend on the machine"
        )
    return values[known.index(params[name])]
