"""What ``--dry-run`` shows: all that a run would send, without sending it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jupyter_ddl.cell.compile import CompiledCell
from jupyter_ddl.cell.space import is_finite
from jupyter_ddl.formats import format_bytes, format_count, format_counted, format_duration
from jupyter_ddl.protocol.run import Limits
from jupyter_ddl.protocol.space import Choice, Distribution, RandInt, n_grid_points
from jupyter_ddl.verbs.ddp import Ddp
from jupyter_ddl.verbs.map import Map
from jupyter_ddl.verbs.search import Search

__all__ = ["describe", "distribution_text"]


def describe(compiled: CompiledCell, places: Iterable[str] = ()) -> str:
    """The report of a compiled cell, as plain text.

    Parameters
    ----------
    places
        Lines about where its ranks would run now.
    """
    lines = [f"Dry run of {compiled.program.filename}: nothing was started or sent."]
    lines += _verb_lines(compiled)
    lines += places
    lines += _capture_lines(compiled)
    lines += _module_lines(compiled)
    n_bytes = sum(memoryview(data).nbytes for _, data in compiled.blobs)
    n_blobs = len(compiled.blobs)
    lines.append(
        f"To send: {format_counted(n_blobs, 'blob')}, {format_bytes(n_bytes)}, "
        f"once per host (none of those that are there already)"
    )
    lines += [f"Note: {note}" for note in compiled.notes]
    return "\n".join(lines)


def distribution_text(found: Distribution) -> str:
    """One line for a distribution, e.g. ``0.0001 … 0.1, log``."""
    if isinstance(found, Choice):
        shown = [str(value) if found.by_index else repr(value) for value in found.values[:12]]
        more = len(found.values) - len(shown)
        text = ", ".join(shown) + (f", … {more} more" if more else "")
        return f"one of {text}" + _default_text(found)
    text = f"{found.low} … {found.high}"
    if found.log:
        text += ", log"
    if found.step is not None and found.step != 1:
        text += f", step {found.step}"
    return (f"whole, {text}" if isinstance(found, RandInt) else text) + _default_text(found)


def _default_text(found: Distribution) -> str:
    return "" if found.default is None else f" (default {found.default})"


def _verb_lines(compiled: CompiledCell) -> Iterator[str]:
    verb = compiled.verb
    if isinstance(verb, Map):
        yield f"Map: {verb.n_items} items of {verb.over}, each as {verb.element}"
    elif isinstance(verb, Search):
        yield from _search_lines(verb)
    elif isinstance(verb, Ddp):
        yield from _ddp_lines(verb, compiled.limits)
    yield f"Seed: {compiled.seed}"
    if verb.max_parallel is not None:
        yield f"In flight at once: at most {verb.max_parallel}"
    if compiled.limits.timeout_s is not None:
        yield f"Timeout: {format_duration(compiled.limits.timeout_s)}"
    if compiled.bring:
        yield f"Brought home: {', '.join(compiled.bring)}"


def _search_lines(verb: Search) -> Iterator[str]:
    yield f"Search: {verb.n_trials} trials, {verb.metric} ({verb.mode})"
    yield f"Sampler: {verb.sampler.name}; pruner: {verb.pruner.name}"
    if is_finite(verb.space):
        yield f"Grid points: {format_count(n_grid_points(verb.space))}"
    if verb.ranks_per_trial > 1 or verb.gpus_per_trial:
        yield f"Per trial: {verb.ranks_per_trial} ranks, {verb.gpus_per_trial} GPUs"
    yield "Hyper-parameters:"
    for name, found in verb.space.items():
        yield f"  {name}: {distribution_text(found)}"


def _ddp_lines(verb: Ddp, limits: Limits) -> Iterator[str]:
    least = verb.min_ranks or verb.n_ranks
    fewer = f", at least {least}" if least < verb.n_ranks else ""
    gpus = verb.gpus_per_rank
    each = "1 if the workers have as many" if gpus is None else str(gpus or "none")
    yield f"Ranks: {verb.n_ranks}{fewer}; GPUs per rank: {each}"
    group = f"{verb.backend} backend, {'' if verb.initialize else 'not '}initialised for the cell"
    yield f"Process group: {group}; prepare() uses {verb.strategy}"
    hang = verb.hang_timeout_s
    waits = "60 s or 10 median steps" if hang is None else format_duration(hang)
    yield f"Restarts: at most {limits.max_own_failures - 1}; a hang is no step for {waits}"


def _capture_lines(compiled: CompiledCell) -> Iterator[str]:
    captures = compiled.program.captures
    if not captures:
        yield "Captured: nothing"
        return
    total = sum(captured.size_bytes for captured in captures)
    yield f"Captured: {format_counted(len(captures), 'name')}, {format_bytes(total)}"
    for captured in sorted(captures, key=lambda each: (-each.size_bytes, each.name)):
        yield f"  {captured.name}: {captured.type_name}, {format_bytes(captured.size_bytes)}"
    buffers = compiled.program.buffers
    if buffers:
        sizes = {digest: memoryview(data).nbytes for digest, data in compiled.blobs}
        n_bytes = sum(sizes[digest] for digest in set(buffers))
        n_buffers = format_counted(len(buffers), "buffer")
        yield f"Beside the stream: {n_buffers}, {format_bytes(n_bytes)}, shared per host"


def _module_lines(compiled: CompiledCell) -> Iterator[str]:
    program = compiled.program
    if program.modules:
        yield f"Files: {len(program.modules)} beside the notebook"
        for file in program.modules:
            yield f"  {file.path}: {format_bytes(file.size_bytes)}"
    yield f"Packages: {', '.join(program.imports) or 'none'}"
