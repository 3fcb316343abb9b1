"""A plot: an SVG without text, stretched to the width that there is, and HTML labels around it.

The labels keep the theme's font, size and colour.  While a run is live the SVG stands inline,
because images decode late and flicker when replaced; in its final form it is an image, because
the sanitizer for untrusted notebooks drops ``<svg>``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import quote

from jupyter_ddl.views.axes import Axis
from jupyter_ddl.views.palette import GREY, MUTED

__all__ = ["draw_plot", "draw_strokes", "point_at", "x_of", "y_of"]

_WIDTH = 1000.0
_PAD_X = 6.0
_HEIGHT_PX = 150
_PAD_PX = 6
_LINE_PX = 14


def draw_plot(
    body: str, x_axis: Axis, y_axis: Axis, *, key: str, alt: str, x_label: str, inline: bool
) -> str:
    """HTML of a plot.

    Parameters
    ----------
    body : str
        SVG elements, placed by :func:`point_at`.
    key, alt, x_label : str
        Escaped: the line above, the description, and what the horizontal axis counts.
    inline : bool
        Inline SVG (live) or an image that survives untrusted notebooks (final).
    """
    drawn = "".join(_grid(y_axis)) + body
    return (
        f"{key}"
        '<div style="display:flex;padding-right:16px">'
        f"{_value_labels(y_axis)}"
        f'<div style="flex:1 1 0;min-width:0">{_picture(drawn, alt, inline=inline)}'
        f"{_count_labels(x_axis)}"
        f'<div style="text-align:center;font-size:11px;{MUTED}">{x_label}</div>'
        "</div></div>"
    )


def draw_strokes(strokes: Sequence[tuple[str, str]], color: str) -> str:
    """Paths with their own stroke attributes, in one colour."""
    round_ends = "stroke-linecap='round' vector-effect='non-scaling-stroke'"
    shared = f"fill='none' stroke='{color}' {round_ends}"
    return "".join(f"<path d='{path}' {shared} {stroke}/>" for path, stroke in strokes)


def x_of(place: float) -> float:
    """Horizontal position in the SVG of a place on an axis."""
    return round(_PAD_X + place * (_WIDTH - 2 * _PAD_X), 1)


def y_of(place: float) -> float:
    """Vertical position in the SVG of a place on an axis."""
    return round(_PAD_PX + (1 - place) * (_HEIGHT_PX - 2 * _PAD_PX), 1)


def point_at(x: float, y: float, x_axis: Axis, y_axis: Axis) -> str:
    """``x,y`` in the SVG."""
    return f"{x_of(x_axis.place(x)):g},{y_of(y_axis.place(y)):g}"


def _grid(y_axis: Axis) -> Iterable[str]:
    for tick in y_axis.ticks:
        y = y_of(y_axis.place(tick))
        yield (
            f"<path d='M0,{y:g}H{_WIDTH:g}' stroke='{GREY}' stroke-opacity='.28' "
            "stroke-width='1' vector-effect='non-scaling-stroke'/>"
        )


def _picture(body: str, alt: str, *, inline: bool) -> str:
    frame = f"viewBox='0 0 {_WIDTH:g} {_HEIGHT_PX}' preserveAspectRatio='none'"
    style = f"display:block;width:100%;height:{_HEIGHT_PX}px;margin:0;max-width:none"
    if inline:
        return f'<svg {frame} role="img" aria-label="{alt}" style="{style}">{body}</svg>'
    svg = f"<svg xmlns='http://www.w3.org/2000/svg' {frame}>{body}</svg>"
    source = "data:image/svg+xml," + quote(svg, safe="/:='(),.!-")
    return f'<img alt="{alt}" src="{source}" style="{style}">'


def _value_labels(axis: Axis) -> str:
    labels = "".join(f"<div>{label}</div>" for label in reversed(axis.labels))
    height = _HEIGHT_PX - 2 * _PAD_PX + _LINE_PX
    return (
        '<div aria-hidden="true" style="flex:none;display:flex;flex-direction:column;'
        f"justify-content:space-between;height:{height}px;"
        f"margin:{_PAD_PX - _LINE_PX // 2}px 7px 0 0;"
        f'line-height:{_LINE_PX}px;font-size:11px;text-align:right;white-space:nowrap;{MUTED}">'
        f"{labels}</div>"
    )


def _count_labels(axis: Axis) -> str:
    labels = "".join(
        '<span style="display:flex;width:0;justify-content:center;white-space:nowrap">'
        f"{label}</span>"
        for label in axis.labels
    )
    return (
        '<div aria-hidden="true" style="display:flex;justify-content:space-between;'
        f'padding:2px {_PAD_X / _WIDTH:.1%} 0;line-height:{_LINE_PX}px;font-size:11px;{MUTED}">'
        f"{labels}</div>"
    )
