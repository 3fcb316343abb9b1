"""A run's program inside a rank process: loaded once, then executed trial by trial."""

from __future__ import annotations

import asyncio
import builtins
import gc
import inspect
import random
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import msgspec

from jupyter_ddl.errors import LaunchError, SpecError
from jupyter_ddl.protocol.assignment import Assignment, TrialAssignment
from jupyter_ddl.protocol.events import AttemptFinished, Failure, Notice, Outcome, RankEvent
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.reading import msgpack_decoder
from jupyter_ddl.protocol.space import ParamValue, variable_of
from jupyter_ddl.protocol.verb import Items
from jupyter_ddl.ranks import compiling, incell, outputs
from jupyter_ddl.ranks.attempt import Attempt
from jupyter_ddl.ranks.frameworks.hooks import attach_to_frameworks, take_problems
from jupyter_ddl.ranks.frameworks.loops import Loop, set_loop
from jupyter_ddl.ranks.group_values import save_rank_values
from jupyter_ddl.ranks.group_votes import GroupVotes
from jupyter_ddl.ranks.launchers import replace_spawn_of_cells
from jupyter_ddl.ranks.metrics import final_objective
from jupyter_ddl.ranks.payload import CapturedValues, host_name, import_all, install_modules
from jupyter_ddl.ranks.process_state import ProcessState, empty_namespace
from jupyter_ddl.ranks.settings import RankSettings
from jupyter_ddl.ranks.stopping import StopFlag, TrialStopped
from jupyter_ddl.ranks.tracebacks import failure_of, message_of, that_waits
from jupyter_ddl.ranks.values import beats, brought, inline, save_values
from jupyter_ddl.ranks.work_folder import WriteWatch, enter_folder
from jupyter_ddl.store.blobs import BlobMissingError, read_blob

__all__ = ["LoadedProgram", "TrialNames", "load_program", "seed_everything"]


# Seed the random generators that are loaded in a rank process.
#
# All ranks of a group get the same seed, so that each constructs the same model.  What must differ
# does: the order of samples comes from the prepared loader, whose worker processes are seeded by
# rank.  Dropout draws the same masks on every rank (for other samples); who wants others calls
# ``torch.manual_seed(seed + rank())`` after the model is made.


def seed_everything(seed: int) -> None:
    """Seed ``random``, and numpy's global generator and torch where they are loaded.

    Parameters
    ----------
    seed : int
        From 0 to 2**32 - 1.
    """
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if torch.version.cuda is None and torch.version.hip is None and sys.platform != "darwin":
        # Same effect without accelerators, in 1 µs where torch.manual_seed takes 100: that
        # one remembers a stack trace for devices that start later.
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


# The names that a cell finds when a trial begins: ours, the notebook's, then the trial's.


class TrialNames:
    """Fills the namespace of every trial of one program."""

    def __init__(self, program: Program, captured: CapturedValues) -> None:
        self._captured = captured
        self._holes = frozenset(placeholder.name for placeholder in program.placeholders)
        self._labels = {
            placeholder.name: placeholder.labels
            for placeholder in program.placeholders
            if placeholder.by_index
        }
        self._space_name = program.space_name
        self._space_labels = program.space_labels

    def load_captured(self, namespace: dict[str, Any]) -> None:
        """Put our names and the notebook's there, without those of a trial."""
        namespace["__builtins__"] = builtins
        namespace.update(incell.namespace_defaults())
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
        values: dict[str, Any] = dict(params)
        for name in self._space_labels.keys() & params.keys():
            values[name] = self._from_space(namespace, name, params[name])
        namespace[compiling.PARAMS] = {variable_of(name): value for name, value in values.items()}
        if self._holes:
            namespace[compiling.PARAM] = partial(_value, values)
        if self._labels:
            namespace[compiling.PICK] = partial(_pick, self._labels, params)
        namespace.update(
            (variable_of(name), value) for name, value in values.items() if name not in self._holes
        )
        if assignment.over is not None and assignment.element is not None:
            items = Items(assignment.over, assignment.element)
            namespace.update(items.bound(namespace[assignment.over][trial.item]))

    def _from_space(self, namespace: dict[str, Any], name: str, value: ParamValue) -> Any:
        """The object that a label of the ``--space`` dict stands for."""
        labels = self._space_labels[name]
        values = namespace.get(self._space_name or "")
        for key in labels.path:
            values = values.get(key) if isinstance(values, Mapping) else None
        if not isinstance(values, list | tuple) or value not in labels.values:
            shown = "".join(f"[{key!r}]" for key in labels.path)
            raise SpecError(
                f"parameter {name!r} is {value!r}, and {self._space_name}{shown} is a "
                f"{type(values).__name__}; expected the list that holds this choice"
            )
        return values[labels.values.index(value)]


