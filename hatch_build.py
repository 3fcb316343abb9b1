"""Brings the JupyterLab extension into wheels, sdists and editable installations.

A build that has a fresh bundle, as an sdist has, needs neither node nor a network.
``JUPYTER_DDL_NO_PANEL=1`` leaves the extension out.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))

from build_labextension import BUNDLE, ROOT, build, is_fresh

_INSTALLED = "share/jupyter/labextensions/jupyter_ddl"


class LabextensionHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling; see its documentation of build hooks."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Only a build that makes the bundle needs node."""
        needed: list[str] = self.metadata.core.optional_dependencies["panel"]
        return needed if self._must_build() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build what is missing and add it to what is packed."""
        if not self._is_wanted():
            return
        if self._must_build():
            build()
        if self.target_name == "wheel":
            shared = build_data["shared_data"]
            shared[str(BUNDLE)] = _INSTALLED
            # pip has written it into the bundle where the environment links to that.
            if not (BUNDLE / "install.json").exists():
                described = ROOT / "labextension" / "install.json"
                shared[str(described)] = f"{_INSTALLED}/install.json"
        else:
            build_data["artifacts"].append("/jupyter_ddl/labextension")

    def _is_wanted(self) -> bool:
        return os.environ.get("JUPYTER_DDL_NO_PANEL", "") in {"", "0"}

    def _must_build(self) -> bool:
        return self._is_wanted() and not is_fresh()
