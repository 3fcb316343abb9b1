"""A drawing: one thing as HTML and as text, shown by whatever front end asks."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Drawing"]


class Drawing:
    """HTML for notebooks and text for terminals; a value at the end of a cell shows itself.

    Parameters
    ----------
    html : callable
        Returns the HTML; called when a front end asks for it.
    text : callable
        Returns the text.
    """

    def __init__(self, html: Callable[[], str], text: Callable[[], str]) -> None:
        self._html = html
        self._text = text

    def _repr_html_(self) -> str:
        return self._html()

    def _repr_mimebundle_(
        self,
        include: object = None,
        exclude: object = None,
    ) -> dict[str, str]:
        return {"text/html": self._html(), "text/plain": self._text()}

    def __repr__(self) -> str:
        return self._text()
