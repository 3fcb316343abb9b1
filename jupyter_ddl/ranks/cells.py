"""Executes the cells of a persistent group inside a rank, in one namespace that stays."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import importlib.util
import inspect
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import msgspec

from jupyter_ddl.protocol.assignment import TrialAssignment
from jupyter_ddl.protocol.cells import (
    Cell,
    CellDone,
    CellOutcome,
    CellValue,
    OpenRank,
    RankReady,
    RejoinRank,
    RunCell,
)
from jupyter_ddl.protocol.events import Failure, RendezvousReady
from jupyter_ddl.protocol.folder import WorkFolder
from jupyter_ddl.protocol.group import JoinGroup, RankPlace
from jupyter_ddl.protocol.outputs import CURRENT, MAX_RUN_BYTES, ShownByCell
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.rank_messages import ToCells
from jupyter_ddl.ranks import incell, outputs
from jupyter_ddl.ranks.compiling import compile_program, register_source
from jupyter_ddl.ranks.gpus import use_gpus
from jupyter_ddl.ranks.group import RankGroup
from jupyter_ddl.ranks.listeners import socket_inodes
from jupyter_ddl.ranks.log import TAIL_BYTES, RankLog
from jupyter_ddl.ranks.metrics import as_number, check_reduction, reduced
from jupyter_ddl.ranks.payload import CapturedValues, install_modules
from jupyter_ddl.ranks.settings import RankSettings
from jupyter_ddl.ranks.tracebacks import failure_of, with_output
from jupyter_ddl.ranks.training import Training
from jupyter_ddl.ranks.values import brought, inline, save_values
from jupyter_ddl.ranks.work_folder import enter_folder
from jupyter_ddl.store.atomic import write_whole

__all__ = ["CellRun", "CellService", "Connections", "Ending", "waits_in_torch"]


# The connections of a rank's process group, which can be cut when a collective hangs.
#
# A collective waits in C++ where no signal handler runs; with its connection gone it raises.


class Connections:
    """TCP connections that came into being while the process group was made."""

    def __init__(self) -> None:
        self._inodes: set[int] = set()

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Within this, the process group is made."""
        before = set(socket_inodes())
        yield
        self._inodes = set(socket_inodes()) - before

    def cut(self, store_port: int) -> int:
        """Shut the connections down, but for those of the store; return how many.  Any thread."""
        n_cut = 0
        for inode, fd in socket_inodes().items():
            if inode in self._inodes and _cut(fd, store_port):
                n_cut += 1
        return n_cut


def waits_in_torch(thread_id: int) -> bool:
    """Whether the innermost Python frame of a thread is torch's: it may wait for other ranks."""
    frame = sys._current_frames().get(thread_id)
    name = "" if frame is None else str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] == "torch"


def _cut(fd: int, store_port: int) -> bool:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as connection:
        if connection.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        ports = connection.getsockname()[1], connection.getpeername()[1]
        if store_port in ports:
            return False
        connection.shutdown(socket.SHUT_RDWR)
        return True
    return False


# One cell of a persistent group: variables in, code executed, values out.

_MAX_TEXT = 64 * 1024


class Ending(msgspec.Struct):
    """How a cell ended, before it is known where its output ends."""

    outcome: CellOutcome
    text: str | None = None
    value: CellValue = None
    has_value: bool = False
    values_file: str | None = None
    is_value_shown: bool = False
    failure: Failure | None = None


