"""``%%distribute run``: a cell on the ranks of a persistent group, its output grouped by rank."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from IPython.display import display, update_display

from jupyter_ddl.cell.options import CellOptions
from jupyter_ddl.magics.bring_files import bring_files
from jupyter_ddl.magics.kernel import cell_number, folder_of, is_kernel_ending
from jupyter_ddl.protocol.outputs import CURRENT, read_shown
from jupyter_ddl.protocol.snapshot import OutputRow
from jupyter_ddl.views.cell_output import Phases, say, say_note

if TYPE_CHECKING:
    from pathlib import Path

    from jupyter_ddl.cell.group_cell import CompiledGroupCell
    from jupyter_ddl.client.group import RankGroup
    from jupyter_ddl.client.rank_results import RankResults
    from jupyter_ddl.protocol.cells import CellResult
    from jupyter_ddl.verbs.run import CellGroup

__all__ = ["run_cell"]

_groups: dict[tuple[str | None, str], RankGroup] = {}
"""The groups that this kernel has used, by cluster and name."""
_told: set[str] = set()
"""What was said about settings: once, and not again with every cell."""


def run_cell(shell: Any, line: str, verb: CellGroup, options: CellOptions, cell: str) -> None:
    """Execute a cell; its results go where the options say."""
    from jupyter_ddl.errors import GroupLostError

    # Before there is a group: what can't be sent is refused first.
    compiled = _compile(shell, options, cell)
    group = _group(verb, options, line)
    try:
        results = _run_on(group, shell, verb, options, cell, compiled)
    except GroupLostError as error:
        _groups.pop((group.cluster, verb.name), None)
        if not error.fields.get("was_closed"):
            raise
        say(f"Note: group {group.id} has ended ({error.reason}): this is a new one.")
        results = _run_on(_group(verb, options, line), shell, verb, options, cell, compiled)
    if results.note:
        say(f"Note: {results.note}.")
    if options.out is not None:
        shell.push({options.out: results})
    push = "--push {0} (or --push auto)"
    results.raise_for_failure(shell.user_ns, push, shows_output=True)
    _bring(shell, options, results)
    if options.bring_files:
        from jupyter_ddl.client.run import Run

        bring_files(Run(results.group_id), options.bring_files)


def _run_on(
    group: RankGroup,
    shell: Any,
    verb: CellGroup,
    options: CellOptions,
    cell: str,
    compiled: CompiledGroupCell,
) -> RankResults:
    explicit = _explicit(options)
    if len(explicit) < len(options.push):
        asked = group.lacking(cell, shell.user_ns, verb.targets)
        if lacking := tuple(name for name in asked if name not in explicit):
            compiled = _compile(shell, options, cell, lacking)
            say(f"pushed: {', '.join(lacking)}")
    for note in compiled.notes:
        if note not in _told:
            _told.add(note)
            say(f"Note: {note}.")
    group.check_environment(compiled, folder_of(shell), options.env_check, say_note)
    live = _Live(cell_number(shell), group.directory / "outputs")
    try:
        results = group.execute_compiled(compiled, verb.targets, live.progress, is_kernel_ending)
    finally:
        live.close()
    live.finish(results)
    return results


def _explicit(options: CellOptions) -> tuple[str, ...]:
    """What is sent whether or not the ranks lack it."""
    from jupyter_ddl.cell.group_cell import AUTO

    return tuple(name for name in options.push if name != AUTO)


def _compile(
    shell: Any,
    options: CellOptions,
    cell: str,
    lacking: tuple[str, ...] = (),
) -> CompiledGroupCell:
    from jupyter_ddl.cell.group_cell import compile_group_cell

    return compile_group_cell(
        cell,
        shell.user_ns,
        cell_number=cell_number(shell),
        notebook_dir=folder_of(shell),
        push=_explicit(options),
        lacking=lacking,
        bring=options.bring,
        keep_value=options.out is not None,
    )


def _group(verb: CellGroup, options: CellOptions, line: str) -> RankGroup:
    """The group that this kernel knows, else the open one, else a new one."""
    from jupyter_ddl.client.group import group_of
    from jupyter_ddl.client.session import session

    key = session().current, verb.name
    known = _groups.get(key)
    is_same = known is not None and verb.n_ranks in (None, known.n_ranks)
    if known is not None and is_same and not verb.reset:
        return known
    with Phases() as phases:
        group = group_of(
            verb,
            line=line,
            env_check=options.env_check,
            on_phase=phases,
            on_notice=say_note,
        )
        phases.done("go")
    _groups[group.cluster, verb.name] = group
    return group


def _bring(shell: Any, options: CellOptions, results: RankResults) -> None:
    for name in options.bring:
        value = results.value(name)
        shell.push({name: value})
        say(f"{name} ← rank {results.ranks[0]} ({type(value).__name__})")


class _Live:
    """One output, redrawn while the cell runs and left as plain text."""

    def __init__(self, number: int | None, folder: Path) -> None:
        from jupyter_ddl.views.outputs import OutputArea

        self._current = folder / CURRENT
        self._before = read_shown(self._current)
        self._area = OutputArea(folder)
        self._cell_number = number or 0
        self._display_id = f"ddl-{uuid.uuid4().hex}"
        self._shown = ""
        self._outputs: dict[int, str] = {}

    def progress(self, outputs: dict[int, str], done: CellResult | None) -> None:
        """Show what there is so far."""
        from jupyter_ddl.protocol.group import ranks_label
        from jupyter_ddl.views.cell_output import render_rank_output

        self._outputs = outputs
        lines = [render_rank_output(outputs, {})]
        for each in done.ranks if done is not None else ():
            if each.failure is not None and done is not None and done.waiting:
                failure = each.failure
                lines.append(
                    f"[{each.rank}] {failure.type_name}: {failure.message} (the cell goes on on "
                    f"{ranks_label(done.waiting)}; interrupt to end it)"
                )
        if done is not None and done.note:
            lines.append(f"({done.note}; an interrupt ends the cell and keeps variables)")
        self._draw("\n".join(line for line in lines if line))
        shown = read_shown(self._current)
        if shown is not None and (self._before is None or shown.number > self._before.number):
            rows = [OutputRow(shown.number, file, shown.at_s[file]) for file in shown.files]
            self._area.show(rows)

    def close(self) -> None:
        """Without results: leave the output alone."""
        from jupyter_ddl.views.cell_output import render_rank_output

        if self._shown:
            self._draw(render_rank_output(self._outputs, {}))

    def finish(self, results: RankResults) -> None:
        """Show the whole output and the values."""
        from jupyter_ddl.views.cell_output import render_rank_output

        outputs = dict(zip(results.ranks, results.outputs, strict=True))
        texts = dict(zip(results.ranks, results.texts, strict=True))
        if results.is_value_shown:
            texts = {rank: text for rank, text in texts.items() if text != results.texts[0]}
        self._draw(render_rank_output(outputs, texts, self._cell_number))
        rows = [OutputRow(results.number, each.path.name, -1.0) for each in results.shown]
        self._area.show(rows, is_last=True)

    def _draw(self, text: str) -> None:
        if text == self._shown:
            return
        bundle = {"text/plain": text}
        if self._shown:
            update_display(bundle, display_id=self._display_id, raw=True)
        else:
            display(bundle, display_id=self._display_id, raw=True)
        self._shown = text
