"""How old gradients were when parameter servers used them, as bars."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_ddl.formats import format_count, format_counted
from jupyter_ddl.plotting.chart import Chart, Layer, Mark, Panel, Scale
from jupyter_ddl.protocol.staleness import Staleness

__all__ = ["staleness_chart", "staleness_counts"]


def staleness_counts(servers: Iterable[Staleness]) -> list[int]:
    """Gradients of all servers together, by the updates that they were late, from 0."""
    found: list[int] = []
    for each in servers:
        found += [0] * (len(each.counts) - len(found))
        for late, n_gradients in enumerate(each.counts):
            found[late] += n_gradients
    return found


def staleness_chart(servers: Iterable[Staleness]) -> Chart:
    """Draw what the servers of a run have counted."""
    told = list(servers)
    title = "How many updates late gradients came"
    if not told:
        return Chart(title=title, panels=(), note="none were counted: it takes --strategy ps-async")
    counts = staleness_counts(told)
    names = tuple(str(late) for late in range(len(counts)))
    marks = tuple(
        Mark(n, names[late], label=f"{format_counted(late, 'update')} late: {format_count(n)}")
        for late, n in enumerate(counts)
    )
    n_dropped = sum(each.n_dropped for each in told)
    return Chart(
        title=title,
        panels=(
            Panel(
                Scale("gradients", "count"),
                Scale("updates late", "category", names),
                (Layer("bar", marks),),
            ),
        ),
        text=f"{format_counted(sum(counts), 'gradient')} used, {format_count(n_dropped)} dropped",
    )
