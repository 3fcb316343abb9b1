"""Tables of runs (``%runs``) and the state of a cluster (``%cluster``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from jupyter_ddl.formats import (
    format_age,
    format_bytes,
    format_count,
    format_counted,
    format_duration,
    format_money,
    format_score,
)
from jupyter_ddl.protocol.facts import EnvironmentStatus
from jupyter_ddl.protocol.replies import ClusterState, ClusterStatus, GroupStatus
from jupyter_ddl.protocol.snapshot import RunLine
from jupyter_ddl.views.drawing import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    MUTED,
    ROOT_STYLE,
    RUN_COLORS,
    Drawing,
    TextColumn,
    columns_text,
    dot,
    esc,
    pill,
    plain,
)
from jupyter_ddl.views.group import progress_text
from jupyter_ddl.views.trial_table import Column, draw_table

__all__ = ["ClusterRow", "cluster_row", "render_cluster", "render_clusters", "render_runs"]

_MAX_RUNS = 30
_LIMIT = 40

_CLUSTER_COLORS: Final[dict[ClusterState, str]] = {
    "starting": BLUE,
    "ready": GREEN,
    "degraded": AMBER,
    "stopping": GREY,
}


class ClusterRow(msgspec.Struct, frozen=True):
    """One cluster as ``%cluster`` shows it.  None: unknown, or without a limit."""

    name: str
    backend: str
    state: ClusterState
    n_workers: int
    n_slots: int
    cpus: int
    """Of all workers together."""
    memory_bytes: int | None
    """Of all workers together."""
    n_runs: int
    """Runs that have not ended."""
    idle_left_s: float | None
    age_left_s: float | None
    controller: str
    address: str
    groups: tuple[str, ...] = ()
    """A line about each persistent group."""
    n_busy: int = 0
    """Slots that run a trial now."""
    gpus: str = ""
    """GPUs of all workers, or why there are none; empty: not known yet."""
    environment: str = ""
    """The verdict in one word, and what differs; empty before the first comparison."""
    trouble: str = ""
    """Why the state is ``degraded``; empty in others."""


def cluster_row(status: ClusterStatus) -> ClusterRow:
    """What ``%cluster`` shows of a controller's answer."""
    n_workers = len(status.workers)
    per_slot = status.memory_per_worker_bytes
    return ClusterRow(
        name=status.name,
        backend=status.backend,
        state=status.state,
        n_workers=n_workers,
        n_slots=status.n_slots,
        cpus=status.cpus_per_worker * status.n_slots,
        memory_bytes=None if per_slot is None else per_slot * status.n_slots,
        n_runs=len(status.active_runs) - len(status.groups),
        idle_left_s=status.idle_left_s,
        age_left_s=status.age_left_s,
        controller=_controller(status),
        address=status.scheduler_address,
        n_busy=sum(worker.n_busy for worker in status.workers),
        groups=tuple(_group_line(group) for group in status.groups),
        gpus=status.gpus,
        trouble=status.trouble,
        environment=_environment_line(status.environment),
    )


def _controller(status: ClusterStatus) -> str:
    where = f" on {status.controller_host}" if status.controller_host else ""
    return f"process {status.controller_pid}{where}"


def _environment_line(verdict: EnvironmentStatus | None) -> str:
    if verdict is None:
        return ""
    return f"{verdict.word}: {verdict.text}" if verdict.text else f"{verdict.word} as the kernel's"


def _group_line(group: GroupStatus) -> str:
    name = "" if group.name == "default" else f" ({group.name})"
    state = "executes a cell" if group.is_busy else "idle"
    devices = ", ".join(sorted({rank.device for rank in group.ranks}))
    return (
        f"{group.group_id}{name}: {format_counted(group.n_ranks, 'rank')} on {devices}, {state}, "
        f"{format_counted(group.n_cells, 'cell')} so far"
    )


def render_runs(rows: Sequence[RunLine], *, now_s: float, width: int = 100) -> Drawing:
    """The newest 30 runs, in the given order.

    Parameters
    ----------
    now_s : float
        Unix seconds; ages are told relative to it.
    width : int
        Of the text form in terminal cells.
    """
    shown = tuple(rows[:_MAX_RUNS])
    n_hidden = len(rows) - len(shown)
    return Drawing(
        html=lambda: _runs_html(shown, n_hidden, now_s),
        text=lambda: _runs_text(shown, n_hidden, now_s, width),
    )