class CellRun:
    """Executes cells in ``namespace``; what they raise comes out as it is."""

    def __init__(
        self, namespace: dict[str, Any], run_dir: Path, blob_dirs: tuple[Path, ...], rank: int
    ) -> None:
        self._namespace = namespace
        self._first_names = set(namespace)
        self._run_dir = run_dir
        self._blob_dirs = blob_dirs
        self._rank = rank
        self._runner: asyncio.Runner | None = None
        self._awaits = False
        self._folder = WorkFolder()
        self._settings = RankSettings()

    def execute(self, message: RunCell) -> Ending:
        """Execute a cell; its value and the brought ones are part of the ending."""
        cell = message.cell
        self._settings.use(cell.settings, self._blob_dirs)
        self._settings.print_problems()
        install_modules(cell.modules, self._blob_dirs, self._run_dir)
        if cell.folder.path and (cell.folder != self._folder or cell.data):
            # Otherwise it stays where the cells have gone themselves.
            enter_folder(cell.folder, cell.data, self._blob_dirs)
            self._folder = cell.folder
        self._load_pushed(cell)
        program = Program(cell.source, cell.filename, sources=cell.sources, ends_in_expression=True)
        register_source(program)
        (body, last), _ = compile_program(program)
        codes = (body,) if last is None else (body, last)
        self._awaits = any(code.co_flags & inspect.CO_COROUTINE for code in codes)
        ending = Ending("complete")
        value = None
        values: dict[str, Any] = {}
        try:
            with outputs.figures_of_failures:
                self._evaluate(body)
                if last is not None:
                    value = self._namespace["_"] = self._evaluate(last)
                    ending.text = None if value is None else _shown(repr(value))
                    ending.is_value_shown = outputs.show_value(value)
                    if cell.keep_value:
                        ending.has_value, ending.value = inline(value)
                        if not ending.has_value:
                            values["value"] = value
        except SystemExit as error:
            if error.code not in (None, 0):
                raise
        outputs.show_figures(shown=value)
        if cell.asked:
            lacking = [name for name in cell.asked if name not in self._namespace]
            ending.has_value, ending.value = True, " ".join(lacking)
        values |= brought(cell.bring, self._namespace, self._first_names)
        if values:
            ending.values_file = f"cell-{message.number}-r{self._rank}.pkl"
            save_values(values, self._run_dir / "values" / ending.values_file)
        return ending

    def _load_pushed(self, cell: Cell) -> None:
        if cell.payload is None:
            return
        pushed = Program("", "", captures=cell.pushed, payload=cell.payload, buffers=cell.buffers)
        # Functions bring the notebook's values of names that they use: those stay the rank's, too.
        own = dict(self._namespace) if cell.lacking else {}
        CapturedValues(pushed, self._blob_dirs).load_into(self._namespace)
        for each in cell.pushed:
            if each.name not in cell.lacking:
                own.pop(each.name, None)
        self._namespace.update(own)

    def _evaluate(self, code: CodeType) -> Any:
        if not self._awaits:
            return eval(code, self._namespace)
        if self._runner is None:  # one loop for all cells: what an await has made stays usable
            self._runner = asyncio.Runner()
        return self._runner.run(self._evaluate_in_loop(code))

    async def _evaluate_in_loop(self, code: CodeType) -> Any:
        result = eval(code, self._namespace)
        return await result if code.co_flags & inspect.CO_COROUTINE else result