def _value(params: Mapping[str, Any], name: str) -> Any:
    """The value of a declared parameter.

    Raises
    ------
    SpecError
        The trial does not have it: its branch was taken all the same.
    """
    if name not in params:
        raise SpecError(
            f"this trial has no value for {name!r}; its parameters are "
            f"{', '.join(params) or 'none'}: the tests above it must come out here as they do in "
            f"the notebook"
        )
    return params[name]


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
    _value(params, name)
    known = labels[name]
    if len(values) == 1 and isinstance(values[0], list | tuple) and len(known) == len(values[0]):
        values = tuple(values[0])
    if len(values) != len(known) or params[name] not in known:
        raise SpecError(
            f"parameter {name!r} is {params[name]!r}, one of {len(known)} choices in the notebook, "
            f"but here choice() has {len(values)}; its values must not depend on the machine"
        )
    return values[known.index(params[name])]


Emit = Callable[[RankEvent], None]
_PROGRAM = msgpack_decoder(Program)


class _Ending(msgspec.Struct):
    """How an attempt ended, before it is known when and where its log ends."""

    outcome: Outcome
    value: float | None = None
    failure: Failure | None = None
    values_file: str | None = None
    inline_value: bool | int | float | str | None = None
    has_inline_value: bool = False


def load_program(assignment: Assignment) -> LoadedProgram:
    """Prepare a run's program for its trials; called once per process.

    A program that cannot work here (a syntax error, a missing package) loads all the same,
    and each of its trials ends with that failure.

    Raises
    ------
    LaunchError
        The program itself is not on this host.
    """
    blob_dirs = tuple(Path(directory) for directory in assignment.blob_dirs)
    try:
        program = _PROGRAM.decode(read_blob(assignment.program, blob_dirs))
    except BlobMissingError as error:
        raise LaunchError(
            f"loading the program of run {assignment.run_id} failed: blob {assignment.program} is "
            f"in none of {', '.join(assignment.blob_dirs)} on host {host_name()}; send it again",
            run_id=assignment.run_id,
            digest=assignment.program,
        ) from error
    except msgspec.MsgspecError as error:
        raise LaunchError(
            f"loading the program of run {assignment.run_id} failed: {error}; the worker has "
            f"another version of jupyter_ddl; make the environments equal",
            run_id=assignment.run_id,
        ) from error
    is_reused = not assignment.fresh_process
    return LoadedProgram(program, blob_dirs, Path(assignment.run_dir), is_reused=is_reused)


