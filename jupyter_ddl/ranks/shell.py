"""What IPython's ``display``, ``update_display`` and ``clear_output`` find in a rank."""

from __future__ import annotations

from typing import Any

from IPython.core.displaypub import DisplayPublisher
from IPython.core.events import EventManager, available_events
from IPython.core.formatters import DisplayFormatter
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import SingletonConfigurable

from jupyter_ddl.ranks import outputs

__all__ = ["bundle_of", "install"]


class _Publisher(DisplayPublisher):  # type: ignore[misc]  # IPython is not looked into
    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        *_: Any,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **_options: Any,
    ) -> None:
        display_id = (transient or {}).get("display_id")
        outputs.publish(data, metadata, display_id, is_update=update)

    def clear_output(self, wait: bool = False) -> None:
        outputs.clear()


class _OutputShell(InteractiveShell):  # type: ignore[misc]
    """Only shows: a rank has no prompt, no history and no magics."""

    def __init__(self) -> None:
        SingletonConfigurable.__init__(self)
        self.user_ns: dict[str, Any] = {}
        self.events = EventManager(self, available_events)
        self.display_formatter = DisplayFormatter(parent=self)
        self.display_pub = _Publisher(parent=self)
        figures = self.display_formatter.formatters["image/png"]
        figures.for_type_by_name("matplotlib.figure", "Figure", outputs.figure_png)


def bundle_of(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A value in all the forms that it has, and their metadata; empty if it has shown itself."""
    install()
    data, metadata = InteractiveShell.instance().display_formatter.format(value)
    return dict(data), dict(metadata)


def install() -> None:
    """Be the shell of this process, if it has none."""
    if not InteractiveShell.initialized():
        _OutputShell.instance()
