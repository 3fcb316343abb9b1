"""What the Helm chart has from elsewhere: the package's rights, and the operator's own chart.

``python tools/make_chart.py`` writes what ``%cluster doctor kube --print-rbac`` prints
into ``deploy/helm/jupyter-ddl/files/rbac.yaml``; with ``--operator`` it also copies the chart that
is part of the package dask-kubernetes below ``charts/``.  Tests fail where either is out of date.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import re
import shutil
import sys
from pathlib import Path

from jupyter_ddl.backends.kubernetes.doctor import rbac_text

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "jupyter-ddl"
RBAC = CHART / "files" / "rbac.yaml"
OPERATOR = CHART / "charts" / "dask-kubernetes-operator"

_HEAD = "# Made by tools/make_chart.py (`make format`): what the package says that it needs.\n"
_PACKAGE = "dask-kubernetes"
_SOURCE = "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/"


def main() -> int:
    """Writes what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operator", action="store_true")
    asked = parser.parse_args()
    RBAC.write_text(printed_rbac(), encoding="utf-8")
    if asked.operator:
        shutil.rmtree(OPERATOR, ignore_errors=True)
        for name, text in operator_files().items():
            path = OPERATOR / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 0


def printed_rbac() -> str:
    """What the package prints, as the chart keeps it; templates put the namespace in."""
    return _HEAD + asyncio.run(rbac_text("NAMESPACE"))


def operator_version() -> str:
    """Of the installed package, whose chart has none of its own.

    Raises
    ------
    importlib.metadata.PackageNotFoundError
        It is not installed.
    """
    return importlib.metadata.version(_PACKAGE)


def operator_files() -> dict[str, str]:
    """The operator's chart as its project publishes it, by the names of its files.

    Its makers set version and image tag when they publish; in the package there are placeholders.

    Raises
    ------
    importlib.metadata.PackageNotFoundError
        The package is not installed.
    """
    version = operator_version()
    found = {}
    for path in importlib.metadata.files(_PACKAGE) or ():
        name = path.as_posix()
        if name.startswith(_SOURCE):
            found[name.removeprefix(_SOURCE)] = path.read_text(encoding="utf-8")
        elif name.endswith(".dist-info/licenses/LICENSE"):
            found["LICENSE"] = path.read_text(encoding="utf-8")
    found["Chart.yaml"] = found["Chart.yaml"].replace("0.0.1-set.by.chartpress", version)
    found["values.yaml"] = found["values.yaml"].replace("set-by-chartpress", version)
    # A package is named there with its address, and no file of this repository names a registry.
    found["values.yaml"] = re.sub(r"\[([\w-]+)\]\(https://pypi[^)]*\)", r"\1", found["values.yaml"])
    return {name: text for name, text in sorted(found.items()) if not name.startswith(".")}


if __name__ == "__main__":
    sys.exit(main())
