"""What a cell gave on the ranks of a persistent group."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_ddl.client.copies import here
from jupyter_ddl.client.outputs import Output
from jupyter_ddl.errors import RankFailedError, TrialError
from jupyter_ddl.protocol.cells import CellDone, CellResult
from jupyter_ddl.protocol.events import LAST_LINES, Failure
from jupyter_ddl.protocol.group import ranks_label

__all__ = ["RankResults"]


class RankResults:
    """Results of one cell, one per rank that executed it, in the order of :attr:`ranks`.

    Attributes
    ----------
    ranks : tuple of int
    outputs : list of str
        What each rank printed (the middle of more than 64 kB is left out).
    texts : list of (str or None)
        ``repr`` of the cell's value on each rank; None without one.
    shown : list of Output
        Figures and tables of the first rank.
    is_value_shown : bool
        Whether its value is among them.
    note : str
        What else there is to say.
    """

    def __init__(self, result: CellResult, outputs: dict[int, str], directory: Path) -> None:
        self._done: tuple[CellDone, ...] = result.ranks
        self._values: dict[int, dict[str, Any]] = {}
        self.group_id = result.group_id
        self.number = result.number
        self.note = result.note
        self.ranks = tuple(done.rank for done in result.ranks)
        self.outputs = [outputs.get(rank, "") for rank in self.ranks]
        self.texts = [done.text for done in result.ranks]
        self.shown = [
            Output(directory / "outputs" / file, result.number, done.rank, 0.0)
            for done in result.ranks
            for file in done.outputs
        ]
        self.is_value_shown = any(done.is_value_shown for done in result.ranks)

    @property
    def values(self) -> list[Any]:
        """The cell's value (its last expression's) on each rank; None without one."""
        return [
            done.value if done.has_value else self._values_of(done).get("value")
            for done in self._done
        ]

    @property
    def errors(self) -> dict[int, Failure]:
        """Why the cell failed, by rank."""
        return {d.rank: d.failure for d in self._done if d.outcome == "failed" and d.failure}

    @property
    def interrupted(self) -> tuple[int, ...]:
        """Ranks on which an interrupt ended the cell."""
        return tuple(done.rank for done in self._done if done.outcome == "cancelled")

    def value(self, name: str, rank: int | None = None) -> Any:
        """A brought variable of a rank, by default of the first one.

        Raises
        ------
        TrialError
            Nothing of that name was brought from there.
        """
        for done in self._done:
            if rank in (None, done.rank):
                values = self._values_of(done)
                if name in values:
                    return values[name]
                break
        raise TrialError(
            f"cell {self.number} of group {self.group_id} brought no {name!r} from rank "
            f"{self.ranks[0] if rank is None and self.ranks else rank}; --bring names variables"
        )

    def raise_for_failure(
        self,
        namespace: Mapping[str, Any] | None = None,
        push: str = "--push {0}",
        *,
        shows_output: bool = False,
    ) -> None:
        """Raise the failure of the first rank; the others are counted.

        Parameters
        ----------
        namespace : mapping, optional
            The notebook's: names that only it has are told with the way to send them.
        push : str
            What sends the name ``{0}``.
        shows_output : bool
            Whether people see the ranks' output anyway.

        Raises
        ------
        RankFailedError
            The cell raised on a rank.
        KeyboardInterrupt
            It was interrupted.
        """
        if errors := self.errors:
            failed = _failed(self.group_id, errors, namespace or {}, push)
            if shows_output:
                failed.fields["traceback"] = failed.traceback.partition(LAST_LINES)[0]
            raise failed
        if self.interrupted:
            raise KeyboardInterrupt(
                f"interrupted on {ranks_label(self.interrupted)}; variables are kept"
            )

    def __repr__(self) -> str:
        state = f", {len(self.errors)} failed" if self.errors else ""
        return f"<RankResults of {ranks_label(self.ranks)}{state}>"

    def _values_of(self, done: CellDone) -> dict[str, Any]:
        if done.values_file is None:
            return {}
        if done.rank not in self._values:
            with here(self.group_id, f"values/{done.values_file}").open("rb") as file:
                self._values[done.rank] = pickle.load(file)
        return self._values[done.rank]


_UNDEFINED = re.compile(r"name '(\w+)' is not defined")


def _failed(
    group_id: str, errors: dict[int, Failure], namespace: Mapping[str, Any], push: str
) -> RankFailedError:
    rank = min(errors)
    failure = errors[rank]
    where = f", at line {failure.line} of the cell" if failure.line is not None else ""
    others = tuple(sorted(errors.keys() - {rank}))
    more = f" (and on {ranks_label(others)})" if others else ""
    undefined = _UNDEFINED.match(failure.message) if failure.type_name == "NameError" else None
    hint = ""
    if undefined is not None and undefined[1] in namespace:
        hint = f"; the notebook has {undefined[1]!r}: {push.format(undefined[1])} sends it first"
    return RankFailedError(
        f"rank {rank}{where}{more}: {failure.type_name}: {failure.message}{hint}",
        group_id=group_id,
        rank=rank,
        n_failed=len(errors),
        traceback=failure.traceback,
        line=failure.line,
    )