def _runs_state(row: RunLine) -> str:
    if row.is_damaged:
        return "damaged"
    unfinished = row.state in {"submitted", "starting", "running"}
    return "interrupted" if unfinished and not row.live else row.state


def _runs_cells(rows: Sequence[RunLine], now_s: float) -> list[tuple[str, tuple[str, ...], bool]]:
    """(heading, cells, right-aligned), cleaned but not escaped."""
    columns = [
        ("run", tuple(plain(row.run_id, _LIMIT) for row in rows), False),
        ("name", tuple(plain(row.name, _LIMIT) for row in rows), False),
        ("state", tuple(_runs_state(row) for row in rows), False),
        ("progress", tuple(_progress(row) for row in rows), True),
        ("best", tuple(_best(row) for row in rows), True),
        ("started", tuple(format_age(now_s - row.created_at_s) for row in rows), True),
        ("time", tuple(format_duration(_duration_s(row, now_s)) for row in rows), True),
        ("cost", tuple(_cost(row) for row in rows), True),
        ("verb", tuple(plain(row.verb, 16) for row in rows), False),
        ("cluster", tuple(plain(row.cluster, 24) for row in rows), False),
    ]
    return [column for column in columns if column[0] in {"run", "state"} or any(column[1])]


def _progress(row: RunLine) -> str:
    if row.can.has_ranks:
        return progress_text(row.step, row.round)
    if not row.n_trials:  # a persistent group
        return ""
    return f"{format_count(row.n_finished or 0)} of {format_count(row.n_trials)}"


def _duration_s(row: RunLine, now_s: float) -> float | None:
    """So far, of a live run; None of an interrupted one."""
    end_s = row.finished_at_s or (now_s if row.live else None)
    return None if end_s is None else max(0.0, end_s - row.created_at_s)


def _best(row: RunLine) -> str:
    if row.best is None:
        return ""
    return f"{plain(row.metric or '', 24)} {format_score(row.best)}".lstrip()


def _cost(row: RunLine) -> str:
    return "" if row.cost is None else format_money(row.cost, plain(row.currency, 3))


def _runs_html(rows: Sequence[RunLine], n_hidden: int, now_s: float) -> str:
    if not rows:
        return f'<div style="{ROOT_STYLE}">No runs yet.</div>'
    columns = []
    for heading, cells, right in _runs_cells(rows, now_s):
        drawn = tuple(esc(cell) for cell in cells)
        if heading == "state":
            drawn = tuple(
                f"{dot(AMBER if text == 'interrupted' else RUN_COLORS[row.state], 7)}{text}"
                for row, text in zip(rows, drawn, strict=True)
            )
        columns.append(Column(heading, drawn, "right" if right else "left"))
    caption = f"Runs, {format_count(n_hidden)} more not shown" if n_hidden else "Runs"
    return f'<div style="{ROOT_STYLE}">{draw_table(columns, caption=caption)}</div>'


def _runs_text(rows: Sequence[RunLine], n_hidden: int, now_s: float, width: int) -> str:
    if not rows:
        return "No runs yet."
    cells = _runs_cells(rows, now_s)
    lines = columns_text([TextColumn(*column) for column in cells], width)
    if n_hidden:
        lines.append(f"{format_count(n_hidden)} more not shown")
    return "\n".join(lines)


def render_cluster(status: ClusterRow) -> Drawing:
    """One cluster: its state, its size and when it ends by itself."""
    return Drawing(html=lambda: _cluster_html(status), text=lambda: _cluster_text(status))


def _cluster_facts(row: ClusterRow) -> list[tuple[str, str]]:
    """(label, value), cleaned but not escaped."""
    slots = f"{format_counted(row.n_slots, 'slot')}, {format_count(row.n_busy)} busy"
    size = f"{format_counted(row.n_workers, 'worker')} with {slots}"
    limits = f"{format_counted(row.cpus, 'CPU')}, {format_bytes(row.memory_bytes)} of memory"
    if row.memory_bytes is None:
        limits = f"{format_counted(row.cpus, 'CPU')}, no memory limit"
    facts = [
        ("trouble", plain(row.trouble, 300)),
        ("size", size),
        ("limits", limits),
        ("GPUs", plain(row.gpus, 120)),
        ("runs", f"{format_count(row.n_runs)} active" if row.n_runs else "none active"),
        *(("group", plain(line, 120)) for line in row.groups),
        ("environment", plain(row.environment, 300)),
        ("ends", _ends(row)),
        ("scheduler", plain(row.address, 80)),
        ("controller", plain(row.controller, 120)),
    ]
    return [(label, value) for label, value in facts if value]


