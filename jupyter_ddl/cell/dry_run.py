"""What ``--dry-run`` shows: all that a run would send, without sending it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jupyter_ddl.cell.draft import RunDraft
from jupyter_ddl.formats import format_bytes, format_counted, format_duration, format_held
from jupyter_ddl.protocol.prices import Budget
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec

__all__ = ["describe"]


def describe(draft: RunDraft, places: Iterable[str] = (), *, was_begun: bool = False) -> str:
    """The report of a run that could be submitted, as plain text.

    Parameters
    ----------
    places
        Lines about where its ranks would run now.
    was_begun
        Whether its first steps were made on one rank, to measure them.
    """
    started = "nothing was started or sent"
    if was_begun:
        started = "its first steps were made on one rank, then stopped; nothing else was started"
    lines = [f"Dry run of {draft.spec.program.filename}: {started}."]
    lines += _verb_lines(draft.spec)
    lines += places
    lines += _capture_lines(draft)
    lines += _module_lines(draft.spec.program)
    lines += _settings_lines(draft.spec.program)
    n_bytes = sum(memoryview(data).nbytes for _, data in draft.blobs)
    n_blobs = len(draft.blobs)
    lines.append(
        f"To send: {format_counted(n_blobs, 'blob')}, {format_bytes(n_bytes)}, "
        f"once per host (none of those that are there already)"
    )
    lines += [f"Note: {note}" for note in draft.notes]
    return "\n".join(lines)


def _verb_lines(spec: RunSpec) -> Iterator[str]:
    yield from spec.verb.describe()
    if spec.verb.can.has_ranks:
        is_shared = "prepare_step" in spec.program.own_calls
        whose = "all ranks together: it calls prepare_step" if is_shared else "each rank"
        yield f"Loaders that the cell prepares: batch_size is that of {whose}"
    yield f"Seed: {spec.seed}"
    if spec.verb.max_parallel is not None:
        yield f"In flight at once: at most {spec.verb.max_parallel}"
    if spec.limits.timeout_s is not None:
        yield f"Timeout: {format_duration(spec.limits.timeout_s)}"
    budget = spec.limits.budget
    if isinstance(budget, Budget) and budget.unit != "money":  # money is told with the prices
        yield f"Budget: {format_held(budget.amount, 'CPU' if budget.unit == 'cpuh' else 'GPU')}"
    if spec.profile:
        steps = format_counted(spec.profile, "step")
        yield f"Profile: {steps} of each rank, of the first 4 trials"
    if spec.bring:
        yield f"Brought back: {', '.join(spec.bring)}"


def _capture_lines(draft: RunDraft) -> Iterator[str]:
    captures = draft.spec.program.captures
    if not captures:
        yield "Captured: nothing"
        return
    total = sum(captured.size_bytes for captured in captures)
    yield f"Captured: {format_counted(len(captures), 'name')}, {format_bytes(total)}"
    for captured in sorted(captures, key=lambda each: (-each.size_bytes, each.name)):
        yield f"  {captured.name}: {captured.type_name}, {format_bytes(captured.size_bytes)}"
    buffers = draft.spec.program.buffers
    if buffers:
        sizes = {digest: memoryview(data).nbytes for digest, data in draft.blobs}
        n_bytes = sum(sizes[digest] for digest in set(buffers))
        n_buffers = format_counted(len(buffers), "buffer")
        yield f"Beside the stream: {n_buffers}, {format_bytes(n_bytes)}, shared per host"


def _module_lines(program: Program) -> Iterator[str]:
    folders = sorted({file.folder for file in program.modules})
    for folder in folders:
        files = [file for file in program.modules if file.folder == folder]
        yield f"Files: {len(files)} {f'of {folder}' if folder else 'beside the notebook'}"
        for file in files:
            yield f"  {file.path}: {format_bytes(file.size_bytes)}"
    yield f"Packages: {', '.join(program.imports) or 'none'}"


def _settings_lines(program: Program) -> Iterator[str]:
    if program.settings is not None:
        yield "Settings of the notebook, in force on every rank:"
        for each in program.settings.carried:
            yield f"  {each.library}: {each.text}"