def _shown(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    half = _MAX_TEXT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"


_GRACE_S = 1.0
"""How long an interrupted cell may take to raise, until the collective it waits in is broken."""


_NO_PROCESS_GROUP = "Default process group has not been initialized"
"""How torch answers a collective behind ``destroy_process_group()``."""
_RESET = (
    "An earlier cell has ended the process group of these ranks, or they were started with "
    "--no-init: `%%distribute run --reset` makes new ranks that have one"
)


class CellService:
    """Holds the namespace between cells.  Used on the rank's main thread, but for ``interrupt``.

    Parameters
    ----------
    announce : callable
        Sends the address at which this rank can be met.
    joins : queue.SimpleQueue
        Where the control thread puts the addresses of all.
    """

    def __init__(
        self,
        announce: Callable[[RendezvousReady], None],
        joins: queue.SimpleQueue[JoinGroup],
    ) -> None:
        self._announce = announce
        self._joins = joins
        self._connections = Connections()
        self._thread_id = threading.get_ident()
        self._pid = os.getpid()
        self._running: int | None = None
        self._unwanted = 0
        """Number of the last cell that was to be interrupted: it may not have begun yet."""
        self._is_armed = False
        self._is_cut_off = False

    def handle(self, message: ToCells) -> RankReady | CellDone:
        """Do what the worker asks; whatever happens becomes the answer."""
        if isinstance(message, OpenRank):
            return self._open(message)
        if isinstance(message, RejoinRank):
            return self._rejoin(message)
        return self._run(message)

    def interrupt(self, number: int) -> None:
        """Interrupt cell ``number``, also where it waits in a collective.  Any thread.

        One that has not begun ends when it does: a group's ranks do not begin at the same moment.
        """
        self._unwanted = number
        if self._running == number:
            # The worker's SIGINT goes to any thread of this process, and wakes the main thread
            # only if it is that one; behind a SIGCONT it often is another.
            signal.pthread_kill(self._thread_id, signal.SIGINT)
        timer = threading.Timer(_GRACE_S, self._cut_off, (number,))
        timer.daemon = True
        timer.start()

    def _cut_off(self, number: int) -> None:
        if self._running == number and waits_in_torch(self._thread_id):
            self._is_cut_off = True
            self._connections.cut(self._group.store_port)

    # -- membership -------------------------------------------------------------------------------

    def _open(self, message: OpenRank) -> RankReady:
        place = self._place = message.place
        use_gpus(place.gpus)
        try:
            self._log = RankLog(message.run_dir, f"rank-{place.rank}.log")
            self._log.prepare()
            signal.signal(signal.SIGINT, self._on_interrupt)
            self._group = RankGroup(
                place,
                TrialAssignment(0, 0, {}, 0),
                self._announce,
                self._joins,
                lambda text: sys.stderr.write(f"{text}\n"),
                self._connections.recorded,
            )
            has_torch = importlib.util.find_spec("torch") is not None
            self._group.enter(with_torch=has_torch and place.initialize)
        except BaseException as error:  # noqa: BLE001 - the wall of the rank process
            return RankReady(place.rank, failure=failure_of(error, ""))
        main = sys.modules["__main__"] = ModuleType("__main__")
        incell.set_attempt(_Member(place))
        main.__dict__.update({"__builtins__": builtins, **incell.namespace_defaults()})
        directories = tuple(Path(directory) for directory in message.blob_dirs)
        self._outputs = Path(message.run_dir) / "outputs"
        self._cells = CellRun(main.__dict__, Path(message.run_dir), directories, place.rank)
        return self._ready()

    def _ready(self) -> RankReady:
        distributed: Any = sys.modules.get("torch.distributed")
        has_group = distributed is not None and distributed.is_initialized()
        device = str(incell.device()) if "torch" in sys.modules else "cpu"
        return RankReady(self._place.rank, device, has_group)

    def _rejoin(self, message: RejoinRank) -> RankReady:
        try:
            self._group.rejoin(message.round_id)
        except BaseException as error:  # noqa: BLE001 - the wall of the rank process
            return RankReady(self._place.rank, failure=failure_of(error, ""))
        self._is_cut_off = False
        return self._ready()

    # -- cells ------------------------------------------------------------------------------------

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_armed:
            # Once: what a cell does in its finally blocks is not cut short.
            self._is_armed = False
            raise KeyboardInterrupt

    def _run(self, message: RunCell) -> CellDone:
        self._log.prepare()
        if signal.getsignal(signal.SIGINT) != self._on_interrupt:
            signal.signal(signal.SIGINT, self._on_interrupt)
        log_start = self._log.position()
        shown = self._shown_by(message.number) if message.shows else None
        outputs.set_outputs(shown)
        self._running = message.number
        began = time.perf_counter()
        ending = self._ending(message)
        duration_s = time.perf_counter() - began
        self._running = None
        outputs.close()
        if shown is not None and shown.files:
            outputs.drop_oldest(self._outputs, shown.files, MAX_RUN_BYTES)
        log_end, failure = self._log.position(), ending.failure
        if failure is not None:
            traceback = failure.traceback
            failure = with_output(failure, self._log.since(log_start, TAIL_BYTES))
            # Behind the cell's output, which is shown with the failure.
            self._log.append(traceback)
        next_start = self._log.position()
        done = CellDone(
            rank=self._place.rank,
            number=message.number,
            outcome=ending.outcome,
            duration_s=duration_s,
            log_start=log_start,
            log_end=log_end,
            text=ending.text,
            value=ending.value,
            has_value=ending.has_value,
            values_file=ending.values_file,
            outputs=() if shown is None else shown.files,
            is_value_shown=ending.is_value_shown,
            failure=failure,
            n_traceback_bytes=next_start - log_end,
            is_cut_off=self._is_cut_off,
        )
        return self._with_disk_error(done)

    def _shown_by(self, number: int) -> outputs.Outputs:
        """Where a cell shows figures and tables; whoever watches it looks into a list of them."""
        written: dict[str, float] = {}

        def tell(file: str, _size: int, files: tuple[str, ...]) -> None:
            written[file] = time.time()
            known = {each: written[each] for each in files if each in written}
            shown = ShownByCell(number, tuple(known), known)
            write_whole(self._outputs / CURRENT, msgspec.json.encode(shown))

        return outputs.Outputs(self._outputs, f"cell-{number}-r{self._place.rank}", tell)

    def _ending(self, message: RunCell) -> Ending:
        filename = message.cell.filename
        try:
            try:
                self._is_armed = True
                if self._unwanted == message.number:
                    raise KeyboardInterrupt
                ending = self._cells.execute(message)
                self._is_armed = False
            except BaseException as error:  # noqa: BLE001 - the wall around the user's code
                ending = self._failed(error, filename)
            finally:
                self._is_armed = False
                if os.getpid() != self._pid:
                    os._exit(1)  # a process that the cell has forked ran through to its end
        except KeyboardInterrupt as error:  # it came just behind the end of the cell
            return self._failed(error, filename)
        return ending

    def _failed(self, error: BaseException, filename: str) -> Ending:
        was_interrupted = isinstance(error, KeyboardInterrupt) or self._is_cut_off
        outcome: CellOutcome = "cancelled" if was_interrupted else "failed"
        failure = failure_of(error, filename)
        if _NO_PROCESS_GROUP in failure.message:
            text = f"{failure.message} {_RESET}"
            failure = msgspec.structs.replace(failure, message=text)
        return Ending(outcome, failure=failure)

    def _with_disk_error(self, done: CellDone) -> CellDone:
        """A cell that could not print is not a complete one, whatever it thinks itself."""
        error = self._log.take_error()
        if error is None or done.outcome != "complete":
            return done
        failure: Failure = failure_of(error, "", kind="disk")
        return msgspec.structs.replace(done, outcome="failed", failure=failure)


class _Member:
    """What ``report``, ``rank`` and their kin see in a persistent group: nothing is recorded."""

    def __init__(self, place: RankPlace) -> None:
        self.rank = place.rank
        self.world_size = place.world_size
        self.local_rank = place.local_rank
        self.on_cpu = not place.gpus
        self.device_index = place.device_index
        self._training = Training(place, seed=0)

    def prepare(self, objects: tuple[Any, ...], device: Any) -> tuple[Any, ...]:
        return self._training.prepare(objects, device)

    def device_mesh(self, device: Any) -> Any:
        return self._training.device_mesh(device)

    def prepare_step(
        self, model: Any, loss_fn: Any, optimizer: Any, settings: Mapping[str, Any], device: Any
    ) -> Any:
        return self._training.prepare_step(model, loss_fn, optimizer, settings, device)

    def report(
        self, step: int | None, metrics: Mapping[str, Any], reduce: str | None = None
    ) -> None:
        check_reduction(reduce)
        numbers = {name: as_number(value) for name, value in metrics.items()}
        known = {name: number for name, number in numbers.items() if number is not None}
        if reduce is not None and self.world_size > 1 and len(known) == len(metrics):
            metrics = reduced(known, reduce)
        incell.report_plainly(step, metrics, reduce)

    def checkpoint(self, step: int | None, state: Mapping[str, Any]) -> None:
        incell.checkpoint_plainly(step, state)

    def resume(self) -> dict[str, Any] | None:
        return None