def _ends(row: ClusterRow) -> str:
    parts = []
    if row.idle_left_s is not None:
        parts.append(f"in {format_duration(row.idle_left_s)} if it stays idle")
    if row.age_left_s is not None:
        parts.append(f"in {format_duration(row.age_left_s)} at the latest")
    return ", ".join(parts)


def _cluster_html(row: ClusterRow) -> str:
    color = _CLUSTER_COLORS[row.state]
    facts = "".join(
        f'<tr style="background:none"><th scope="row" style="text-align:left;'
        f"padding:1px 16px 1px 0;font-weight:400;vertical-align:baseline;white-space:nowrap;"
        f'{MUTED}">{label}</th>'
        f'<td style="text-align:left;padding:1px 0;vertical-align:baseline;'
        f'overflow-wrap:break-word">{esc(value)}</td></tr>'
        for label, value in _cluster_facts(row)
    )
    return (
        f'<div role="group" aria-label="Cluster {esc(row.name, _LIMIT)}" style="{ROOT_STYLE}">'
        '<div style="display:flex;flex-wrap:wrap;align-items:baseline;gap:2px 10px">'
        f"{pill(color, row.state)}"
        f'<bdi style="font-size:15px;font-weight:600">{esc(row.name, _LIMIT)}</bdi>'
        f'<span style="font-size:12px;{MUTED}">{esc(row.backend, _LIMIT)} cluster</span></div>'
        '<table style="border-collapse:collapse;table-layout:auto;width:auto;margin:6px 0 0;'
        f'border:none;font-size:12px"><tbody>{facts}</tbody></table></div>'
    )


def _cluster_text(row: ClusterRow) -> str:
    head = f"cluster {plain(row.name, _LIMIT)} · {row.state} · {plain(row.backend, _LIMIT)}"
    facts = _cluster_facts(row)
    width = max(len(label) for label, _ in facts)
    return "\n".join([head, *(f"  {label:<{width}}  {value}" for label, value in facts)])


def render_clusters(
    rows: Sequence[ClusterRow], *, current: str | None, width: int = 100
) -> Drawing:
    """All running clusters; the one that is in use is marked.

    Parameters
    ----------
    current : str or None
        Name of the cluster that the next cell would use.
    width : int
        Of the text form in terminal cells.
    """
    columns = _clusters_cells(tuple(rows), current)
    return Drawing(
        html=lambda: _clusters_html(columns), text=lambda: _clusters_text(columns, width)
    )


def _clusters_cells(
    rows: tuple[ClusterRow, ...], current: str | None
) -> list[tuple[str, tuple[str, ...], bool]]:
    """(heading, cells, right-aligned)."""
    if not rows:
        return []
    gpus = tuple("" if row.gpus.startswith("n/a") else plain(row.gpus, 40) for row in rows)
    return [
        ("cluster", tuple(plain(row.name, 40) for row in rows), False),
        ("state", tuple(row.state for row in rows), False),
        ("workers", tuple(format_count(row.n_workers) for row in rows), True),
        ("slots", tuple(format_count(row.n_slots) for row in rows), True),
        *([("GPUs", gpus, False)] if any(gpus) else []),
        ("runs", tuple(format_count(row.n_runs) for row in rows), True),
        ("ends if idle in", tuple(format_duration(row.idle_left_s) for row in rows), True),
        ("at the latest in", tuple(format_duration(row.age_left_s) for row in rows), True),
        ("backend", tuple(plain(row.backend, 24) for row in rows), False),
        ("", tuple("in use" if row.name == current else "" for row in rows), False),
    ]


_NO_CLUSTER = "No cluster is running."


def _clusters_html(columns: Sequence[tuple[str, tuple[str, ...], bool]]) -> str:
    if not columns:
        return f'<div style="{ROOT_STYLE}">{_NO_CLUSTER}</div>'
    drawn = [
        Column(heading, tuple(esc(cell) for cell in cells), "right" if right else "left")
        for heading, cells, right in columns
    ]
    return f'<div style="{ROOT_STYLE}">{draw_table(drawn, caption="Clusters")}</div>'


def _clusters_text(columns: Sequence[tuple[str, tuple[str, ...], bool]], width: int) -> str:
    if not columns:
        return _NO_CLUSTER
    return "\n".join(columns_text([TextColumn(*column) for column in columns], width))