class LoadedProgram:
    """The cell compiled, its modules importable, its packages imported, its captures at hand.

    Parameters
    ----------
    is_reused : bool
        Whether other trials may follow the first one in this process.
    """

    def __init__(
        self, program: Program, blob_dirs: tuple[Path, ...], run_dir: Path, *, is_reused: bool
    ) -> None:
        self._program = program
        self._filename = program.filename
        self._blob_dirs = blob_dirs
        self._broken: _Ending | None = None
        self._settings = RankSettings()
        try:
            self._load(blob_dirs, run_dir)
        except Exception as error:  # noqa: BLE001 - imports and parsing meet anything the user wrote
            self._broken = self._ending_of(error, None)
        if is_reused:
            self._settings.keep()
        self._surroundings = ProcessState(self._settings)
        self._writes = WriteWatch(run_dir, program.file_names)
        # What is here now stays: collections during trials need not look at it again.
        gc.freeze()

    @property
    def failure(self) -> Failure | None:
        """Why no trial of this program can work here; None when they can."""
        return None if self._broken is None else self._broken.failure

    def _load(self, blob_dirs: tuple[Path, ...], run_dir: Path) -> None:
        program = self._program
        self._settings.use(program.settings, blob_dirs)
        compiling.register_source(program)
        self._cell, tree = compiling.compile_program(program)
        codes = (self._cell.body, self._cell.last)
        self._awaits = any(code is not None and _is_coroutine(code) for code in codes)
        install_modules(program.modules, blob_dirs, run_dir)
        replace_spawn_of_cells()
        if program.callbacks:
            attach_to_frameworks()
        needed = compiling.imports_that_must_work(tree)
        for name, error in import_all(program.imports).items():
            if name in needed and self._broken is None:
                failure = failure_of(error, self._filename, kind="import")
                text = f"importing {name!r} failed: {message_of(error, 'import')}"
                self._broken = _Ending(
                    "failed", failure=msgspec.structs.replace(failure, message=text)
                )
        self._names = TrialNames(program, CapturedValues(program, blob_dirs))

    def uses(self, package: str) -> bool:
        """Whether the program imports a package, or this process has it loaded already."""
        return package in self._program.imports or package in sys.modules

    def captured(self, name: str) -> Any:
        """A captured variable, unpickled afresh (for a sampler from the notebook)."""
        namespace = sys.modules["__main__"].__dict__
        self._names.load_captured(namespace)
        return namespace[name]

    def run_trial(
        self,
        trial: TrialAssignment,
        assignment: Assignment,
        emit: Emit,
        stop: StopFlag,
        votes: GroupVotes | None = None,
    ) -> AttemptFinished:
        """Execute the cell for one attempt, and put the process back for the next one.

        Called on the main thread.  Never raises: whatever happens becomes the outcome.

        Parameters
        ----------
        emit : callable
            Takes the attempt's events (reports, checkpoints, notices) as they happen.
        stop : StopFlag
            Looked at by every report.
        votes : GroupVotes, optional
            For a rank of a group.
        """
        started = time.perf_counter()
        attempt = Attempt(trial, assignment, emit, stop, votes)
        try:
            ending = self._attempt(trial, assignment, attempt, emit, started, votes)
        except BaseException as error:  # noqa: BLE001 - a stop signal may arrive at any line
            ending = self._ending_of(error, None)
        duration_s = time.perf_counter() - started
        return AttemptFinished(
            trial=trial.trial,
            attempt=trial.attempt,
            outcome=ending.outcome,
            at_s=time.time(),
            duration_s=duration_s,
            value=ending.value,
            values_file=ending.values_file,
            failure=ending.failure,
            inline_value=ending.inline_value,
            has_inline_value=ending.has_inline_value,
        )

    def _attempt(
        self,
        trial: TrialAssignment,
        assignment: Assignment,
        attempt: Attempt,
        emit: Emit,
        started: float,
        votes: GroupVotes | None,
    ) -> _Ending:
        if self._broken is not None:
            return self._broken
        main = ModuleType("__main__")
        try:
            self._surroundings.enter()
            sys.modules["__main__"] = main
            incell.set_attempt(attempt)
            outputs.set_outputs(attempt.outputs())
            enter_folder(assignment.folder, self._program.data, self._blob_dirs)
            self._writes.begin()
            if self._settings.problems:
                self._tell_problems(emit)
            if self._program.callbacks:
                store = None if votes is None else votes.store
                set_loop(Loop(attempt, attempt.warn, store, self._program.own_calls))
            ending = self._execute(trial, assignment, attempt, emit, main.__dict__)
            attempt.training.leave("complete")
            return ending
        except BaseException as error:  # noqa: BLE001 - the rank's wall around the user's code
            if isinstance(error, TrialStopped):
                attempt.training.leave(error.reason)
            return self._ending_of(error, attempt)
        finally:
            # Here, because a stop signal may arrive while a failure is being described.
            self._clean_up(main, emit, started, trial.trial)

    def _tell_problems(self, emit: Emit) -> None:
        for text in self._settings.take_problems():
            emit(Notice(time.time(), f"{text} (on {host_name()})"))

    def _execute(
        self,
        trial: TrialAssignment,
        assignment: Assignment,
        attempt: Attempt,
        emit: Emit,
        namespace: dict[str, Any],
    ) -> _Ending:
        self._names.fill(namespace, trial, assignment)
        first_names = set(namespace)
        seed_everything(trial.seed)
        try:
            with outputs.figures_of_failures:
                result = self._run_cell(namespace)
            if assignment.over is None:  # else it goes back as the element's value
                outputs.show_value(result)
            outputs.show_figures(shown=result)
        except SystemExit as error:
            if error.code not in (None, 0):
                raise
            result = None
        except TrialStopped as stopped:
            if stopped.reason != "complete":
                raise
            # It counts with what it has: values that it has not made yet can't come back.
            bring = () if attempt.serves else assignment.bring
            made = tuple(name for name in bring if name in namespace)
            assignment = msgspec.structs.replace(assignment, bring=made)
            result = None
        if assignment.over is not None:
            return self._map_ending(result, trial, assignment, namespace, first_names)
        ending = _Ending("complete")
        if assignment.metric is not None and attempt.rank == 0:
            ending.value = final_objective(
                assignment.metric, attempt.reported, namespace, first_names
            )
        if assignment.place is not None:
            # Always, best or not: sharded values are gathered, which no rank may leave out.
            values = brought(assignment.bring, namespace, first_names)
            saved = save_rank_values(result, values, attempt.training, trial, assignment, emit)
            return msgspec.structs.replace(ending, **msgspec.structs.asdict(saved))
        if ending.value is None or beats(ending.value, assignment.best_value, assignment.mode):
            values = brought(assignment.bring, namespace, first_names)
            ending.values_file = _save(values, trial, assignment)
        return ending

    def _map_ending(
        self,
        result: Any,
        trial: TrialAssignment,
        assignment: Assignment,
        namespace: dict[str, Any],
        first_names: set[str],
    ) -> _Ending:
        values = brought(assignment.bring, namespace, first_names)
        has_inline_value, inline_value = inline(result)
        if not has_inline_value:
            values = {"value": result, **values}
        return _Ending(
            "complete",
            values_file=_save(values, trial, assignment),
            inline_value=inline_value,
            has_inline_value=has_inline_value,
        )

    def _run_cell(self, namespace: dict[str, Any]) -> Any:
        body, last = self._cell
        if self._awaits:
            with asyncio.Runner() as runner:
                _run(body, namespace, runner)
                return None if last is None else _run(last, namespace, runner)
        exec(body, namespace)
        return None if last is None else eval(last, namespace)

    def _ending_of(self, error: BaseException, attempt: Attempt | None) -> _Ending:
        if isinstance(error, TrialStopped):
            so_far = None if attempt is None else attempt.objective_so_far()
            return _Ending(error.reason, so_far)
        if isinstance(error, KeyboardInterrupt):
            return _Ending("cancelled", None if attempt is None else attempt.objective_so_far())
        if isinstance(error, BlobMissingError):
            # The host lost it, which is nothing that the trial could help.
            failure = failure_of(error, self._filename, kind="blob")
            text = f"a captured value (blob {error}) is no longer on host {host_name()}"
            return _Ending("evicted", failure=msgspec.structs.replace(failure, message=text))
        return _Ending("failed", failure=that_waits(failure_of(error, self._filename)))

    def _clean_up(self, main: ModuleType, emit: Emit, started: float, trial: int) -> None:
        """Drop what the trial left; a step that fails keeps no other from being taken."""
        incell.set_attempt(None)
        set_loop(None)
        for problem in take_problems():
            emit(Notice(time.time(), problem))
        surroundings = self._surroundings
        empty: Callable[[], None] = partial(empty_namespace, main.__dict__)
        tell: Callable[[], None] = partial(self._tell_of_writes, trial, emit)
        duration_s = time.perf_counter() - started
        steps = surroundings.restoring_steps(duration_s)
        for step in (outputs.close, empty, tell, *steps):
            try:
                try:
                    step()
                except (TrialStopped, KeyboardInterrupt):
                    step()  # a stop signal came in the middle; the attempt has ended already
            except Exception as error:  # noqa: BLE001 - closing figures and streams runs foreign code
                text = f"cleaning up after a trial failed: {type(error).__name__}: {error}"
                emit(Notice(time.time(), text))
        surroundings.collect(duration_s)

    def _tell_of_writes(self, trial: int, emit: Emit) -> None:
        if text := self._writes.end(trial):
            emit(Notice(time.time(), text))


def _save(values: dict[str, Any], trial: TrialAssignment, assignment: Assignment) -> str | None:
    """Write what goes back; return the file's name, None when there is nothing."""
    if not values:
        return None
    name = f"trial-{trial.trial}-a{trial.attempt}.pkl"
    save_values(values, Path(assignment.run_dir) / "values" / name)
    return name


def _is_coroutine(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_COROUTINE)


def _run(code: CodeType, namespace: dict[str, Any], runner: asyncio.Runner) -> Any:
    result = eval(code, namespace)
    return runner.run(result) if _is_coroutine(code) else result
